"""What `compositefl fit` shows and writes: tables, the model, the picture and the page."""

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

import compositefl as cfl
from compositefl.cli.fit_options import FitSettings
from compositefl.cli.fit_tables import ROLES, Tables
from compositefl.cli.folder import MARK
from compositefl.cli.tables import TERMINAL, print_table
from compositefl.cli.wording import plain
from compositefl.linear_model.base import GeneralizedLinearModel
from compositefl.linear_model.files import PER_DEVIATION, coefficients, said, write_fit
from compositefl.report import page
from compositefl.report.overview import data_of_clients, write_report

if TYPE_CHECKING:
    import pandas as pd

ROWS = 40  # most coefficients on a terminal


def show(model: GeneralizedLinearModel) -> None:
    """Print the coefficients, at 80 columns."""
    made = model.summary()
    frame = coefficients(model)
    print(plain(made.title).replace("; ", ";\n", 1) + "\n")
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


def _short(text: object, room: int) -> str:
    text = plain(text)
    return text if len(text) <= room else text[: room - 1] + "…"


def write(
    folder: Path,
    name: str,
    settings: FitSettings,
    family: str,
    model: GeneralizedLinearModel,
    data: Tables,
) -> None:
    """All files of a fit."""
    roles = {role: getattr(settings, role) for role in ROLES if getattr(settings, role)}
    codes = data.y[:, 0] if family == "cox" else data.y
    if codes.dtype.kind not in "fi":
        codes = np.unique(codes, return_inverse=True)[1]
    clients = [(x, codes[data.sites == s]) for s in data.names for x, _ in [data.of_site(s)]]
    config = {
        MARK: cfl.__version__,
        "command": shlex.join(["compositefl", "fit", name, *settings.arguments()]),
        "title": name,
        "options": asdict(settings),
        "data": {"features": data.features, "sites": data.names, **roles},
        "clients": data_of_clients(
            clients,
            names=data.names,
            classes=[str(c) for c in getattr(model, "classes_", [])] or None,
            features=data.features,
        ),
    }
    title = f"{name}: {family}, {len(data.names)} sites"
    about = {"name": name, **roles}
    if data.categories:
        about["categories"] = data.categories
    write_fit(folder, model, title, about, config)
    if page.available():
        write_report([folder], folder / "report.html")
