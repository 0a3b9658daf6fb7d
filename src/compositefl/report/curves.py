"""Histories as a picture and as a table. A history is the DataFrame of a `Result`."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from compositefl.report.style import COLOURS, styles

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.table import Table

MEGABYTE = 1e6
INK = "#333333"
REFERENCE = "FedNMap"  # of ratios, where it is among the methods


class Column(NamedTuple):
    """A column of the table of final values."""

    heading: str
    name: str  # in the history
    show: Callable[[float], str]


COLUMNS = (
    Column("psi", "psi", lambda v: f"{v:.5g}"),
    Column("residual²", "natural_residual_sq", lambda v: f"{v:.2e}"),
    Column("zeros", "zeros", lambda v: f"{v:.1%}"),
    Column("accuracy", "accuracy", lambda v: f"{v:.1%}"),
    Column("MB up", "bytes_up", lambda v: f"{v / MEGABYTE:.4g}"),
    Column("seconds", "seconds", lambda v: f"{v:.2f}"),
)


def final(history: "pd.DataFrame") -> dict[str, float]:
    """The last row of a history, the mean over its trials."""
    last = history[history["round"] == history["round"].max()]
    return {str(name): float(value) for name, value in last.mean(numeric_only=True).items()}


def table(histories: Mapping[str, "pd.DataFrame"], *, title: str = "") -> "Table":
    """Final values of each method, means over the trials. Print it with `rich.print`."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    finals = {label: final(history) for label, history in histories.items()}
    columns = [c for c in COLUMNS if any(c.name in row for row in finals.values())]
    out = Table(title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    out.add_column("method")
    for column in columns:
        out.add_column(column.heading, justify="right", no_wrap=True)
    for label, row in finals.items():
        cells = [c.show(row[c.name]) if c.name in row else "-" for c in columns]
        out.add_row(Text(label), *cells)
    return out


def latex(histories: Mapping[str, "pd.DataFrame"]) -> str:
    """The table as LaTeX (package booktabs): means over the trials, and ± their deviation."""
    ends = {k: h[h["round"] == h["round"].max()] for k, h in histories.items()}
    columns = [c for c in COLUMNS if any(c.name in h for h in ends.values())]
    lines = [
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join(["method", *(_in_latex(c.heading) for c in columns)]) + r" \\",
        r"\midrule",
    ]
    for label, end in ends.items():
        cells = [_in_latex(label)]
        for c in columns:
            text = _in_latex(c.show(float(end[c.name].mean()))) if c.name in end else "--"
            if c.name in end and end["trial"].nunique() > 1:
                text += rf" $\pm$ {_in_latex(c.show(float(end[c.name].std())))}"
            cells.append(text)
        lines.append(" & ".join(cells) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


def _in_latex(words: str) -> str:
    for sign in "&%#_{}$":
        words = words.replace(sign, "\\" + sign)
    return words.replace("²", "$^2$")


def plot(
    histories: Mapping[str, "pd.DataFrame"],
    path: str | Path,
    *,
    title: str = "",
    gamma: float | None = None,
    dpi: int = 110,
) -> None:
    """Draw the course of one or several runs into the PNG `path`.

    A line is the mean over the trials, a band their range. `gamma` is the prox parameter of the
    natural residual, for the label of its axis. Where FedNMap is among several methods, a panel
    has the ratios to it: there one sees apart what lies on each other elsewhere.
    """
    from matplotlib.figure import Figure

    at_gamma = "" if gamma is None else f"  (γ = {gamma:g})"
    compared = REFERENCE in histories and len(histories) > 1
    columns = 3 if compared else 2
    figure = Figure(figsize=(4.5 * columns, 6.2), dpi=dpi, layout="constrained", facecolor="white")
    axes = figure.subplots(2, columns)
    (residual, psi), (zeros, last) = axes[:, :2]
    _panel(residual, histories, "round", "natural_residual_sq", log=True)
    _panel(psi, histories, "round", "psi")
    _panel(zeros, histories, "round", "zeros", scale=100.0)
    describe(residual, "Natural residual²" + at_gamma, "round")
    describe(psi, "Objective ψ = f + φ", "round")
    describe(zeros, "Parameters that are exactly zero, %", "round")
    by_bytes = [] if any("accuracy" in history for history in histories.values()) else [last]
    if not by_bytes:
        _panel(last, histories, "round", "accuracy", scale=100.0)
        describe(last, "Test accuracy, %", "round")
    if compared:
        ratio, other = axes[:, 2]
        _panel(ratio, ratios(histories, "natural_residual_sq"), "round", "ratio", log=True)
        describe(ratio, f"Natural residual², ratio to {REFERENCE}", "round")
        if by_bytes:
            _panel(other, ratios(histories, "psi"), "round", "ratio")
            describe(other, f"ψ, ratio to {REFERENCE}", "round")
        else:
            by_bytes = [other]
    for axis in by_bytes:
        _panel(axis, histories, "bytes_up", "natural_residual_sq", log=True)
        describe(axis, "Natural residual²" + at_gamma, "MB sent by all clients")
    psi.set_ylim(late_range(histories))
    _legend(figure, residual, title)
    save(figure, path)


def ratios(histories: Mapping[str, "pd.DataFrame"], column: str) -> dict[str, "pd.DataFrame"]:
    """Each history's mean over its trials, divided by the reference's at the same round."""
    import pandas as pd

    base = histories[REFERENCE].groupby("round")[column].mean()
    out = {}
    for label, history in histories.items():
        mean = history.groupby("round")[column].mean()
        ratio = (mean / base).dropna()
        out[label] = pd.DataFrame({"round": ratio.index, "trial": 0, "ratio": ratio.to_numpy()})
    return out


def save(figure: "Figure", path: str | Path) -> None:
    """Write a PNG of 128 colours: looks the same and takes a third of the space.

    The methods' own are among them, however few pixels they have: a line under another one has its
    colour in the legend alone.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image, ImageColor

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    own = [ImageColor.getrgb(colour) for colour in ("white", *COLOURS)]
    found = picture.quantize(128 - len(own)).getpalette() or []
    # Those next to an own colour go: PIL looks for the nearest with some play.
    rest = [c for c in zip(*[iter(found)] * 3, strict=True) if min(_apart(c, o) for o in own) > 8]
    few = Image.new("P", (1, 1))
    few.putpalette([value for colour in (*own, *rest) for value in colour])
    picture.quantize(palette=few, dither=Image.Dither.NONE).save(path, format="PNG", optimize=True)


def _apart(one: Sequence[int], other: Sequence[int]) -> int:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def _panel(
    axes: "Axes",
    histories: Mapping[str, "pd.DataFrame"],
    x: str,
    y: str,
    *,
    scale: float = 1.0,
    log: bool = False,
) -> None:
    """One line per method, with the range of its trials behind it."""
    looks = styles(histories)
    for label, history in histories.items():
        if y not in history:
            continue
        rows = history.assign(**{y: _drawable(history[y], log) * scale}).groupby("round")
        along = rows[x].first() / MEGABYTE if x == "bytes_up" else rows[y].mean().index
        colour, dash, _ = looks[label]
        if history["trial"].nunique() > 1:
            low, high = rows[y].min(), rows[y].max()
            axes.fill_between(along, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(along, rows[y].mean(), color=colour, linestyle=dash, linewidth=2, label=label)
    if log:
        axes.set_yscale("log")


def _drawable(values: "pd.Series", log: bool) -> "pd.Series":
    """The values without infinities, and without zeros on a logarithmic axis."""
    good = np.isfinite(values)
    return values.where(good & (values > 0) if log else good)


def describe(axes: "Axes", heading: str, below: str) -> None:
    """Words and a quiet frame."""
    axes.set_title(heading, loc="left", fontsize=10.5, color=INK)
    axes.set_xlabel(below, fontsize=9, color=INK)
    axes.tick_params(labelsize=9, colors=INK, length=3, which="major")
    axes.tick_params(length=0, which="minor")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.margins(x=0.01)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color("#999999")


def late_range(histories: Mapping[str, "pd.DataFrame"]) -> tuple[float, float] | None:
    """The range of psi after the first tenth of the rounds, with a margin.

    psi falls steeply at first; on an axis that shows all of it, the methods' lines coincide.
    """
    later = [h["psi"][h["round"] >= 0.1 * h["round"].max()] for h in histories.values() if len(h)]
    values = np.concatenate([np.zeros(0), *(np.asarray(part, float) for part in later)])
    values = values[np.isfinite(values)]
    if not values.size:
        return None
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * (high - low) or 0.06 * abs(high) or 1.0
    return low - margin, high + margin


def _legend(figure: "Figure", axes: "Axes", title: str) -> None:
    """One legend for all panels, above them; none for a single line."""
    handles, labels = axes.get_legend_handles_labels()
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, color=INK)
    if len(labels) > 1:
        figure.legend(
            handles,
            labels,
            loc="outside lower center",
            ncols=min(len(labels), 6),
            frameon=False,
            fontsize=10,
            labelcolor=INK,
        )
