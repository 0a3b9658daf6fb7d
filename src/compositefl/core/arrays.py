"""Data as users have them: tables become arrays, and what is no array is refused in one line."""

from collections import Counter
from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Array, Batch

NUMBERS = "biuf"  # kinds of types that are numbers
NAMED = 5  # columns that an error names

# Whose table it was and the names of its columns, by the table's place among a batch's leaves.
Columns: TypeAlias = dict[int, tuple[str, list[Hashable]]]


def as_arrays(batch: Batch, who: str, *, text: bool = False) -> Batch:
    """The batch with tables of pandas and their columns as arrays; others stay as they are.

    who: "client 3" or "the test set", for errors. text: words are accepted too, as labels.
    """
    return jax.tree.map(lambda leaf: _as_array(leaf, who, text), batch)


def same_columns(batch: Batch, who: str, columns: Columns) -> Batch:
    """The batch with the columns of its tables in the order of `columns`, matched by name.

    The first table at a place says its order, and is noted in `columns`. Arrays have no names, nor
    have tables whose columns are but numbered: beside others they are taken as they stand.
    """
    leaves, structure = jax.tree.flatten(batch)
    for place, leaf in enumerate(leaves):
        if not (hasattr(leaf, "to_numpy") and hasattr(leaf, "columns")):
            continue
        names: list[Hashable] = list(leaf.columns)
        first, wanted = columns.setdefault(place, (who, names))
        if names == wanted:
            continue
        if set(names) != set(wanted) and (_numbered(names) or _numbered(wanted)):
            columns[place] = (who, names) if _numbered(wanted) else (first, wanted)
            continue
        _require_same(who, names, first, wanted)
        leaves[place] = leaf[wanted]
    return jax.tree.unflatten(structure, leaves)


def _numbered(names: list[Hashable]) -> bool:
    """Whether these are the names that a table gets when nobody names its columns."""
    return names == list(range(len(names)))


def _require_same(who: str, names: list[Hashable], first: str, wanted: list[Hashable]) -> None:
    """Refuse columns that are not those of the first table in some order."""
    ours, theirs = Counter(names), Counter(wanted)
    odd = [name for name in ours if name not in theirs]
    missing = [name for name in theirs if name not in ours]
    differ = [f"it lacks {_listed(missing)}"] if missing else []
    differ += [f"only it has {_listed(odd)}"] if odd else []
    twice = [name for name in ours if max(ours[name], theirs[name]) > 1]
    differ += [f"{_listed(twice)} occurs twice"] if twice else []
    if differ:
        raise CompositeFLError(
            f"{who} has other columns than {first}: {' and '.join(differ)}; columns are matched "
            "by name"
        )


def _listed(names: Sequence[Hashable]) -> str:
    return ", ".join(map(str, names[:NAMED])) + (", ..." if len(names) > NAMED else "")


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
        raise CompositeFLError(
            f"{who} has columns that are no numbers: {_listed(wrong)}; drop or encode "
            "them (pandas.get_dummies makes a column per category)"
        )
    array: np.ndarray = table.to_numpy()
    return array if array.dtype.kind in NUMBERS else array.astype(float)  # bools and numbers
