"""Numbers that the verdicts compare: floors, slopes, rounds to a level, and what trials can tell.

A difference can be told where it is beyond two standard errors over the trials, so never from a
single trial.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

ERRORS = 2.0  # standard errors that a difference must exceed


class Estimate(NamedTuple):
    """A mean over the trials and its standard error, NaN for one trial."""

    mean: float
    error: float

    def __str__(self) -> str:
        plus = "" if math.isnan(self.error) else f" ± {self.error:.2g}"
        return f"{self.mean:.3g}{plus}"

    def below(self, level: float) -> bool | None:
        """Whether the true mean is below `level`; None: cannot be told."""
        if not abs(self.mean - level) > ERRORS * self.error:
            return None
        return self.mean < level


def estimate(trials: pd.Series) -> Estimate:
    """The mean over trials."""
    values = trials.to_numpy(float)
    if len(values) < 2:
        return Estimate(float(values[0]) if len(values) else math.nan, math.nan)
    return Estimate(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


def log_ratio(a: pd.Series, b: pd.Series) -> Estimate:
    """ln(a / b) of positive values by trial, where the trials are pairs: same start and samples."""
    return estimate(np.log((a / b).dropna()))


def difference(a: pd.Series, b: pd.Series) -> Estimate:
    """a - b of values by trial, in pairs."""
    return estimate((a - b).dropna())


def every(verdicts: Sequence[bool | None]) -> bool | None:
    """Whether all hold: no if one does not, cannot be told if one of them cannot."""
    if any(v is not None and not v for v in verdicts):
        return False
    return None if any(v is None for v in verdicts) else True


def falls(columns: pd.DataFrame) -> bool | None:
    """Whether positive values by trial (rows) fall from column to column."""
    pairs = zip(columns.columns, columns.columns[1:], strict=False)
    return every([log_ratio(columns[b], columns[a]).below(0.0) for a, b in pairs])


def tail_mean(
    table: pd.DataFrame, by: Sequence[str], y: str = "natural_residual_sq", tail: float = 0.25
) -> pd.Series:
    """Mean of `y` over the trials and the last `tail` of the rounds, for each combination of `by`.

    A tail instead of the last round alone, because a stochastic method ends on a noisy floor.
    """
    last = table.groupby(list(by), sort=False)["round"].transform("max")
    return table[table["round"] >= (1 - tail) * last].groupby(list(by), sort=False)[y].mean()


def slope(values: pd.Series) -> float:
    """Least-squares slope of log(values) over log(index)."""
    return float(np.polyfit(np.log(values.index.to_numpy(float)), np.log(values.to_numpy()), 1)[0])


def slopes(columns: pd.DataFrame) -> Estimate:
    """The slope over the columns, of each trial (row)."""
    return estimate(columns.apply(slope, axis=1))


def slope_error(values: pd.Series, errors: pd.Series) -> float:
    """Standard error of `slope`, from those of the values."""
    x = np.log(values.index.to_numpy(float))
    weights = (x - x.mean()) / np.square(x - x.mean()).sum()
    return float(np.sqrt(np.sum(np.square(weights * (errors / values).to_numpy()))))


def rounds_to(curve: pd.Series, level: float) -> float:
    """The first round at or below `level`, NaN if there is none."""
    reached = curve.index[curve <= level]
    return float(reached[0]) if len(reached) else math.nan


def crossing(curve: pd.Series, level: float) -> float:
    """The round at which a rising curve reaches `level`, NaN if it does not."""
    above = np.flatnonzero(curve >= level)
    if not len(above) or above[0] == 0:
        return math.nan
    i = above[0]
    return float(np.interp(level, curve.iloc[i - 1 : i + 1], curve.index[i - 1 : i + 1]))
