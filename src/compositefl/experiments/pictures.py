"""Drawing shared by the experiments: panels of curves over rounds, and bars."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from compositefl.report.style import styles


def curves(
    table: pd.DataFrame,
    path: Path,
    *,
    panel: Sequence[str],
    line: str,
    y: str = "natural_residual_sq",
    x: str = "round",
    columns: int = 3,
    log: bool = True,
    y_label: str = "",
    x_label: str = "communication rounds",
    title: str = "",
    bottom: float | None = None,
) -> None:
    """One panel for each combination of the columns `panel`, one curve for each value of `line`.

    A curve is the mean over the trials, its band their range. Values on the last axis are squared
    norms by default, hence the logarithmic axis. `bottom` cuts off the first rounds where all
    curves are alike.
    """
    from matplotlib.figure import Figure

    groups = list(table.groupby(list(panel), sort=False)) if panel else [((), table)]
    columns = min(columns, len(groups))
    rows = -(-len(groups) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.9 * rows + 0.5), dpi=100, layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    looks = styles(map(str, table[line]))
    for axis, (values, part) in zip(axes, groups, strict=False):
        for name, some in part.groupby(line, sort=False):
            by = some.groupby(x)[y]
            mean = by.mean()
            look = looks[str(name)]
            style: dict[str, Any] = {"color": look.colour, "linestyle": look.dash}
            label = str(name) if isinstance(name, str) else f"{line} = {name}"
            axis.plot(mean.index, mean, label=label, **style)
            if some["trial"].nunique() > 1:
                axis.fill_between(mean.index, by.min(), by.max(), alpha=0.15, lw=0, **style)
        if log:
            axis.set_yscale("log")
        axis.set_ylim(bottom=bottom)
        values = values if isinstance(values, tuple) else (values,)
        pairs = zip(panel, values, strict=True)
        axis.set_title(", ".join(f"{k} = {v}" if k != "panel" else str(v) for k, v in pairs))
        axis.set_xlabel(x_label)
        axis.grid(alpha=0.25)
    for axis in axes[len(groups) :]:
        axis.remove()
    for axis in axes[:: max(columns, 1)][:rows]:
        axis.set_ylabel(y_label)
    shown: dict[str, Any] = {}  # a curve may be missing in some panels
    for axis in axes[: len(groups)]:
        handles, labels = axis.get_legend_handles_labels()
        shown = dict(zip(labels, handles, strict=True)) | shown
    figure.legend(
        shown.values(), shown.keys(), loc="outside lower center", ncols=min(len(shown), 7)
    )
    if title:
        figure.suptitle(title)
    save(figure, path, table)


def save(figure: Any, path: Path, table: pd.DataFrame) -> None:
    """Write the picture; a line in its corner says how many rounds and trials are behind it."""
    trials = table["trial"].nunique()
    note = f"{table['round'].max()} rounds, {trials} trial{'s' if trials > 1 else ''}"
    figure.text(0.995, 0.008, note, ha="right", va="bottom", fontsize=8, color="0.35")
    figure.savefig(path)


accuracy_curves = partial(curves, y="accuracy", log=False, y_label="test accuracy", line="method")


def draw_bars(
    table: pd.DataFrame, path: Path, *, panels: dict[str, str], group: str, bar: str
) -> None:
    """One panel of bars for each column in `panels`: groups of bars with labels below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4 * len(panels), 3.4), dpi=110, layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(panels)))
    groups, bars = (list(dict.fromkeys(table[c])) for c in (group, bar))
    width = 0.8 / len(bars)
    looks = styles(map(str, bars))
    for axis, (column, title) in zip(axes, panels.items(), strict=True):
        for number, name in enumerate(bars):
            values = table[table[bar] == name].set_index(group)[column].reindex(groups)
            at = np.arange(len(groups)) + (number - (len(bars) - 1) / 2) * width
            colour = looks[str(name)].colour
            axis.bar(at, values, width, label=str(name), color=colour)
        axis.set_xticks(range(len(groups)), [str(g) for g in groups], fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.grid(axis="y", alpha=0.25)
    if len(bars) > 1:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6))
    else:
        for axis in axes:
            axis.tick_params("x", rotation=60)
    figure.savefig(path)
