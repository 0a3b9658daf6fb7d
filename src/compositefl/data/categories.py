"""Columns of categories: a column of 0 and 1 for every value but the first, the reference.

A value is known by its words, and 1 and 1.0 are one value: a table that has whole numbers in a
column and one that has them as words, or as decimals beside a gap, mean the same.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from compositefl.core.errors import CompositeFLError

if TYPE_CHECKING:
    import pandas as pd

Categories: TypeAlias = Mapping[str, Sequence[str]]  # by column its values, the reference first
MOST = 100  # values of a column; of more it is a name or a number


def checked(given: object) -> dict[str, tuple[str, ...]]:
    """What a file says of categories: different words by column, two or more."""
    if not isinstance(given, Mapping):
        raise CompositeFLError(
            f"categories={given!r} must be lists of words by column",
            parameter="categories",
            value=given,
        )
    for name, values in given.items():
        good = isinstance(values, list | tuple) and all(isinstance(v, str) and v for v in values)
        if not good or len(values) < 2 or len(set(values)) < len(values):
            raise CompositeFLError(f"categories: {name} must be a list of two or more words")
    return {str(name): tuple(values) for name, values in given.items()}


def values_of(frames: Mapping[str, "pd.DataFrame"], name: str) -> list[str]:
    """The values that a column has in any of the tables: numbers in their order, then words."""
    found: set[str] = set()
    for where, frame in frames.items():
        words, there = _words(frame[name], where)
        found |= set(words[there])
    if len(found) < 2:
        what = f"holds '{found.pop()}' alone" if found else "is empty"
        raise CompositeFLError(f"column '{name}' {what}; a column of categories has 2 or more")
    if len(found) > MOST:
        raise CompositeFLError(
            f"column '{name}' has {len(found)} different values; a column of categories has at "
            f"most {MOST}"
        )
    return sorted(
        found, key=lambda word: (not _is_whole(word), _is_whole(word) and int(word), word)
    )


def coded_names(names: Sequence[str], categories: Categories) -> list[str]:
    """Names of columns, those of categories replaced by "column=value" for all but the first."""
    made = []
    for name in names:
        made += (
            [f"{name}={value}" for value in categories[name][1:]] if name in categories else [name]
        )
    return made


def coded(frame: "pd.DataFrame", categories: Categories, where: str) -> "pd.DataFrame":
    """A table with a column of 0 and 1 for every value but the first; NaN where it is missing."""
    import pandas as pd

    if not categories:
        return frame  # perhaps of many columns
    columns: dict[str, pd.Series] = {}
    for name in map(str, frame.columns):
        if name not in categories:
            columns[name] = frame[name]
            continue
        words, there = _words(frame[name], where)
        unknown = sorted(set(words[there]) - set(categories[name]))
        if unknown:
            raise CompositeFLError(
                f"{where}: column '{name}' holds '{unknown[0]}', which is none of "
                f"{', '.join(categories[name])}"
            )
        for value in categories[name][1:]:
            own = f"{name}={value}"
            if own in frame.columns:
                raise CompositeFLError(f"{where} has a column '{own}' beside '{name}'")
            columns[own] = pd.Series(words == value, frame.index, dtype=float).where(there)
    return pd.DataFrame(columns, index=frame.index)


def _words(series: "pd.Series", where: str) -> tuple[np.ndarray, np.ndarray]:
    """(the values of a column as words, where there is one)."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_bool_dtype(series):
        values = series.to_numpy(float, na_value=np.nan)
        broken = np.isfinite(values) & (values != np.rint(values)) | np.isinf(values)
        if broken.any():
            raise CompositeFLError(
                f"{where}: column '{series.name}' holds {values[broken][0]:g}; categories are "
                "words or whole numbers"
            )
    there = series.notna().to_numpy()
    words = np.full(len(series), "", object)
    words[there] = [_word(value) for value in series[there]]
    return words, words != ""


def _word(value: object) -> str:
    whole = isinstance(value, float | np.floating) and float(value).is_integer()
    return str(int(value)) if whole else str(value).strip()  # type: ignore[call-overload]


def _is_whole(word: str) -> bool:
    return word.removeprefix("-").isdecimal()
