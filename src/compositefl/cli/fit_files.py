"""What `compositefl fit` shows and writes: tables, the model, the picture and the page."""

import json
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

import compositefl as cfl
from compositefl.cli.fit_options import FitSettings
from compositefl.cli.fit_tables import ROLES, Tables
from compositefl.cli.folder import MARK
from compositefl.cli.tables import TERMINAL, print_table
from compositefl.linear_model import save_model
from compositefl.report import fits, page
from compositefl.report.overview import data_of_clients

if TYPE_CHECKING:
    import pandas as pd

ROWS = 40  # most coefficients on a terminal
PER_DEVIATION = "coefficient x deviation"
SCORES = {
    "auc": "AUC",
    "c_index": "C-index",
    "mae": "mean absolute error",
    "mse": "mean squared error",
    "r2": "R²",
}


def show(model: Any) -> None:
    """Print the coefficients, at 80 columns."""
    made = model.summary()
    frame = coefficients(model)
    print(made.title.replace("; ", ";\n", 1) + "\n")
    is_slope = frame["name"] != "(intercept)"
    there = frame[(frame["coefficient"] != 0) | ~is_slope]
    shown = there
    if len(there) > ROWS:
        first = -1.0 if "class" in frame else np.inf  # of many classes intercepts come last
        size = there[PER_DEVIATION].abs().where(is_slope, first)
        shown = there.loc[size.sort_values(ascending=False).index[:ROWS]].sort_index()
    print_table(_table(shown), TERMINAL)
    zeros = len(frame) - len(there)
    notes = []
    if len(shown) < len(there):
        notes.append(f"The {ROWS} largest, counted per standard deviation of the features.")
    if zeros:
        notes.append(f"{zeros} further coefficient{'s are' if zeros > 1 else ' is'} zero.")
    for line in [*notes, *said(model)]:
        print(line)


def coefficients(model: Any) -> "pd.DataFrame":
    """The summary's table with one more column: coefficients per deviation of their features."""
    frame = model.summary().frame.copy()
    spread = dict(zip(model._names, model.deviations_, strict=True))
    at = list(frame.columns).index("coefficient") + 1
    frame.insert(at, PER_DEVIATION, frame["coefficient"] * frame["name"].map(spread))
    return frame


def said(model: Any) -> list[str]:
    """What the numbers say, a line each."""
    if not hasattr(model, "alpha_"):
        if model._inference is None:
            return ["Standard errors and intervals: only for fits without a penalty."]
        return []
    score = score_name(model)
    best, one = (
        int(np.argmin(np.abs(model.alphas_ - a))) for a in (model.alpha_, model.alpha_1se_)
    )
    return [
        f"alpha      {model.alpha_:.4g}: {score} {model.cv_mean_[best]:.4g} "
        f"(standard error {model.cv_error_[best]:.2g}), {_nonzero(model, best)}",
        f"alpha_1se  {model.alpha_1se_:.4g}: {score} {model.cv_mean_[one]:.4g} "
        f"(standard error {model.cv_error_[one]:.2g}), {_nonzero(model, one)}",
        *([f"l1_ratio   {model.l1_ratio_:g}"] if np.ndim(model.l1_ratio) else []),
        f"chosen: {'alpha' if model.select == 'best' else 'alpha_1se'} (--select best or 1se)",
    ]


def _nonzero(model: Any, at: int) -> str:
    count = int(np.sum(model.coef_path_[..., at] != 0))
    return f"{count} coefficient{'s' * (count != 1)}"


def score_name(model: Any) -> str:
    """The score of the cross-validation in words."""
    return SCORES.get(model.scoring, model.scoring)


def _table(frame: "pd.DataFrame") -> Table:
    """At most 80 columns wide; names give way."""
    ratio = next(
        (c for c in ("odds ratio", "rate ratio", "hazard ratio", "ratio of means") if c in frame),
        "",
    )
    cells: dict[str, list[str]] = {}
    if "class" in frame:
        cells["class"] = [_short(v, 12) for v in frame["class"]]
    names = list(frame["name"])
    cells["coefficient"] = [f"{v:.5g}" for v in frame["coefficient"]]
    if "std. error" in frame:
        cells["std. error"] = [f"{v:.3g}" for v in frame["std. error"]]
        cells["p-value"] = [f"{v:.2g}" for v in frame["p-value"]]
    if ratio:
        cells[ratio] = [f"{v:.4g}" for v in frame[ratio]]
    low, high = (f"{ratio} lower", f"{ratio} upper") if ratio else ("lower 95 %", "upper 95 %")
    if low in frame:
        both = zip(frame[low], frame[high], strict=True)
        cells["95 % interval"] = [f"{a:.3g}, {b:.3g}" for a, b in both]
    taken = sum(max(map(len, [head, *column])) + 2 for head, column in cells.items())
    room = max(12, TERMINAL - 4 - taken)
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    if "class" in cells:
        table.add_column("class", no_wrap=True)
    table.add_column("name", no_wrap=True)
    rest = {head: column for head, column in cells.items() if head != "class"}
    for head in rest:
        table.add_column(head, justify="right", no_wrap=True)
    for i, name in enumerate(names):
        first = [Text(cells["class"][i])] if "class" in cells else []
        table.add_row(*first, Text(_short(name, room)), *(column[i] for column in rest.values()))
    return table


def _short(text: Any, room: int) -> str:
    text = str(text)
    return text if len(text) <= room else text[: room - 1] + "…"


def write(
    folder: Path, name: str, settings: FitSettings, family: str, model: Any, data: Tables
) -> None:
    """All files of a fit."""
    frame = coefficients(model)
    frame.to_csv(folder / "coefficients.csv", index=False)
    roles = {role: getattr(settings, role) for role in ROLES if getattr(settings, role)}
    save_model(model, folder / "model.json", {"name": name, **roles})
    command = shlex.join(["compositefl", "fit", name, *settings.arguments()])
    config = {
        MARK: cfl.__version__,
        "command": command,
        "title": name,
        "options": asdict(settings),
        "data": {"features": data.features, "sites": data.names, **roles},
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    path = _path(model) if hasattr(model, "alphas_") else None
    if path is not None:
        _path_table(model, path).to_csv(folder / "path.csv", index=False)
        fits.plot(path, folder / "plot.png", title=f"{name}: {family}, {len(data.names)} sites")
    if page.available():
        label = frame["name"] if "class" not in frame else frame["class"] + ": " + frame["name"]
        slopes = frame["name"] != "(intercept)"
        size = dict(zip(label[slopes], frame[PER_DEVIATION][slopes].astype(float), strict=True))
        codes = data.y[:, 0] if family == "cox" else data.y
        if codes.dtype.kind not in "fi":
            codes = np.unique(codes, return_inverse=True)[1]
        clients = [(x, codes[data.sites == s]) for s in data.names for x, _ in [data.of_site(s)]]
        made = fits.fit_sections(
            size,
            [model.summary().title, *said(model)],
            path=path,
            unit="coefficient per standard deviation of the feature",
            clients=data_of_clients(
                clients,
                names=data.names,
                classes=[str(c) for c in getattr(model, "classes_", [])] or None,
                features=data.features,
            ),
            settings=asdict(settings),
            command=command,
        )
        page.write(folder / "report.html", name, made)


def _path(model: Any) -> fits.FitPath:
    """Coefficients of the path per deviation where the penalty counts them so."""
    unit = model.deviations_ if model.standardize else np.ones(len(model._names))
    values = {}
    several = model.coef_path_.ndim == 3
    for c, table in enumerate(model.coef_path_ if several else [model.coef_path_]):
        for j, feature in enumerate(model._names):
            label = f"{model.classes_[c]}: {feature}" if several else feature
            values[label] = table[j] * unit[j]
    what = "per standard deviation of the feature" if model.standardize else "in original units"
    return fits.FitPath(
        model.alphas_,
        values,
        model.cv_mean_,
        model.cv_error_,
        score_name(model),
        {"alpha": model.alpha_, "alpha_1se": model.alpha_1se_},
        f"coefficients {what}",
    )


def _path_table(model: Any, path: fits.FitPath) -> "pd.DataFrame":
    """A row an alpha: score, number of coefficients, and these in original units."""
    import pandas as pd

    b = model.coef_path_.reshape(-1, len(model.alphas_))
    rows = {
        "alpha": model.alphas_,
        model.scoring: model.cv_mean_,
        "standard error": model.cv_error_,
        "not zero": path.counts,
    }
    return pd.DataFrame(rows | dict(zip(path.values, b, strict=True)))
