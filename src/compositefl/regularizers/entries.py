"""Fields that may have a number for every entry of the model.

Such a field is one number, an array of the shape of the leaf, or a pytree like the parameters
whose leaves are numbers or arrays.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.trees import named_leaves
from compositefl.core.types import Number, Params, PyTree
from compositefl.core.vector import unwrap

# A number, an array like the leaf, or a pytree like the parameters; in the methods of a leaf one of
# the first two.
Entries: TypeAlias = float | np.ndarray | jax.Array | PyTree


def is_one(value: PyTree) -> bool:
    """Whether the field is one number or array, no pytree of several."""
    return jax.tree_util.all_leaves([value])


def is_scalar(value: PyTree) -> bool:
    """Whether the field is one number for all entries."""
    return is_one(value) and np.ndim(value) == 0


def is_traced(*fields: Entries) -> bool:
    """Whether a number is not known, inside jit or vmap."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(fields))


def largest(formula: Callable[..., Number], *fields: Entries) -> Number:
    """The largest value that an entrywise formula of the fields takes."""
    if all(map(is_scalar, fields)):
        return formula(*fields)  # as the user wrote it: a Python number stays one
    parts = [jax.tree.leaves(field) for field in fields]
    count = max(map(len, parts))
    try:
        groups = zip(*(part * count if len(part) == 1 else part for part in parts), strict=True)
        if is_traced(*fields):
            return jnp.max(jnp.stack([jnp.max(formula(*group)) for group in groups]))
        return float(max(np.max(formula(*map(np.asarray, group))) for group in groups))
    except ValueError:
        shapes = [jax.tree.map(np.shape, field) for field in fields]
        raise CompositeFLError(
            f"numbers for every entry have different shapes, {' and '.join(map(str, shapes))}"
        ) from None


def of_leaves(owner: str, name: str, value: Entries, x: Params) -> list[Entries]:
    """The field `name` for each leaf of x; one that does not fit is refused.

    ByName writes None where a leaf belongs to another; the pytree of a field has them all.
    """
    structure: jax.tree_util.PyTreeDef
    places, structure = jax.tree.flatten(unwrap(x), is_leaf=lambda leaf: leaf is None)
    found = [value] * len(places)
    if not is_one(value):
        try:
            found = structure.flatten_up_to(value)
        except ValueError:
            raise CompositeFLError(
                f"{owner}: {name} has the structure {jax.tree.structure(value)}, the parameters "
                f"have {jax.tree.structure(unwrap(x))}; it must be a number, an array shaped like "
                "the leaf, or a pytree like the parameters"
            ) from None
    found = [one for one, place in zip(found, places, strict=True) if place is not None]
    for (leaf_name, leaf), one in zip(named_leaves(x), found, strict=True):
        if not is_one(one) or np.shape(one) not in ((), np.shape(leaf)):
            given = f"shape {np.shape(one)}" if is_one(one) else f"structure {one!r}"
            where = f"leaf '{leaf_name}'" if leaf_name else "the array"
            raise CompositeFLError(
                f"{owner}: {name} of {given} does not fit {where} of shape {np.shape(leaf)}; it "
                "must be a number, an array of that shape, or a pytree like the parameters"
            )
    return found
