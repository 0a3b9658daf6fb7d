"""A path of fits and its cross-validation: a picture as glmnet draws it, and sections of a page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import PlainValues
from compositefl.report import sections
from compositefl.report.curves import INK, describe, save
from compositefl.report.sections import ClientData, Section
from compositefl.report.style import COLOURS

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Array = np.ndarray
LABELS = 8  # most lines whose names are written beside them
APART = 0.045  # of the height of a panel, between two names


@dataclass(frozen=True)
class FitPath:
    """What is drawn. Arrays are by alpha, the largest first."""

    alphas: Array
    values: Mapping[str, Array]  # the coefficients by name
    mean: Array  # of the cross-validated score
    error: Array
    score: str
    chosen: Mapping[str, float] = field(default_factory=dict)  # name -> alpha: dotted lines
    unit: str = "coefficient"

    @property
    def counts(self) -> Array:
        """How many coefficients are not zero."""
        return np.sum([row != 0 for row in self.values.values()], axis=0)


def plot(fit: FitPath, path: str | Path, *, title: str = "", dpi: int = 110) -> None:
    """Draw coefficients and cross-validation over alpha into the PNG `path`.

    The axis of alpha is logarithmic and falls to the right, as the path is walked; above it stand
    the numbers of coefficients that are not zero.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.4), dpi=dpi, layout="constrained", facecolor="white")
    left, right = figure.subplots(1, 2)
    _lines(left, fit)
    _curve(right, fit)
    for axes, heading in ((left, fit.unit), (right, f"Cross-validation: {fit.score}")):
        describe(axes, f"{heading[0].upper()}{heading[1:]}\n", "alpha")
        axes.set_xscale("log")
        axes.set_xlim(fit.alphas[0] * 1.1, fit.alphas[-1] / 1.1)
        _counts(axes, fit)
        for alpha in fit.chosen.values():
            axes.axvline(alpha, color="#666666", linestyle=":", linewidth=1.2)
    for name, alpha in fit.chosen.items():
        right.annotate(
            f" {name}",
            (alpha, 0.97),
            xycoords=("data", "axes fraction"),
            rotation=90,
            va="top",
            ha="right",
            fontsize=8.5,
            color=INK,
        )
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, color=INK)
    save(figure, path)


def _lines(axes: "Axes", fit: FitPath) -> None:
    moved = [name for name, row in fit.values.items() if np.any(row != 0)]
    for number, name in enumerate(moved):
        axes.plot(fit.alphas, fit.values[name], color=COLOURS[number % 6], linewidth=1.3)
    axes.axhline(0, color="#999999", linewidth=0.8)
    low, high = axes.get_ylim()
    large = sorted(moved, key=lambda name: -abs(fit.values[name][-1]))[:LABELS]
    at = -np.inf
    for name in sorted(large, key=lambda name: fit.values[name][-1]):
        at = max(at + APART, (fit.values[name][-1] - low) / (high - low))
        short = name if len(name) <= 24 else name[:23] + "…"
        colour = COLOURS[moved.index(name) % 6]
        axes.annotate(
            short,
            (1.01, at),
            xycoords="axes fraction",
            va="center",
            fontsize=8,
            color=colour,
            annotation_clip=False,
        )


def _curve(axes: "Axes", fit: FitPath) -> None:
    axes.errorbar(
        fit.alphas,
        fit.mean,
        yerr=fit.error,
        fmt="o",
        markersize=3,
        color=COLOURS[4],
        ecolor="#aaaaaa",
        elinewidth=0.9,
        capsize=1.5,
    )


def _counts(axes: "Axes", fit: FitPath) -> None:
    above = axes.secondary_xaxis("top")
    at = np.unique(np.linspace(0, len(fit.alphas) - 1, 9).round().astype(int))
    above.set_xscale("log")
    above.set_xticks(fit.alphas[at], [str(fit.counts[i]) for i in at])
    above.set_xticks([], minor=True)
    above.tick_params(labelsize=8.5, colors=INK, length=2)
    above.spines["top"].set_visible(False)


def fit_sections(
    coefficients: Mapping[str, float],
    said: Sequence[str],
    *,
    path: FitPath | None = None,
    unit: str = "coefficient",
    clients: ClientData | None = None,
    settings: PlainValues | None = None,
    command: str = "",
) -> list[Section]:
    """The sections of a page about a fit. unit: of these coefficients."""
    lines = "".join(f"<p class=said>{sections.text(line)}</p>" for line in said)
    out = [Section("The fit", lines)]
    out.append(sections.coefficients({"fit": coefficients}, unit))
    if path is not None:
        first = next(iter(path.chosen.values()), None)
        values = {name: list(row) for name, row in path.values.items()}
        out.append(sections.path(list(path.alphas), values, first, "alpha", path.unit))
        out.append(
            sections.cv_curve(
                list(path.alphas),
                list(path.mean),
                list(path.error),
                path.chosen,
                path.score,
                "alpha",
            )
        )
    if clients is not None:
        out.append(sections.clients(clients))
    return [*out, sections.configuration(settings or {}, command)]


def folder_sections(folder: Path, config: PlainValues) -> tuple[str, list[Section]]:
    """(title, sections) of the page about the fit in a folder; config: its config.json."""
    import pandas as pd

    shown = config["fit"]
    try:
        frame = pd.read_csv(folder / "coefficients.csv", dtype={"name": str, "class": str})
        table = pd.read_csv(folder / "path.csv") if "score" in shown else None
    except (OSError, ValueError) as error:
        raise CompositeFLError(f"{folder} is not the whole folder of a fit: {error}") from None
    slopes = frame[frame["name"] != "(intercept)"]
    label = slopes["name"] if "class" not in slopes else slopes["class"] + ": " + slopes["name"]
    size = slopes["coefficient x deviation"].astype(float)
    made = fit_sections(
        dict(zip(label, size, strict=True)),
        shown["said"],
        path=None if table is None else _path(table, shown),
        unit="coefficient per standard deviation of the feature",
        clients=config.get("clients"),
        settings=config.get("options") or {k: v for k, v in config.items() if k != "fit"},
        command=config.get("command", ""),
    )
    return str(config.get("title") or folder.resolve().name), made


def _path(table: "pd.DataFrame", shown: PlainValues) -> FitPath:
    """The path of path.csv, whose first columns are alpha, score, standard error and a count."""
    units, names = shown["units"], list(table.columns[4:])
    values = {name: table[name].to_numpy() * units[i % len(units)] for i, name in enumerate(names)}
    alphas, mean, error = (table.iloc[:, i].to_numpy() for i in range(3))
    return FitPath(alphas, values, mean, error, shown["score"], shown["chosen"], shown["unit"])
