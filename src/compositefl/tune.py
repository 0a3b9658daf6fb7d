"""Fair comparisons: the same budget of runs to find each method's step sizes."""

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from compositefl.algorithms.base import Algorithm
from compositefl.component import replace
from compositefl.errors import CompositeFLError, is_concrete, require_integer
from compositefl.options import Options
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.elementary import Zero
from compositefl.sweep import run_all

TUNED = ("local_lr", "lr", "gamma", "eta")  # numbers whose best value depends on the problem
SPREAD = 30.0  # the grid goes from 1/SPREAD to SPREAD times the given number


def tune(
    problem: Problem,
    regularizer: Regularizer | None,
    algorithms: Mapping[str, Algorithm],
    *,
    budget: int = 25,
    metric: str = "psi",
    trials: int = 1,
    **options: Any,
) -> pd.DataFrame:
    """Find the best step sizes of each method with the same number of runs.

    Every method gets at most `budget` points of a geometric grid around the numbers that it comes
    with, over its step size and, where it has them, gamma or eta. Points outside a method's
    admissible range are left out. The score is the mean of `metric` over the trials and the last
    tenth of the rounds; a run that diverged does not count.

    Returns one row a method: its best numbers, its score, and how many points were tried and
    diverged.
    """
    require_integer(budget=budget, trials=trials)
    checked = Options(**options)
    rows = []
    for name, algorithm in algorithms.items():
        algorithm = replace(algorithm, regularizer=regularizer or Zero())
        candidates = admissible(problem, checked, algorithm, budget)
        table = run_all(problem, candidates, trials, checked)
        late = table[table["round"] >= 0.9 * checked.rounds]
        if metric not in late:
            raise CompositeFLError(f"metric='{metric}' must be one of {sorted(late.columns)}")
        late = late.assign(score=late[metric].where(late["diverged"] < 0, np.inf).fillna(np.inf))
        scores = late.groupby("point")["score"].mean()
        best = candidates[int(scores.idxmin() if metric != "accuracy" else scores.idxmax())]
        rows.append(
            {"method": name}
            | {field: getattr(best, field) for field in tuned_fields(best)}
            | {
                metric: float(scores.min() if metric != "accuracy" else scores.max()),
                "points": len(candidates),
                "diverged": int(np.sum(~np.isfinite(scores))),
            }
        )
    return pd.DataFrame(rows)


def tuned_fields(algorithm: Algorithm) -> list[str]:
    """The numbers of an algorithm that are tuned."""
    names = [field.name for field in dataclasses.fields(algorithm)]
    return [n for n in TUNED if n in names and is_concrete(getattr(algorithm, n))]


def admissible(
    problem: Problem, options: Options, algorithm: Algorithm, budget: int
) -> list[Algorithm]:
    """At most `budget` variants of an algorithm that its own checks accept."""
    fields = tuned_fields(algorithm)
    each = max(1, int(budget ** (1 / max(1, len(fields))) + 1e-9))
    factors = np.geomspace(1 / SPREAD, SPREAD, each) if each > 1 else np.ones(1)
    found = []
    for point in itertools.product(factors, repeat=len(fields)):
        values = {f: float(getattr(algorithm, f) * c) for f, c in zip(fields, point, strict=True)}
        candidate = replace(algorithm, **values)
        try:
            options.check(problem, candidate)
        except CompositeFLError:
            continue
        found.append(candidate)
    if not found:
        options.check(problem, algorithm)  # tells what is wrong with it
        return [algorithm]
    return found
