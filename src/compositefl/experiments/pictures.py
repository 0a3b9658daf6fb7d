"""Drawing shared by the experiments: panels of curves over rounds, and bars."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from compositefl.report.curves import save as save_small
from compositefl.report.style import DASHES, Style, styles

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

CUT = 2.0  # end of the axis of ratios: a method beyond it is told apart above
POINTS = 0.05  # largest end of the axis of differences, of accuracies for instance
RATIOS = (0.5, 0.7, 1.0, 1.4, 2.0)


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
    bottom: float | None = None,
    ratio_to: str = "",
    share: str | bool = True,
) -> None:
    """One panel for each combination of the columns `panel`, one curve for each value of `line`.

    A curve is the mean over the trials, its band their range. Values on the last axis are squared
    norms by default, hence the logarithmic axis. `bottom` cuts off the first rounds where all
    curves are alike. `ratio_to` names a curve: a second row has the ratios to it, trial by trial,
    up to CUT, where one sees apart what lies on each other; without `log` it has the differences,
    at most up to POINTS. `share`: all panels have one scale of y, those of a row ("row"), or each
    its own (False).
    """
    from matplotlib.figure import Figure

    groups = list(table.groupby(list(panel), sort=False)) if panel else [((), table)]
    columns = min(columns, len(groups))
    rows = -(-len(groups) // columns)
    kinds = 2 if ratio_to and ratio_to in set(table[line]) else 1
    figure = Figure(
        figsize=(3.6 * columns, (2.9 + 1.9 * (kinds - 1)) * rows + 0.6),
        dpi=100,
        layout="constrained",
    )
    grid = figure.subplots(
        rows * kinds, columns, squeeze=False, height_ratios=[3, 2][:kinds] * rows
    )
    looks = styles(map(str, table[line]))
    shown: dict[str, Artist] = {}  # a curve may be missing in some panels
    for number, (values, part) in enumerate(groups):
        row, column = divmod(number, columns)
        axis = grid[row * kinds, column]
        draw_lines(axis, part, line, x, y, looks)
        if log:
            axis.set_yscale("log")
        values = values if isinstance(values, tuple) else (values,)
        pairs = zip(panel, values, strict=True)
        axis.set_title(", ".join(f"{k} = {v}" if k != "panel" else str(v) for k, v in pairs))
        if column == 0:
            axis.set_ylabel(y_label)
        handles, labels = axis.get_legend_handles_labels()
        shown = dict(zip(labels, handles, strict=True)) | shown
        if kinds == 2:
            axis = grid[row * kinds + 1, column]
            to = ratios(part, line, x, y, ratio_to)
            draw_lines(axis, to, line, x, "ratio" if log else "difference", looks)
            if log:
                axis.set_yscale("log")
                axis.set_ylim(1 / CUT, CUT)
                axis.set_yticks(RATIOS, [f"{r:g}" for r in RATIOS])
                axis.set_yticks([], minor=True)
            else:
                end = min(POINTS, max(map(abs, axis.get_ylim())))
                axis.set_ylim(-end, end)
            if column == 0:
                axis.set_ylabel(f"ratio to {ratio_to}" if log else f"minus {ratio_to}")
        axis.set_xlabel(x_label)
    used = {divmod(number, columns) for number in range(len(groups))}
    for row in range(rows * kinds):
        for column in range(columns):
            if (row // kinds, column) in used:
                grid[row, column].grid(alpha=0.25)
            else:
                grid[row, column].remove()
    alike([grid[r * kinds, c] for r, c in sorted(used)], columns, share, bottom)
    if kinds == 2 and not log:
        alike([grid[r * kinds + 1, c] for r, c in sorted(used)], columns, share, None)
    entry = 0.7 + 0.085 * max(map(len, shown))  # inches
    across = max(1, min(len(shown), int(3.6 * columns / entry)))
    figure.legend(shown.values(), shown.keys(), loc="outside lower center", ncols=across)
    save(figure, path, table)


def draw_lines(
    axis: "Axes", part: pd.DataFrame, line: str, x: str, y: str, looks: dict[str, Style]
) -> None:
    """A curve for each value of `line`, with the range of its trials."""
    for name, some in part.groupby(line, sort=False):
        by = some.groupby(x)[y]
        mean = by.mean()
        look = looks[str(name)]
        style: dict[str, Any] = {"color": look.colour, "linestyle": look.dash}
        label = str(name) if isinstance(name, str) else f"{line} = {name}"
        axis.plot(mean.index, mean, label=label, **style)
        if some["trial"].nunique() > 1:
            axis.fill_between(mean.index, by.min(), by.max(), alpha=0.15, lw=0, **style)


def ratios(part: pd.DataFrame, line: str, x: str, y: str, to: str) -> pd.DataFrame:
    """`part` with y over that of the curve `to` in the same trial, "ratio", and less it."""
    base = part[part[line] == to].set_index(["trial", x])[y].rename("base")
    joined = part.join(base, on=["trial", x])
    joined = joined.assign(ratio=joined[y] / joined["base"], difference=joined[y] - joined["base"])
    return joined.dropna(subset=["difference"])


def alike(axes: "Sequence[Axes]", columns: int, share: str | bool, bottom: float | None) -> None:
    """Give panels one scale: all of them, or those of a row (share="row")."""
    rows = [axes[i : i + columns] for i in range(0, len(axes), columns)]
    groups = [list(axes)] if share is True else rows if share == "row" else [[a] for a in axes]
    for group in groups:
        limits = [axis.get_ylim() for axis in group]
        low = min(limit[0] for limit in limits) if bottom is None else bottom
        for axis in group:
            axis.set_ylim(low, max(limit[1] for limit in limits))


def save(figure: "Figure", path: Path, table: pd.DataFrame) -> None:
    """Write the picture; a line above it says how many rounds and trials are behind it."""
    trials, rounds = table["trial"].nunique(), table["round"]
    ends = sorted({*rounds[rounds.diff(-1) > 0], rounds.max()})  # the next row begins another run
    told = f"{ends[0]:,} or {ends[1]:,}" if len(ends) == 2 else f"{ends[-1]:,}"
    note = f"{told} rounds, {trials} trial{'s' if trials > 1 else ''}"
    figure.suptitle(note, x=0.995, ha="right", fontsize=8, color="0.35")
    save_small(figure, path)


accuracy_curves = partial(curves, y="accuracy", log=False, y_label="test accuracy", line="method")


def bar_look(look: Style) -> dict[str, Any]:
    """A method's bars: its colour, and a hatch where its curves have a dash."""
    hatches = ("", "//", "..", "xx", "--")
    hatch = hatches[DASHES.index(look.dash)]
    return {"color": look.colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}


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
        if f"paper_{column}" in table:
            mark_paper(axis, table, f"paper_{column}", group, bar, width)
        for number, name in enumerate(bars):
            values = table[table[bar] == name].set_index(group)[column].reindex(groups)
            at = np.arange(len(groups)) + (number - (len(bars) - 1) / 2) * width
            axis.bar(at, values, width, label=str(name), **bar_look(looks[str(name)]))
        names = [f"{group} = {g}" if isinstance(g, int | np.integer) else str(g) for g in groups]
        axis.set_xticks(range(len(groups)), names, fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.grid(axis="y", alpha=0.25)
    if len(bars) > 1:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6))
    else:
        for axis in axes:
            axis.tick_params("x", rotation=60)
    save_small(figure, path)


def mark_paper(
    axis: "Axes", table: pd.DataFrame, column: str, group: str, bar: str, width: float
) -> None:
    """A short line at the paper's value of each bar."""
    groups, bars = (list(dict.fromkeys(table[c])) for c in (group, bar))
    for number, name in enumerate(bars):
        values = table[table[bar] == name].set_index(group)[column].reindex(groups)
        at = np.arange(len(groups)) + (number - (len(bars) - 1) / 2) * width
        paper_lines(axis, values, at, width)


def paper_lines(axis: "Axes", values: "ArrayLike", at: np.ndarray, width: float) -> None:
    """Black lines at the paper's values, edged in white: bars may be black too."""
    for colour, thickness in (("white", 4.0), ("black", 1.6)):
        axis.hlines(values, at - width / 2, at + width / 2, color=colour, lw=thickness, zorder=3)
