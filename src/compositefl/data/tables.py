"""Tables of the user: CSV, Parquet and NPZ files as features, targets and labels.

Every error names the file and the columns, and is one line.
"""

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.core.npz import UNREADABLE, one_line, read_npz

if TYPE_CHECKING:
    import pandas as pd

Label: TypeAlias = str | float  # a class as a table has it: a word or a number

SUFFIXES = (".csv", ".csv.gz", ".parquet", ".npz")
LISTED = 12  # names of columns among which a user may look for the right one
SHOWN = 5  # columns that an error names before it says how many more there are


def read_table(path: str | Path) -> "pd.DataFrame":
    """The rows of a CSV, Parquet or NPZ file; a matrix "x" of an NPZ has columns x[0], x[1], ..."""
    path = Path(path)
    if not path.is_file():
        raise CompositeFLError(f"{path} is not a file")
    if not path.name.lower().endswith(SUFFIXES):
        raise CompositeFLError(f"{path} must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not path.stat().st_size:
        raise CompositeFLError(f"{path} is empty: it has 0 bytes")
    frame = _read(path)
    if frame.empty:
        raise CompositeFLError(f"{path} has no rows")
    names = frame.columns if path.suffix.lower() in (".npz", ".parquet") else _header(path)
    repeated = names[names.duplicated()].unique()
    if len(repeated):
        occur = "occurs" if len(repeated) == 1 else "occur"
        raise CompositeFLError(f"{path}: {list_columns(repeated)} {occur} twice")
    return frame


def _read(path: Path) -> "pd.DataFrame":
    import pandas as pd

    try:
        if path.suffix.lower() == ".npz":
            return _read_npz(path)
        return pd.read_parquet(path) if path.suffix.lower() == ".parquet" else pd.read_csv(path)
    except ImportError:
        raise CompositeFLError(f"{path}: Parquet files need pip install pyarrow") from None
    except CompositeFLError:
        raise
    except UNREADABLE as error:
        # pyarrow's error for a damaged file is an OSError, pandas' a ValueError
        raise CompositeFLError(f"{path} cannot be read: {one_line(error)}") from error


def _header(path: Path) -> "pd.Index[Any]":
    """The names in the first line of a CSV file; reading it, pandas calls a second "a" "a.1"."""
    import pandas as pd

    first = pd.read_csv(path, header=None, nrows=1, dtype=str)
    return pd.Index(first.iloc[0].dropna())


def _read_npz(path: Path) -> "pd.DataFrame":
    import pandas as pd

    columns: dict[str, np.ndarray] = {}
    arrays = read_npz(path)
    lengths = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise CompositeFLError(f"{path}: its arrays have different numbers of rows: {lengths}")
    for name, array in arrays.items():
        if array.ndim not in (1, 2):
            raise CompositeFLError(
                f"{path}: the array '{name}' has shape {array.shape}; a table has rows and columns"
            )
        if array.ndim == 1:
            columns[name] = array
        else:
            columns |= {f"{name}[{i}]": array[:, i] for i in range(array.shape[1])}
    return pd.DataFrame(columns)


def column(frame: "pd.DataFrame", name: str, *, file: str | Path = "the table") -> "pd.Series":
    """A column without missing or infinite values, or an error that names file and column."""
    require_column(frame, name, file=file)
    missing = int(frame[name].isna().sum())
    if missing:
        rows = "row" if missing == 1 else "rows"
        raise CompositeFLError(f"{file}: column '{name}' has no value in {missing} {rows}")
    _refuse_infinite(frame[name], name, file)
    return frame[name]


def require_column(frame: "pd.DataFrame", name: str, *, file: str | Path = "the table") -> None:
    """Refuse a name that is no column, with the nearest ones that are."""
    if name not in frame.columns:
        columns = [str(c) for c in frame.columns]
        near = difflib.get_close_matches(name, columns, n=LISTED, cutoff=0.5)
        shown = columns if len(columns) <= LISTED else near
        error = unknown_name("column", name, shown) if shown else f"there is no column '{name}'"
        raise CompositeFLError(f"{file}: {error}")


def features_and_target(
    frame: "pd.DataFrame",
    target: str,
    features: Sequence[str] | None = None,
    *,
    drop: Sequence[str] = (),
    file: str | Path = "the table",
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """(x, y, names of the features): x float64 of shape (rows, features), y as it stands.

    features: the columns of x; by default all but the target and those in `drop`. Text, categories,
    dates, missing and infinite values among them are refused.
    """
    y = column(frame, target, file=file)
    for name in drop:
        require_column(frame, name, file=file)
    if features is None:
        features = [str(c) for c in frame.columns if c != target and c not in drop]
        unnamed = [name for name in features if name.startswith("Unnamed: ")]  # as pandas says
        if unnamed:
            raise CompositeFLError(
                f"{file}: '{unnamed[0]}' is a column without a name; name it, ", remedy="drop it"
            )
    if not features:
        raise CompositeFLError(f"{file} has no columns besides '{target}'")
    absent = [name for name in features if name not in frame.columns]
    if absent:
        raise CompositeFLError(f"{file} lacks {list_columns(absent)}")
    chosen = frame[list(features)]
    _refuse_text(chosen, file)
    _refuse_missing(chosen, file)
    x = chosen.to_numpy(np.float64)
    infinite = np.isinf(x).any(axis=0)
    if infinite.any():
        names = [name for name, found in zip(features, infinite, strict=True) if found]
        raise CompositeFLError(
            f"{file}: infinite values in {list_columns(names)}; only finite numbers are allowed"
        )
    return x, y.to_numpy(), list(features)


def class_labels(
    y: np.ndarray, known: Sequence[Label] | None = None, *, file: str | Path = "the table"
) -> tuple[np.ndarray, list[Label]]:
    """(labels 0, 1, ... as int32, the classes they stand for, in order).

    known: the classes of the training data; a value of y that is none of them is refused.
    """
    whole = np.isfinite(y) & (y == np.rint(y)) if y.dtype.kind == "f" else np.ones(len(y), bool)
    if not whole.all():
        raise CompositeFLError(
            f"{file}: the target holds numbers such as {y[~whole][0]}, not classes: words or whole "
            "numbers"
        )
    classes = sorted(set(y.tolist()), key=_order) if known is None else list(known)
    if not classes:
        raise CompositeFLError(f"{file}: the target holds nothing; it needs 2 classes")
    if len(classes) < 2:
        raise CompositeFLError(f"{file}: the target holds {classes[0]!r} alone; it needs 2 classes")
    number = {value: i for i, value in enumerate(classes)}
    unknown = sorted({value for value in y.tolist() if value not in number}, key=_order)
    if unknown:
        raise CompositeFLError(
            f"{file}: the target holds {unknown[0]!r}, which the training data does not have"
        )
    return np.array([number[value] for value in y.tolist()], np.int32), classes


def site_rows(
    frame: "pd.DataFrame", site: str, *, file: str | Path = "the table"
) -> dict[str, np.ndarray]:
    """The rows of each site, sites in the order of their names."""
    sites = column(frame, site, file=file).to_numpy()
    return {
        str(name): np.flatnonzero(sites == name) for name in sorted(set(sites.tolist()), key=_order)
    }


def _order(value: Label) -> tuple[bool, Label]:
    """Numbers in their order, then words in theirs."""
    return isinstance(value, str), value


def _refuse_text(frame: "pd.DataFrame", file: str | Path) -> None:
    import pandas as pd

    found = []
    for name in frame.columns:
        series = frame[name]
        plain = pd.api.types.is_numeric_dtype(series) or pd.api.types.is_bool_dtype(series)
        if plain and not pd.api.types.is_complex_dtype(series):
            continue
        values = series.dropna()
        words = values[pd.to_numeric(values.astype(str), errors="coerce").isna()]
        example = words if len(words) else values
        found.append(f"'{name}'" + (f" (such as '{example.iloc[0]}')" if len(example) else ""))
    if found:
        raise CompositeFLError(
            f"{file}: features must be numbers, but {list_columns(found, quote=False)} "
            f"{'hold' if len(found) > 1 else 'holds'} text or categories; ",
            remedy="code them",
        )


def _refuse_infinite(series: "pd.Series", name: str, file: str | Path) -> None:
    import pandas as pd

    if not pd.api.types.is_float_dtype(series):
        return
    values = series.to_numpy(np.float64)
    infinite = values[np.isinf(values)]
    if len(infinite):
        rows = "1 row" if len(infinite) == 1 else f"{len(infinite)} rows"
        raise CompositeFLError(
            f"{file}: column '{name}' holds {infinite[0]} in {rows}; only finite numbers are "
            "allowed"
        )


def _refuse_missing(frame: "pd.DataFrame", file: str | Path) -> None:
    counts = frame.isna().sum()
    found = [
        f"'{name}' ({count} row{'s' if count > 1 else ''})"
        for name, count in counts.items()
        if count
    ]
    if found:
        raise CompositeFLError(
            f"{file}: missing values in {list_columns(found, quote=False)}; fill them in, or leave "
            "out these rows or columns"
        )


def list_columns(names: Sequence[object], quote: bool = True) -> str:
    """Names of columns in a sentence, the first five of many."""
    shown = [f"'{name}'" if quote else str(name) for name in names[:SHOWN]]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return f"{'column' if len(names) == 1 else 'columns'} {', '.join(shown)}{more}"
