"""Fair comparisons: the same budget of runs to find each method's step sizes."""

import dataclasses
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from compositefl.algorithms.base import Algorithm, automatic
from compositefl.core.component import replace
from compositefl.core.errors import (
    CompositeFLError,
    ConvergenceWarning,
    is_concrete,
    require_integer,
    wrong_value,
)
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer
from compositefl.solve._halving import halve
from compositefl.solve._sweep import ended_badly, run_all
from compositefl.solve.inputs import checked_problem, require_no_checkpoint, short, with_regularizer
from compositefl.solve.options import Options

if TYPE_CHECKING:
    import pandas as pd

TUNED = ("local_lr", "lr", "gamma", "eta")  # numbers whose best value depends on the problem
LARGER_IS_BETTER = ("accuracy", "zeros", "hoyer")
SPREAD = 30.0  # the grid goes from 1/SPREAD to SPREAD times the given number


def tune(
    problem: Problem,
    regularizer: Regularizer | str | None,
    algorithms: Mapping[str, Algorithm],
    *,
    budget: int = 25,
    metric: str = "psi",
    trials: int = 1,
    **options: Any,
) -> "pd.DataFrame":
    """Find the best step sizes of each method with the same number of runs.

    Numbers that are "auto", as by default, are found by successive halving on a grid around 1/L,
    the number of local steps among them: at most `budget` points, the work of about six full runs.
    A method with numbers is tuned around them, one after the other: its step size first, then gamma
    or eta where it has them, each on a geometric grid; `budget` points in all. A warning tells of a
    best number that sits at the edge of its grid, and of a best run that ends above its start.
    Points outside a method's admissible range are left out. The score is the mean of `metric` over
    the trials and the last tenth of the rounds; a run that diverged does not count.

    regularizer: phi or its name and numbers, as for `minimize`; None for that of each algorithm.
    Returns one row per method: its best numbers, its score, and how many points were tried and
    diverged.
    """
    require_integer(budget=budget, trials=trials)
    require_no_checkpoint("tune", options)
    problem = checked_problem(problem)
    if not isinstance(algorithms, Mapping):
        raise CompositeFLError(
            f"algorithms={short(algorithms)} must be a dict of names and algorithms, such as "
            '{"fednmap": cfl.FedNMap(local_steps=10, local_lr=0.1)}',
            parameter="algorithms",
            value=algorithms,
        )
    methods = {name: with_regularizer(a, regularizer) for name, a in algorithms.items()}
    checked = Options(**options).settled(list(methods.values()))
    rows, judge = [], Judge(problem, trials, metric)
    for name, best in methods.items():
        fields = automatic(best) or tuned_fields(best)
        points = diverged = 0
        score = np.inf
        at_edge: list[str] = []
        if automatic(best):
            best, score, points, diverged, at_edge = halve(problem, best, checked, budget, judge)
            fields = [*dict.fromkeys([*fields, "local_steps"])]
        else:
            for field in fields:
                candidates = admissible(
                    problem, checked, best, field, max(1, budget // len(fields))
                )
                scores = judge(candidates, checked)
                points, diverged = points + len(scores), diverged + int(np.sum(np.isinf(scores)))
                place = int(np.argmin(scores))
                best, score = candidates[place], float(scores.min())
                if len(scores) > 1 and place in (0, len(scores) - 1):
                    at_edge.append(field)
        if at_edge and np.isfinite(score):
            numbers = ", ".join(f"{field}={getattr(best, field):g}" for field in at_edge)
            warnings.warn(
                f"{name}: {numbers} is at the edge of its grid: better numbers may lie beyond",
                RuntimeWarning,
                stacklevel=2,
            )
        if repr(best) in judge.bad:
            how = "ends with psi above its start" if np.isfinite(score) else "diverged"
            warnings.warn(
                f"{name}: the best of {points} points {how}; start from smaller step sizes",
                ConvergenceWarning,
                stacklevel=2,
            )
        rows.append(
            {"method": name}
            | {field: getattr(best, field) for field in fields}
            | {metric: -score if metric in LARGER_IS_BETTER else score}
            | {"points": points, "diverged": diverged}
        )
    import pandas as pd

    return pd.DataFrame(rows)


class Judge:
    """Scores of candidates after a run, and which of them ended badly."""

    def __init__(self, problem: Problem, trials: int, metric: str):
        self.problem, self.trials, self.metric = problem, trials, metric
        self.bad: set[str] = set()  # whose last run diverged or ended above its start

    def __call__(self, candidates: list[Algorithm], options: Options) -> np.ndarray:
        """One number per candidate, smaller is better; infinity for one that diverged."""
        table, _, stopped = run_all(self.problem, candidates, self.trials, options)
        if stopped == "interrupted":  # half a rung says nothing of the numbers
            raise KeyboardInterrupt
        if self.metric not in table:
            raise wrong_value(
                "metric", self.metric, f"one of {sorted(table.columns)}", shown=repr(self.metric)
            )
        self.bad -= {repr(candidate) for candidate in candidates}
        self.bad |= {repr(candidates[point]) for point in ended_badly(table)}
        late = table[table["round"] >= 0.9 * table["round"].max()]
        value = -late[self.metric] if self.metric in LARGER_IS_BETTER else late[self.metric]
        value = value.where(late["diverged"] == 0, np.inf).fillna(np.inf)
        return np.asarray(value.groupby(late["point"]).mean())


def tuned_fields(algorithm: Algorithm) -> list[str]:
    """The numbers of an algorithm that are tuned."""
    names = [field.name for field in dataclasses.fields(algorithm)]
    return [n for n in TUNED if n in names and is_concrete(getattr(algorithm, n))]


def admissible(
    problem: Problem, options: Options, algorithm: Algorithm, field: str, count: int
) -> list[Algorithm]:
    """At most `count` variants of an algorithm in one number, those that its checks accept."""
    found = []
    for factor in np.geomspace(1 / SPREAD, SPREAD, count) if count > 1 else (1.0,):
        candidate = replace(algorithm, **{field: float(getattr(algorithm, field) * factor)})
        try:
            options.check(problem, candidate)
        except CompositeFLError:
            continue
        found.append(candidate)
    if not found:
        options.check(problem, algorithm)  # tells what is wrong with it
    return found or [algorithm]
