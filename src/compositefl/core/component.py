"""Frozen dataclasses whose numbers are pytree leaves.

Algorithms and regularisers are such components: because their hyper-parameters are leaves, one
compiled program serves every value of them, and a sweep or a regularisation path is one vmap.
"""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax

from compositefl.core.errors import CompositeFLError

_STATIC = "compositefl_static"
T = TypeVar("T")


def static(**kwargs: Any) -> Any:
    """A dataclass field that is part of the structure (a name, a tuple of axes), not a number."""
    return dataclasses.field(metadata={_STATIC: True}, **kwargs)


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def component(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass and a pytree: fields are leaves unless marked `static()`.

    Rebuilding from leaves skips `__post_init__`, so checks there see only what users wrote.
    """
    cls = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    leaves = tuple(f.name for f in fields if not f.metadata.get(_STATIC))
    statics = tuple(f.name for f in fields if f.metadata.get(_STATIC))

    def flatten(self: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(self, n) for n in leaves), tuple(getattr(self, n) for n in statics)

    def flatten_with_keys(self: Any) -> tuple[Any, tuple[Any, ...]]:
        children, aux = flatten(self)
        keys = tuple(jax.tree_util.GetAttrKey(n) for n in leaves)
        return tuple(zip(keys, children, strict=True)), aux

    def unflatten(aux: tuple[Any, ...], children: Any) -> T:
        self = object.__new__(cls)
        for name, value in zip(leaves + statics, (*children, *aux), strict=True):
            object.__setattr__(self, name, value)
        return self

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def replace(obj: T, **changes: Any) -> T:
    """`dataclasses.replace` that names the known fields when one is misspelt."""
    known = {f.name for f in dataclasses.fields(obj)}  # type: ignore[arg-type]
    unknown = set(changes) - known
    if unknown:
        raise CompositeFLError(
            f"{type(obj).__name__} has no {sorted(unknown)}; it has {sorted(known)}"
        )
    return dataclasses.replace(obj, **changes)  # type: ignore[type-var]
