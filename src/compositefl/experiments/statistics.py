"""Numbers that the verdicts compare: floors, slopes, rounds to a level."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd


def tail_mean(
    table: pd.DataFrame, by: Sequence[str], y: str = "natural_residual_sq", tail: float = 0.25
) -> pd.Series:
    """Mean of `y` over the trials and the last `tail` of the rounds, for each combination of `by`.

    A tail instead of the last round alone, because a stochastic method ends on a noisy floor.
    """
    last = table["round"].max()
    return table[table["round"] >= (1 - tail) * last].groupby(list(by), sort=False)[y].mean()


def slope(values: pd.Series) -> float:
    """Least-squares slope of log(values) over log(index)."""
    return float(np.polyfit(np.log(values.index.to_numpy(float)), np.log(values.to_numpy()), 1)[0])


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
