"""Grids of hyper-parameters in one compiled program, and warm-started regularisation paths."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd

from compositefl.algorithms.base import Algorithm
from compositefl.core.component import replace
from compositefl.core.errors import CompositeFLError, require_integer
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.elementary import Zero
from compositefl.solve._minimize import minimize
from compositefl.solve.options import Options
from compositefl.solve.run import Run

PREFIX = "regularizer."


def sweep(
    problem: Problem,
    regularizer: Regularizer | None,
    algorithm: Algorithm,
    grid: Mapping[str, Sequence[float]],
    *,
    trials: int = 1,
    **options: Any,
) -> pd.DataFrame:
    """Run every combination of the numbers in `grid`, side by side in one compiled program.

    grid: numeric fields of the algorithm ("local_lr", "gamma", "local_steps") or, with the prefix
        "regularizer.", of the regulariser ("regularizer.weight"), each with its values.
    options: as for `minimize`, without checkpoints.

    Returns the histories of all runs in one table: the columns of `Result.history`, one column
    for each entry of the grid, and "diverged", the round in which the run left the finite numbers,
    counted from 1 as in `Result.diverged`, 0 for none.
    """
    if not grid or not all(len(values) for values in grid.values()):
        raise CompositeFLError(f"grid={dict(grid)} must name at least one field with values")
    points = [dict(zip(grid, p, strict=True)) for p in itertools.product(*grid.values())]
    candidates = [at_point(algorithm, regularizer or Zero(), point) for point in points]
    table = run_all(problem, candidates, trials, Options(**options))
    for name in grid:
        table[name] = [points[i][name] for i in table["point"]]
    return table.drop(columns="point")


def run_all(
    problem: Problem, candidates: Sequence[Algorithm], trials: int, options: Options
) -> pd.DataFrame:
    """Histories of several algorithms of one class; "point" is the number of the candidate."""
    require_integer(trials=trials)
    if options.checkpoint is not None:
        raise CompositeFLError("checkpoint is not available for sweeps")
    for candidate in candidates:
        options.check(problem, candidate)
    with jax.enable_x64(options.dtype == "float64"):
        algorithms = [c for c in candidates for _ in range(trials)]
        run = Run(problem, algorithms, list(range(trials)) * len(candidates), options)
        run.loop()
    table = pd.DataFrame(run.history)
    table["diverged"] = run.simulation.diverged[table["run"]] + 1
    table["point"] = table["run"] // trials
    return table.drop(columns="run")


def at_point(
    algorithm: Algorithm, regularizer: Regularizer, point: Mapping[str, float]
) -> Algorithm:
    """The algorithm with the numbers of one point of a grid."""
    own = {k: v for k, v in point.items() if not k.startswith(PREFIX)}
    its = {k.removeprefix(PREFIX): v for k, v in point.items() if k.startswith(PREFIX)}
    return replace(algorithm, regularizer=replace(regularizer, **its), **own)


def weight_max(problem: Problem, regularizer: Regularizer, field: str = "weight") -> float:
    """The smallest weight at which the zero model is stationary.

    Zero is stationary if and only if prox_t(-t grad f(0)) = 0 for a t below 1/rho. Found by
    bisection over the regulariser's number `field`, to six digits from above.
    """
    zero = jax.tree.map(np.zeros_like, problem.params)
    start = problem.with_params(zero)
    with jax.enable_x64(True):
        x = start.start("float64")
        gradients = [problem.gradient(x, client) for client in problem.clients]
        gradient = jax.tree.map(lambda *g: sum(g) / len(g), *gradients)

        def is_zero(weight: float) -> bool:
            phi = replace(regularizer, **{field: weight})
            t = min(1.0, 0.5 * float(phi.max_prox))
            point = phi.prox(jax.tree.map(lambda g: -t * g, gradient), t)
            return all(not np.any(leaf) for leaf in jax.tree.leaves(point))

        high = 1.0
        while not is_zero(high):
            high *= 2.0
            if high > 1e12:
                raise CompositeFLError(
                    f"no {field} of {regularizer!r} makes the zero model stationary"
                )
        low = high / 2.0
        while is_zero(low) and low > 1e-12:
            high, low = low, low / 2.0
        while high / low > 1 + 1e-7:
            middle = (low * high) ** 0.5
            low, high = (low, middle) if is_zero(middle) else (middle, high)
    return high


def path(
    problem: Problem,
    regularizer: Regularizer,
    algorithm: Algorithm,
    weights: Sequence[float] | int = 20,
    *,
    field: str = "weight",
    smallest: float = 0.01,
    **options: Any,
) -> tuple[pd.DataFrame, list[Any]]:
    """A regularisation path: one run for each weight, started at the model of the weight before.

    weights: the values of the regulariser's `field`, or their number; then they fall
        geometrically from `weight_max` to `smallest` times it.

    Returns a table with the last row of each run's history, and the models.
    """
    if isinstance(weights, int):
        require_integer(weights=weights)
        top = weight_max(problem, regularizer, field)
        weights = list(np.geomspace(top, smallest * top, weights))
    rows, models = [], []
    for weight in sorted(weights, reverse=True):
        phi = replace(regularizer, **{field: float(weight)})
        result = minimize(problem, phi, algorithm, **options)
        problem = problem.with_params(result.params)
        rows.append({field: weight, "stopped": result.stopped} | dict(result.history.iloc[-1]))
        models.append(result.params)
    return pd.DataFrame(rows), models
