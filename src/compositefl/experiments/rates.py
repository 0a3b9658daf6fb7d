"""Measured rates next to a theorem's: panels of values over what varies, on log-log axes."""

import math
import textwrap
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from compositefl.core.types import Batch, Params
from compositefl.experiments.statistics import slope

SLACK = 0.05  # a measured slope this much above the theorem's still counts as following it


def robust(w: Params, batch: Batch) -> jax.Array:
    """Geman and McClure's loss r^2 / (2 (1 + r^2)) of r = x.w - y: smooth, Lipschitz, nonconvex."""
    x, y = batch
    square = jnp.square(x @ w - y)
    return jnp.mean(square / (1 + square)) / 2


def panels(table: pd.DataFrame) -> Iterator[tuple[str, str, float, pd.Series, float]]:
    """(title, what varies, the theorem's slope, measured values, their slope) of each panel.

    Both slopes are NaN where there is no theorem.
    """
    for title, part in table.groupby("panel", sort=False):
        varies, theory = part["varies"].iloc[0], float(part["theory"].iloc[0])
        values = part.set_index(varies)["measured"]
        yield str(title), varies, theory, values, math.nan if math.isnan(theory) else slope(values)


def draw(table: pd.DataFrame, path: Path, y_label: str, columns: int = 4) -> None:
    """Measured values with two standard errors, and a line of the theorem's slope."""
    from matplotlib.figure import Figure

    from compositefl.report.style import COLOURS

    shown = list(panels(table))
    rows = -(-len(shown) // columns)
    figure = Figure(figsize=(3.1 * columns, 2.6 * rows), dpi=100, layout="constrained")
    axes = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for axis, (title, varies, theory, values, measured) in zip(axes, shown, strict=False):
        x = values.index.to_numpy(float)
        known = not math.isnan(theory)
        label = f"measured, slope {measured:.2f}" if known else "measured"
        axis.loglog(x, values, "o-", ms=4, color=COLOURS[0], label=label)
        if "error" in table:
            errors = 2 * table.loc[table["panel"] == title, "error"].to_numpy()
            axis.errorbar(x, values, errors, fmt="none", color=COLOURS[0], capsize=3)
        if known:
            line = values.iloc[0] * (x / x[0]) ** theory
            axis.loglog(x, line, "--", color=COLOURS[1], label=f"theory, slope {theory:.2f}")
        axis.set_title("\n".join(textwrap.wrap(title, 40)), fontsize=8)
        if len(x) < 8:
            axis.set_xticks(x, [f"{v:,.0f}" for v in x])
            axis.set_xticks([], minor=True)
        axis.set_xlabel(varies, fontsize=8)
        axis.tick_params(labelsize=7, which="both")
        axis.legend(fontsize=7)
        axis.grid(alpha=0.25)
    for axis in axes[len(shown) :]:
        axis.remove()
    figure.supylabel(y_label, fontsize=9)
    figure.savefig(path)
