"""`compositefl predict`: the rows of a table through a model that `fit` wrote."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compositefl.cli.fit_tables import split
from compositefl.cli.folder import check_writable
from compositefl.cli.wording import about, plain, plain_lines, say
from compositefl.core.errors import CompositeFLError
from compositefl.data import site_tables, tables
from compositefl.data.categories import Categories, checked, coded
from compositefl.linear_model import load_model

if TYPE_CHECKING:
    import pandas as pd


def run_predict(file: Path, data: Path, out: Path | None, keep: list[str], overwrite: bool) -> int:
    """Predict and write; the target, where the table has it, is compared."""
    model: Any = load_model(file)
    if out is not None:
        check_writable("--out", out)
        if out.is_dir():
            raise CompositeFLError(f"--out {out} is a folder; it must be a file")
        if out.exists() and not overwrite:
            raise CompositeFLError(f"--out {out} exists; add --overwrite to replace it")
    where = str(data)
    frame = coded(tables.read_table(data), _categories(model, file), where)
    lacking = [name for name in model._names if name not in frame.columns]
    if lacking:
        raise CompositeFLError(f"{where} lacks {tables.list_columns(lacking)} of the model")
    for name in model._names:
        words = site_tables.text_example(frame[name])
        if words is not None:
            raise CompositeFLError(
                f"{where}: column '{name}' holds text, such as '{words}'; the model needs numbers"
            )
    x = site_tables.numbers(frame, model._names)
    missing = x.columns[x.isna().any()]
    if len(missing) and model.impute != "mean":
        raise CompositeFLError(
            f"{where}: missing values in {tables.list_columns(missing)}; a model fitted with "
            "--impute mean takes them"
        )
    infinite = x.columns[np.isinf(x.to_numpy()).any(axis=0)]
    if len(infinite):
        raise CompositeFLError(
            f"{where}: infinite values in {tables.list_columns(infinite)}; only finite numbers are "
            "allowed"
        )
    offset = _offset(model, frame, where)
    made = predictions(model, x, offset)
    kept = split(keep)
    for name in kept:
        with about("--keep", name):
            tables.require_column(frame, name, file=where)
    for name in reversed(kept):
        made.insert(0, name, frame[name].to_numpy())
    if out is None:
        text = made.to_csv(index=False)
        print(plain_lines(text) if sys.stdout.isatty() else text, end="")
    else:
        out.parent.mkdir(parents=True, exist_ok=True)
        made.to_csv(out, index=False)
        print(f"{len(made):,} rows written to {out}: {', '.join(map(plain, made.columns))}")
    if words := _compared(model, x, frame, offset):
        say(words)
    return 0


def _categories(model: Any, file: Path) -> Categories:
    try:
        return checked(model.about_.get("categories", {}))
    except CompositeFLError as error:
        raise CompositeFLError(f"{file} is a damaged model: {error}") from None


def _offset(model: Any, frame: "pd.DataFrame", where: str) -> np.ndarray | None:
    for role in ("offset", "exposure"):
        name = model.about_.get(role)
        if name is None:
            continue
        if name not in frame.columns:
            raise CompositeFLError(f"{where} lacks column '{name}', the {role} of the model")
        values = site_tables.number_column({where: frame}, name, f"the {role}")
        if role == "exposure" and (values <= 0).any():
            raise CompositeFLError(f"{where}: column '{name}', the exposure, must be above 0")
        return np.log(values) if role == "exposure" else values
    return None


def predictions(model: Any, x: "pd.DataFrame", offset: np.ndarray | None) -> "pd.DataFrame":
    """Classes and probabilities, means, or risk scores and hazard ratios."""
    import pandas as pd

    what = model.about_.get("target", "prediction")
    if hasattr(model, "classes_"):
        chance = model.predict_proba(x, offset)
        columns = {f"predicted {what}": model.predict(x, offset)}
        names = [f"probability {c}" for c in model.classes_]
        return pd.DataFrame(columns | dict(zip(names, chance.T, strict=True)))
    if model.family_name == "cox":
        score = model.predict(x)
        return pd.DataFrame({"risk score": score, "hazard ratio": np.exp(score)})
    return pd.DataFrame({f"predicted {what}": model.predict(x, offset)})


def _compared(
    model: Any, x: "pd.DataFrame", frame: "pd.DataFrame", offset: np.ndarray | None
) -> str:
    """How well the target is met, on the rows that have it; nothing where the table has none."""
    names = [model.about_.get(role) for role in ("target", "time", "event")]
    names = [name for name in names if name]
    if not names or any(name not in frame.columns for name in names):
        return ""
    classes = hasattr(model, "classes_")
    known = np.logical_and.reduce([_usable(frame[name], classes) for name in names])
    if not known.any():
        return f"'{names[0]}' is in the table, but no row can be compared"
    x, frame = x[known], frame[known]
    offset = None if offset is None else offset[known]
    rows = f"on {len(x):,} rows"
    if not known.all():
        rows += f"; left out: {np.sum(~known):,} without a usable value"
    if classes:
        try:  # 1.0 as 1, as in the fit
            labels = site_tables.class_column({"the table": frame}, names[0])
        except CompositeFLError as why:
            return f"'{names[0]}' is not compared: {why}"
        labels = labels.astype(str)
        new = labels[~np.isin(labels, model.classes_.astype(str))]
        if len(new):
            rows += f"; {len(new):,} of them hold a class that the fit did not have, '{new[0]}'"
        share = np.mean(model.predict(x, offset).astype(str) == labels)
        return f"'{names[0]}' is known: accuracy {share:.4f} {rows}"
    y = frame[names].astype(float).to_numpy()
    if len(names) > 1:
        try:
            return f"'{names[0]}' is known: C-index {model.score(x, y):.4f} {rows}"
        except CompositeFLError as why:
            return f"'{names[0]}' is not compared: {why}"
    error = np.sqrt(np.mean((model.predict(x, offset) - y[:, 0]) ** 2))
    return f"'{names[0]}' is known: root mean squared error {error:.4g} {rows}"


def _usable(values: "pd.Series", classes: bool) -> np.ndarray:
    """Which rows hold a class, or a finite number."""
    import pandas as pd

    if classes:
        return values.notna().to_numpy()
    return np.isfinite(pd.to_numeric(values, errors="coerce").to_numpy(float))
