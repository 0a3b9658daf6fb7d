"""From what users hand in to sites: tables, labels, weights, each checked with a one-line error."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from compositefl.core.errors import CompositeFLError, wrong_value
from compositefl.glm.families import Family
from compositefl.glm.site import Site

Array = np.ndarray
# What users hand in as scikit-learn takes it, checked inside: numbers or labels in an array, a list
# or a column of pandas; a table (X) also as a DataFrame or a sparse matrix. One number for all is
# fine where each sample or feature has one.
ArrayLike: TypeAlias = Any
SMALLEST, LARGEST = 1e-140, 1e140  # sizes whose squares can be summed


def check_columns(X: ArrayLike) -> None:
    """Refuse dates, and a DataFrame with columns that are no numbers, and say which."""
    types = getattr(X, "dtypes", None)
    first = np.asarray(X[0]) if isinstance(X, (list, tuple)) and X else X
    if getattr(getattr(first, "dtype", None), "kind", None) in ("m", "M"):
        raise CompositeFLError(
            "X holds dates or durations; make numbers of them, such as days", parameter="X"
        )
    if types is None or not hasattr(X, "columns"):
        return
    pairs = zip(X.columns, types, strict=True)  # of pandas or polars
    wrong = [str(name) for name, kind in pairs if not _is_number(kind)]
    if wrong:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise CompositeFLError(
            f"X has columns that are no numbers: {', '.join(wrong[:5])}{more}; drop or encode them "
            "(pandas.get_dummies makes a column per category)",
            parameter="X",
        )


def _is_number(kind: Any) -> bool:
    """Whether a column of this type of pandas or polars holds numbers or booleans."""
    if hasattr(kind, "is_numeric"):  # polars
        return bool(kind.is_numeric()) or str(kind) == "Boolean"
    return getattr(kind, "kind", "O") in "biuf"


def missing(values: Array) -> Array:
    """Where there is NaN, None or what pandas has for them."""
    if values.dtype.kind in "fcmM":
        return np.isnan(values)
    if values.dtype.kind != "O":
        return np.zeros(values.shape, bool)
    return np.array([_is_missing(value) for value in values.ravel()], bool)


def _is_missing(value: object) -> bool:
    try:
        return value is None or bool(value != value)
    except TypeError:  # pandas.NA answers neither yes nor no
        return True


def site_rows(sites: ArrayLike | None, n: int) -> dict[str, Array]:
    """The rows of each site; one site "all" where none are named."""
    if sites is None:
        return {"all": np.arange(n)}
    labels = np.asarray(sites)
    if labels.ndim != 1 or len(labels) != n:
        raise CompositeFLError(
            f"sites has shape {labels.shape}; it must name a site for each of the {n} samples"
        )
    words = np.char.strip(labels.astype(str))
    nameless = missing(labels) | (words == "") | np.isin(words, ("None", "<NA>", "NaT"))
    if nameless.any():
        raise CompositeFLError(
            f"sites names no site for {nameless.sum()} samples, first sample "
            f"{int(np.argmax(nameless))}; every sample needs a site"
        )
    return {str(name): np.flatnonzero(words == name) for name in np.unique(words)}


def column_names(names: Sequence[str] | None, p: int) -> list[str]:
    """The features' names, or x0, x1, ..."""
    return [f"x{i}" for i in range(p)] if names is None else [str(name) for name in names]


def refuse_missing(
    X: ArrayLike, rows: dict[str, Array], names: Sequence[str], impute: str | None
) -> None:
    """Name the site and the column of missing or infinite values."""
    values = X.data if sparse.issparse(X) else X
    if np.isfinite(values).all():
        return
    bad: np.ufunc
    if np.isinf(values).any():
        bad, what = np.isinf, "infinite values"
    elif impute is None:
        bad, what = np.isnan, "NaN, missing values,"
    elif sparse.issparse(X):
        raise CompositeFLError(
            "X is sparse and has NaN; impute='mean' needs a dense table", parameter="X"
        )
    else:
        return
    dense = X.toarray() if sparse.issparse(X) else X
    for site, mine in rows.items():
        counts = bad(dense[mine]).sum(axis=0)
        if counts.any():
            at = int(np.argmax(counts > 0))
            filled, count = bad is np.isnan, f"{counts[at]} row{'s' if counts[at] > 1 else ''}"
            raise CompositeFLError(
                f"X has {what} in column '{names[at]}' of site '{site}' ({count}); "
                + ("" if filled else "only finite numbers are allowed"),
                parameter="X",
                remedy="impute" if filled else None,
            )


def check_length(y: Array, n: int) -> None:
    """Refuse targets that are not one for each sample."""
    if len(y) != n:
        raise CompositeFLError(
            f"X has {n} samples and y has {len(y)}: inconsistent numbers", parameter="y"
        )


def check_sizes(X: ArrayLike, y: Array | None, names: Sequence[str]) -> None:
    """Refuse columns whose squares overflow or vanish: they would pass for constant ones."""
    if sparse.issparse(X):
        sizes = np.ravel(abs(X).max(axis=0).toarray())
    else:
        sizes = np.fmax(np.fmax.reduce(X, axis=0), -np.fmin.reduce(X, axis=0))
    columns = [(f"column '{name}' of X", size) for name, size in zip(names, sizes, strict=True)]
    for what, size in columns if y is None else [*columns, ("y", np.abs(y).max())]:
        if size > LARGEST or 0 < size < SMALLEST:
            raise CompositeFLError(
                f"{what} has numbers up to {size:g} in size; a fit takes {SMALLEST:g} to "
                f"{LARGEST:g}: choose another unit",
                parameter="y" if what == "y" else "X",
            )


def as_numbers(name: str, value: ArrayLike) -> Array:
    """Numbers in an array; words and dates are refused."""
    try:
        if np.asarray(value).dtype.kind in "mM":
            raise TypeError
        return np.asarray(value, float)
    except (TypeError, ValueError):
        raise CompositeFLError(
            f"{name} has values that are no numbers", parameter=name, value=value
        ) from None


def per_feature(name: str, value: ArrayLike | None, p: int) -> Array | None:
    """A number for every feature, or None."""
    if value is None:
        return None
    array = as_numbers(name, value)
    if array.shape not in ((), (p,)):
        raise CompositeFLError(
            f"{name} has shape {array.shape}; it must have {p} numbers, or one",
            parameter=name,
            value=value,
        )
    if np.isnan(array).any():
        raise wrong_value(name, value, "numbers")
    return np.broadcast_to(array, (p,)).copy()


def per_sample(name: str, value: ArrayLike | None, n: int) -> Array | None:
    """A finite number for every sample, or None."""
    if value is None:
        return None
    array = as_numbers(name, value)
    if array.ndim == 0:
        array = np.full(n, float(array))
    if array.shape != (n,):
        raise CompositeFLError(
            f"{name} has shape {array.shape}; it must have {n} numbers", parameter=name, value=value
        )
    if not np.isfinite(array).all():
        raise CompositeFLError(
            f"{name} has values that are no finite numbers", parameter=name, value=value
        )
    if np.abs(array).max(initial=0.0) > LARGEST:
        raise CompositeFLError(
            f"{name} has numbers beyond {LARGEST:g}", parameter=name, value=value
        )
    return array


def check_weights(weight: Array | None) -> Array | None:
    """Refuse negative sample weights, and weights that are all zero."""
    if weight is not None and ((weight < 0).any() or not weight.any()):
        raise CompositeFLError(
            "sample_weight must not be negative, and not zero for all samples",
            parameter="sample_weight",
            value=weight,
        )
    return weight


def make_sites(
    family: Family,
    X: ArrayLike,
    y: Array,
    rows: dict[str, Array],
    weight: Array | None,
    offset: Array | None,
    classes: int,
) -> list[Site]:
    """Each site with its own rows."""

    def cut(values: Array | None, mine: Array) -> Array | None:
        return None if values is None else values[mine]

    return [
        Site(
            name,
            family,
            X[mine],
            y[mine],
            cut(weight, mine),
            cut(offset, mine),
            classes=classes,
        )
        for name, mine in rows.items()
    ]


def _has_dates(values: Array) -> bool:
    """Whether there is a date, a time or a duration among objects."""
    return values.dtype.kind == "O" and any(
        isinstance(value, (date, timedelta, np.datetime64, np.timedelta64)) for value in values
    )


def survival_response(y: ArrayLike) -> Array:
    """(time, event) from scikit-survival's structured array, a DataFrame, or two columns."""
    if hasattr(y, "columns") and hasattr(y, "to_numpy"):
        names = [str(c).lower() for c in y.columns]
        pairs = dict(zip(names, (y[c].to_numpy() for c in y.columns), strict=True))
        return _time_and_event(list(pairs.items()))
    array = np.asarray(y)
    if array.dtype.names:
        return _time_and_event([(str(name), array[name]) for name in array.dtype.names])
    if array.ndim == 2 and array.shape[1] == 2:
        return _checked_times(array[:, 0], array[:, 1])
    raise CompositeFLError(
        "y must be a structured array with an event (bool) and a time, as scikit-survival's "
        f"Surv.from_arrays makes it, or two columns, time and event; it has shape {array.shape}",
        parameter="y",
    )


def _time_and_event(fields: list[tuple[str, Array]]) -> Array:
    if len(fields) != 2:
        raise CompositeFLError(
            f"y has {len(fields)} fields; it must have two, event and time", parameter="y"
        )
    flags = [i for i, (_, values) in enumerate(fields) if values.dtype.kind == "b"]
    if not flags:
        flags = [i for i, (name, _) in enumerate(fields) if "event" in name or "status" in name]
    if len(flags) != 1:
        raise CompositeFLError(
            "y must have one field of type bool, the event, and one of times", parameter="y"
        )
    event, time = fields[flags[0]][1], fields[1 - flags[0]][1]
    return _checked_times(time, event)


def _checked_times(time: Array, event: Array) -> Array:
    if time.dtype.kind in "mM" or _has_dates(time):
        raise CompositeFLError(
            "y has times that are dates or durations; make numbers of them, such as days",
            parameter="y",
        )
    try:
        time = time.astype(float)
    except (TypeError, ValueError):
        raise CompositeFLError("y has times that are no numbers", parameter="y") from None
    if not np.isfinite(time).all() or (time < 0).any():
        raise CompositeFLError("y has times that are negative, infinite or missing", parameter="y")
    if missing(event).any():
        raise CompositeFLError("y has events that are missing", parameter="y")
    if not np.isin(event, (0, 1)).all():
        raise CompositeFLError("y has events other than 0 and 1", parameter="y")
    if not event.any():
        raise CompositeFLError("y has no event: all times are censored", parameter="y")
    return np.column_stack([time, event.astype(float)])
