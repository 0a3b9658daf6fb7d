"""Frozen dataclasses whose numbers are pytree leaves.

Algorithms and regularisers are such components: because their hyper-parameters are leaves, one
compiled program serves every value of them, and a sweep or a regularisation path is one vmap.
"""

import dataclasses
import hashlib
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, TypeAlias, TypeVar, dataclass_transform

import jax
import numpy as np
from jax.tree_util import GetAttrKey

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import PyTree

_STATIC = "compositefl_static"
SHOWN = 6  # entries of an array that a repr writes out
T = TypeVar("T")
Statics: TypeAlias = tuple[Hashable, ...]  # the values of the fields that are no numbers


def static(**kwargs: Any) -> Any:
    """A dataclass field that is part of the structure (a name, a tuple of axes), not a number."""
    return dataclasses.field(metadata={_STATIC: True}, **kwargs)


def is_static(field: dataclasses.Field[Any]) -> bool:
    """Whether a field is part of the structure."""
    return bool(field.metadata.get(_STATIC))


@dataclass_transform(frozen_default=True, field_specifiers=(dataclasses.field, static))
def component(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass and a pytree: fields are leaves unless marked `static()`.

    Rebuilding from leaves skips `__post_init__`, so checks there see only what users wrote.
    """
    cls = dataclasses.dataclass(frozen=True, repr=False)(cls)
    if "__repr__" not in cls.__dict__:
        cls.__repr__ = _repr  # type: ignore[method-assign]
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    leaves = tuple(f.name for f in fields if not is_static(f))
    statics = tuple(f.name for f in fields if is_static(f))

    def flatten(self: T) -> tuple[tuple[PyTree, ...], Statics]:
        return tuple(getattr(self, n) for n in leaves), tuple(getattr(self, n) for n in statics)

    def flatten_with_keys(self: T) -> tuple[tuple[tuple[GetAttrKey, PyTree], ...], Statics]:
        children, aux = flatten(self)
        keys = tuple(GetAttrKey(n) for n in leaves)
        return tuple(zip(keys, children, strict=True)), aux

    def unflatten(aux: Statics, children: Iterable[PyTree]) -> T:
        self = object.__new__(cls)
        for name, value in zip(leaves + statics, (*children, *aux), strict=True):
            object.__setattr__(self, name, value)
        return self

    jax.tree_util.register_pytree_with_keys(cls, flatten_with_keys, unflatten, flatten)
    return cls


def _repr(self: Any) -> str:
    """As a dataclass, with arrays in a line: repr identifies a run, in checkpoints and files."""
    shown = [f.name for f in dataclasses.fields(self) if f.repr]
    values = ", ".join(f"{name}={_shown(getattr(self, name))}" for name in shown)
    return f"{type(self).__qualname__}({values})"


def _shown(value: Any) -> str:
    """A value in one line; a large array by its shape, its range and a hash of its numbers."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k!r}: {_shown(v)}" for k, v in value.items()) + "}"
    if type(value) in (list, tuple):
        left, right = "[]" if isinstance(value, list) else "()"
        return left + ", ".join(map(_shown, value)) + right
    array = isinstance(value, (np.ndarray, jax.Array)) and not isinstance(value, jax.core.Tracer)
    if not array or np.ndim(value) == 0:
        return repr(value)
    numbers = np.asarray(value)
    if numbers.size <= SHOWN:
        return f"array({numbers.tolist()})"
    digest = hashlib.blake2b(numbers.astype(float).tobytes(), digest_size=6).hexdigest()
    return f"array({numbers.shape} from {numbers.min():g} to {numbers.max():g}, hash {digest})"


def same(a: PyTree, b: PyTree) -> bool:
    """Whether two components are equal, arrays in them entry by entry."""
    here: jax.tree_util.PyTreeDef = jax.tree.structure(a)
    leaves = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=False)
    return here == jax.tree.structure(b) and all(np.array_equal(x, y) for x, y in leaves)


def replace(obj: T, **changes: Any) -> T:
    """`dataclasses.replace` that names the known fields when one is misspelt."""
    known = {f.name for f in dataclasses.fields(obj)}  # type: ignore[arg-type]
    unknown = set(changes) - known
    if unknown:
        raise CompositeFLError(
            f"{type(obj).__name__} has no {sorted(unknown)}; it has {sorted(known)}"
        )
    return dataclasses.replace(obj, **changes)  # type: ignore[type-var]
