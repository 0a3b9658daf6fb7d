"""A site's table as the federation means it: features by name, labels of the right kind.

Whatever is wrong is told in full to the site's operator and by its kind to the coordinator: names
of a site's columns, and values in them, are nobody else's business.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.data import Samples
from compositefl.data.categories import coded, coded_names
from compositefl.data.tables import class_labels, features_and_target
from compositefl.deployment.entries import DataTable
from compositefl.deployment.transport import PrivateError

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 8  # names that an error lists


def by_name(
    frame: "pd.DataFrame",
    data: DataTable,
    renamed: Mapping[str, str],
    named: Sequence[str] | None,
    classes: int | None,
    where: str,
) -> Samples:
    """x and y of a table, the columns in the federation's order, whatever the table's is.

    renamed: the site's own names of some of the federation's. named: the features that the site's
    file lists, if it lists any. classes: of the model's labels, None for numbers.
    """
    _check_names(data, renamed, named, where)
    frame = _with_codes(frame, data, renamed, where)
    own = [renamed.get(name, name) for name in data.features]
    target = renamed.get(data.target, data.target)
    _require((*own, target), frame, where)
    try:
        x, y, _ = features_and_target(frame, target, own, file=where)
    except CompositeFLError as error:
        raise PrivateError(str(error), _kind_of(frame[own])) from error
    for name, kind in data.kinds.items():
        values = x[:, data.features.index(name)]
        if not _is(kind, values):
            raise PrivateError(
                f"{where}: {name} must be {kind}, it has {values.min():g} to {values.max():g}",
                f"a column that the federation declares as {kind} is not",
            )
    return Samples(x, labels(y, data.labels, classes, f"{where}: {target}"))


class Columns(NamedTuple):
    """Columns of a table as arrays: features, target, and others by the federation's names."""

    x: np.ndarray
    y: np.ndarray
    more: dict[str, np.ndarray]


def with_others(
    frame: "pd.DataFrame",
    data: DataTable,
    others: Sequence[str],
    renamed: Mapping[str, str],
    where: str,
    *,
    missing: bool,
) -> Columns:
    """Features, target and other columns, such as weights.

    missing: features may have gaps, which become NaN.
    """
    frame = _with_codes(frame, data, renamed, where)
    own = {name: renamed.get(name, name) for name in (*data.features, *others)}
    _require(own.values(), frame, where)
    features = [own[name] for name in data.features]
    gaps = frame[features].isna().to_numpy() if missing else None
    if gaps is not None and gaps.any():
        numbers = frame[features].select_dtypes("number").columns
        frame = frame.assign(**{name: frame[name].fillna(0) for name in numbers})
    known = {name: name_here for name, name_here in renamed.items() if name not in others}
    samples = by_name(frame, data, known, None, len(data.labels) or None, where)
    x = np.where(gaps, np.nan, samples.x) if gaps is not None and gaps.any() else samples.x
    more = {name: numbers_of(frame[own[name]], f"{where}: {own[name]}") for name in others}
    return Columns(x, np.asarray(samples.y, float), more)


def _with_codes(
    frame: "pd.DataFrame", data: DataTable, renamed: Mapping[str, str], where: str
) -> "pd.DataFrame":
    """The table with columns of 0 and 1 for its categories; one that has these already stays."""
    own = {
        renamed.get(name, name): name
        for name in data.categories
        if not set(coded_names([name], data.categories)) <= set(frame.columns)
    }
    _require(own, frame, where)
    others = [name for name in frame.columns if name in own or name not in own.values()]
    try:
        values = {name: data.categories[name] for name in own.values()}
        return coded(frame[others].rename(columns=own), values, where)
    except CompositeFLError as error:
        kind = "a column of categories holds values that the federation does not name"
        raise PrivateError(str(error), kind) from error


def _require(names: Collection[str], frame: "pd.DataFrame", where: str) -> None:
    if absent := [name for name in names if name not in frame.columns]:
        raise PrivateError(
            f"{where} lacks {_listed(absent)}; [columns] in site.toml says what a column is called "
            "here",
            f"its data lack {len(absent)} of the {len(names)} columns that the federation names",
        )


def numbers_of(column: "pd.Series", where: str) -> np.ndarray:
    """A column of finite numbers."""
    kind = getattr(column.dtype, "kind", "O")
    values = column.to_numpy(float) if kind in "biuf" else np.array([np.nan])
    if not np.isfinite(values).all():
        raise PrivateError(f"{where} must hold finite numbers", "a column holds no finite numbers")
    return values


def labels(
    y: np.ndarray, known: Sequence[str] | None, classes: int | None, where: str
) -> np.ndarray:
    """Targets: labels as whole numbers where the model has classes, numbers elsewhere."""
    if known:
        try:
            return class_labels(np.asarray(y, object), known, file=where)[0]
        except CompositeFLError as error:
            raise PrivateError(str(error), "its labels are not those that are declared") from error
    what = {"f": "floats", "O": "text", "U": "text", "T": "text"}.get(y.dtype.kind, "no numbers")
    if y.dtype.kind in "iub":
        return y.astype(np.int32)
    if classes is None and y.dtype.kind == "f":
        if not np.isfinite(y).all():
            raise PrivateError(f"{where} has missing or infinite values", "its targets have gaps")
        return y.astype(np.float64)
    wanted = "numbers" if classes is None else f"whole numbers from 0 to {classes - 1}"
    hint = "" if classes is None else ', or be named by the federation: labels = ["no", "yes"]'
    raise PrivateError(
        f"{where} holds {what}, such as {str(y.flat[0])!r}; it must hold {wanted}{hint}",
        f"its labels are {what}, {wanted} are needed",
    )


def _check_names(
    data: DataTable, renamed: Mapping[str, str], named: Sequence[str] | None, where: str
) -> None:
    codes = set(coded_names(list(data.categories), data.categories))
    features = [*(name for name in data.features if name not in codes), *data.categories]
    known = {*features, data.target}
    if unknown := [name for name in renamed if name not in known]:
        raise PrivateError(
            f"[columns] renames {_listed(unknown)}, which the federation does not name",
            f"its site.toml renames {len(unknown)} columns that the federation does not name",
        )
    if named is None:
        return
    wanted = {renamed.get(name, name) for name in features}
    more = [name for name in named if name not in wanted]
    fewer = sorted(wanted - set(named))
    if more or fewer:
        parts = [f"names {_listed(more)}, which the federation does not" if more else ""]
        parts += [f"leaves out {_listed(fewer)}" if fewer else ""]
        raise PrivateError(
            f"{where}: x {' and '.join(filter(None, parts))}; leave x out, or name the "
            "federation's features",
            f"its site.toml names {len(more)} columns that the federation does not and lacks "
            f"{len(fewer)}",
        )


def _kind_of(frame: "pd.DataFrame") -> str:
    """What is wrong with the features, in words that tell nothing of them."""
    words = [name for name in frame.columns if frame[name].dtype.kind not in "iufb"]
    if words:
        return f"{len(words)} of its columns hold text, categories or dates instead of numbers"
    return "its columns have missing or infinite values"


def _listed(names: Sequence[object]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(repr(name) for name in names[:SHOWN]) + more


def _is(kind: str, values: np.ndarray) -> bool:
    """Whether numbers are of a declared kind."""
    if kind == "binary":
        return bool(np.isin(values, (0, 1)).all())
    return kind == "number" or bool((values == np.rint(values)).all())
