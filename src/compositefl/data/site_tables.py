"""Tables of several sites: columns are matched by name, and the site that differs is named."""

import difflib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.data import tables

if TYPE_CHECKING:
    import pandas as pd

Frames = Mapping[str, "pd.DataFrame"]
LARGEST = 2**53 - 1  # whole number that float64 tells from both neighbours


def read_sites(files: Mapping[str, str | Path]) -> dict[str, "pd.DataFrame"]:
    """The table of every site. Keys of the answer say the site and its file, for errors."""
    seen: dict[Path, str] = {}
    for name, file in files.items():
        if not name:
            raise CompositeFLError(f"{file} needs a name of its site before it, NAME={file}")
        path = Path(file).resolve()
        if path in seen:
            raise CompositeFLError(f"{file} is given for two sites, '{seen[path]}' and '{name}'")
        seen[path] = name
    return {label(name, file): tables.read_table(file) for name, file in files.items()}


def label(name: str, file: str | Path) -> str:
    """How errors call the table of a site."""
    return f"site '{name}' ({file})"


def common_features(
    frames: Frames, features: Sequence[str] | None = None, *, aside: Collection[str] = ()
) -> list[str]:
    """The columns that all sites have, in the order of the first; whoever differs is refused.

    features: the columns wanted; else all but those in `aside`. A column must be numbers at every
    site. What most sites have counts, so that the odd one is named.
    """
    if features is None:
        features = _expected(frames, aside)
        for where, frame in frames.items():
            _same_names(where, frame, features, aside)
    else:
        for where, frame in frames.items():
            for name in features:
                tables.require_column(frame, name, file=where)
    if not features:
        raise CompositeFLError("the tables have no features")
    for name in features:
        _same_type(frames, name)
    return list(features)


def _expected(frames: Frames, aside: Collection[str]) -> list[str]:
    """Columns of more than half of the sites; of exactly half where the first site has it."""
    first = next(iter(frames.values()))
    count: dict[str, int] = {}
    for frame in frames.values():
        for name in map(str, frame.columns):
            if name not in aside:
                count[name] = count.get(name, 0) + 1
    half = len(frames) / 2
    return [n for n, c in count.items() if c > half or (c == half and n in first.columns)]


def _same_names(
    where: str, frame: "pd.DataFrame", features: Sequence[str], aside: Collection[str]
) -> None:
    columns = [str(c) for c in frame.columns]
    lacks = [name for name in features if name not in columns]
    extra = [name for name in columns if name not in features and name not in aside]
    if lacks:
        plain = {name.strip().lower(): name for name in extra}
        near = difflib.get_close_matches(lacks[0].strip().lower(), list(plain), n=1, cutoff=0.7)
        hint = f"; it has '{plain[near[0]]}'" if near else ""
        raise CompositeFLError(
            f"{where} lacks {tables.list_columns(lacks)}, which other sites have{hint}; columns "
            "are matched by name"
        )
    if extra:
        raise CompositeFLError(
            f"{where} has {tables.list_columns(extra)}, which other sites lack; ",
            remedy="features",
        )


def _same_type(frames: Frames, name: str) -> None:
    """Refuse a column that holds text, and say whether it does so everywhere."""
    if name.startswith("Unnamed: "):  # as pandas says
        raise CompositeFLError(
            f"{next(iter(frames))}: '{name}' is a column without a name; name it, ",
            remedy="drop it",
        )
    examples = {where: text_example(frame[name]) for where, frame in frames.items()}
    wrong = {where: words for where, words in examples.items() if words is not None}
    if not wrong:
        return
    where, words = next(iter(wrong.items()))
    if len(wrong) < len(frames):
        raise CompositeFLError(
            f"{where}: column '{name}' holds text, such as '{words}'; at other sites it holds "
            "numbers"
        )
    raise CompositeFLError(
        f"column '{name}' holds text or categories, such as '{words}'; ", remedy="code it"
    )


def text_example(series: "pd.Series") -> str | None:
    """A value that is no number, or None where all are numbers, yes/no values or missing."""
    import pandas as pd

    if pd.api.types.is_numeric_dtype(series) and not pd.api.types.is_complex_dtype(series):
        return None  # bool is numeric as well
    values = series.dropna()
    if values.map(lambda v: isinstance(v, (bool, np.bool_))).all():
        return None
    words = values[pd.to_numeric(values.astype(str), errors="coerce").isna()]
    return str((words if len(words) else values).iloc[0])


def numbers(frame: "pd.DataFrame", names: Sequence[str]) -> "pd.DataFrame":
    """Columns as float64, NaN where a value is missing."""
    return frame[list(names)].astype("float64")


def number_column(frames: Frames, name: str, what: str) -> np.ndarray:
    """One column of finite numbers over all sites. what: for errors."""
    found = []
    for where, frame in frames.items():
        series = tables.column(frame, name, file=where)
        words = text_example(series)
        if words is not None:
            raise CompositeFLError(
                f"{where}: column '{name}', {what}, holds text, such as '{words}'; it must hold "
                "numbers"
            )
        found.append(series.to_numpy(np.float64))
    return np.concatenate(found)


def class_column(frames: Frames, name: str) -> np.ndarray:
    """One column of labels over all sites: words, whole numbers or yes/no values, of one kind."""
    columns = {where: tables.column(frame, name, file=where) for where, frame in frames.items()}
    words = {where: text_example(series) for where, series in columns.items()}
    text = {where: example for where, example in words.items() if example is not None}
    if text and len(text) < len(columns):
        where, example = next(iter(text.items()))
        other = next(w for w in columns if w not in text)
        raise CompositeFLError(
            f"{where}: the target '{name}' holds text, such as '{example}'; at {other} it holds "
            f"numbers, such as {columns[other].iloc[0]}"
        )
    if text:
        return np.concatenate([series.astype(str).to_numpy(str) for series in columns.values()])
    if all(series.dtype.kind == "b" for series in columns.values()):
        return np.concatenate([series.to_numpy(bool) for series in columns.values()])
    values = np.concatenate([series.to_numpy(np.float64) for series in columns.values()])
    whole = (values == np.rint(values)) & (np.abs(values) <= LARGEST)
    if not whole.all():
        raise CompositeFLError(
            f"the target '{name}' holds numbers such as {values[~whole][0]:g}, not classes: words "
            f"or whole numbers up to {LARGEST}"
        )
    return values.astype(np.int64)
