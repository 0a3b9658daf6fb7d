"""Data as users have them: tables become arrays, and what is no array is refused in one line."""

from typing import Any

import jax
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Array, Batch

NUMBERS = "biuf"  # kinds of types that are numbers


def as_arrays(batch: Batch, who: str, *, text: bool = False) -> Batch:
    """The batch with tables of pandas and their columns as arrays; others stay as they are.

    who: "client 3" or "the test set", for errors. text: words are accepted too, as labels.
    """
    return jax.tree.map(lambda leaf: _as_array(leaf, who, text), batch)


def shapes_in_words(shapes: list[tuple[int, ...]]) -> str:
    """For errors: the shapes of a batch, or that it is made of lists of single numbers."""
    if shapes and all(shape == () for shape in shapes):
        return f"{len(shapes)} single numbers (make arrays of lists: np.array(rows))"
    more = ", ..." if len(shapes) > 6 else ""
    return f"arrays of shapes {', '.join(map(str, shapes[:6]))}{more}"


def _as_array(leaf: Any, who: str, text: bool) -> Array:
    if hasattr(leaf, "toarray"):
        raise CompositeFLError(
            f"{who} has a sparse matrix of shape {np.shape(leaf)}; call its .toarray() first"
        )
    if hasattr(leaf, "to_numpy"):
        leaf = _from_table(leaf, who)
    kind = getattr(leaf, "dtype", None) or np.asarray(leaf).dtype
    if not text and getattr(kind, "kind", "f") in "OUSmM":
        raise CompositeFLError(
            f"{who} has data of type {kind}, which are no numbers; for labels "
            "np.unique(y, return_inverse=True)[1] makes whole numbers of names"
        )
    return leaf


def _from_table(table: Any, who: str) -> np.ndarray:
    """A table or a column of one as an array; columns that are no numbers are refused."""
    types = getattr(table, "dtypes", None)
    if types is None or not hasattr(types, "items"):  # a column
        return np.asarray(table.to_numpy())
    wrong = [str(name) for name, kind in types.items() if kind.kind not in NUMBERS]
    if wrong:
        more = ", ..." if len(wrong) > 5 else ""
        raise CompositeFLError(
            f"{who} has columns that are no numbers: {', '.join(wrong[:5])}{more}; drop or encode "
            "them (pandas.get_dummies makes a column per category)"
        )
    array: np.ndarray = table.to_numpy()
    return array if array.dtype.kind in NUMBERS else array.astype(float)  # bools and numbers
