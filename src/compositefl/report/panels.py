"""The curves of a page: a panel per measure, over rounds, bytes, gradients or seconds."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from compositefl.report.curves import MEGABYTE, REFERENCE, late_range
from compositefl.report.sections import Section, chart
from compositefl.report.style import styles

if TYPE_CHECKING:
    import pandas as pd

POINTS = 1000  # most points of a curve


class Measure(NamedTuple):
    """A column of the history and how it is shown."""

    column: str
    heading: str
    log: bool = False
    scale: float = 1.0


MEASURES = (
    Measure("natural_residual_sq", "Natural residual²", log=True),
    Measure("psi", "Objective ψ = f + φ"),
    Measure("zeros", "Parameters exactly zero, %", scale=100.0),
    Measure("accuracy", "Test accuracy, %", scale=100.0),
    Measure("normal_map_sq", "Normal map²", log=True),
    Measure("loss", "Loss f"),
)
ALONG = (
    Measure("round", "round"),
    Measure("bytes_up", "MB sent by all clients", scale=1 / MEGABYTE),
    Measure("gradients", "gradient evaluations of all clients"),
    Measure("seconds", "seconds"),
)
FIRST = 4  # measures that are drawn; the others can be chosen


def curves(histories: Mapping[str, "pd.DataFrame"], gamma: float | None = None) -> Section:
    """Curves to zoom into, hover over and hide: means over the trials, bands their range.

    gamma: the prox parameter of the natural residual, for its heading.
    """
    histories = {label: history for label, history in histories.items() if len(history)}
    columns = {name for history in histories.values() for name in history}
    looks = styles(histories)
    at = "" if gamma is None else f" (γ = {gamma:g})"
    measures = [m for m in MEASURES if m.column in columns]
    content = {
        "measures": [
            {"name": m.column, "heading": m.heading + (at if m.log else ""), "log": m.log}
            | ({"range": late_range(histories)} if m.column == "psi" else {})
            for m in measures
        ],
        "along": [{"name": a.column, "heading": a.heading} for a in ALONG if a.column in columns],
        "shown": min(FIRST, len(measures)),
        "reference": REFERENCE if REFERENCE in histories and len(histories) > 1 else None,
        "runs": [
            _run(history, measures)
            | {"label": label, "colour": looks[label].colour, "dash": looks[label].css_dash}
            for label, history in histories.items()
        ],
    }
    return Section(
        "The course of the run" if len(histories) == 1 else "The course of the runs",
        chart(content, "curves", "curves of the runs"),
    )


def _run(history: "pd.DataFrame", measures: list[Measure]) -> dict[str, object]:
    rounds = np.unique(history["round"])
    if len(rounds) > POINTS:
        kept = rounds[np.linspace(0, len(rounds) - 1, POINTS).round().astype(int)]
        history = history[history["round"].isin(kept)]
    by = history.groupby("round")
    several = history["trial"].nunique() > 1 if "trial" in history else False
    x = {
        a.column: (by[a.column].mean() * a.scale).to_numpy()
        if a.column != "round"
        else by["round"].first().to_numpy()
        for a in ALONG
        if a.column in history
    }
    y: dict[str, dict[str, np.ndarray]] = {}
    for m in measures:
        if m.column not in history:
            continue
        values = history[m.column] * m.scale
        values = values.where(np.isfinite(values) & ((values > 0) if m.log else True))
        grouped = values.groupby(history["round"])
        y[m.column] = {"mean": grouped.mean().to_numpy()}
        if several:
            y[m.column] |= {"low": grouped.min().to_numpy(), "high": grouped.max().to_numpy()}
    return {"x": x, "y": y}
