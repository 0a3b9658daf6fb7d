"""Grids of hyper-parameters in one compiled program, and warm-started regularisation paths."""

import dataclasses
import itertools
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import jax
import numpy as np

from compositefl.algorithms.base import Algorithm
from compositefl.core.component import is_static, replace
from compositefl.core.errors import (
    CompositeFLError,
    ConvergenceWarning,
    require_integer,
    require_share,
    wrong_value,
)
from compositefl.core.types import Params
from compositefl.core.vector import unwrap
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.elementary import Zero
from compositefl.solve._minimize import minimize
from compositefl.solve._weight_max import weight_max
from compositefl.solve.ending import rose, summary_of
from compositefl.solve.inputs import (
    as_regularizer,
    checked_problem,
    require_no_checkpoint,
    with_regularizer,
)
from compositefl.solve.options import Options
from compositefl.solve.run import Run

if TYPE_CHECKING:
    import pandas as pd

PREFIX = "regularizer."


@overload
def sweep(
    problem: Problem,
    regularizer: Regularizer | str | None,
    algorithm: Algorithm,
    grid: Mapping[str, Sequence[float]],
    *,
    trials: int = 1,
    models: Literal[False] = False,
    **options: Any,
) -> "pd.DataFrame": ...


@overload
def sweep(
    problem: Problem,
    regularizer: Regularizer | str | None,
    algorithm: Algorithm,
    grid: Mapping[str, Sequence[float]],
    *,
    trials: int = 1,
    models: Literal[True],
    **options: Any,
) -> "tuple[pd.DataFrame, list[Params]]": ...


def sweep(
    problem: Problem,
    regularizer: Regularizer | str | None,
    algorithm: Algorithm,
    grid: Mapping[str, Sequence[float]],
    *,
    trials: int = 1,
    models: bool = False,
    **options: Any,
) -> "pd.DataFrame | tuple[pd.DataFrame, list[Params]]":
    """Run every combination of the numbers in `grid`, side by side in one compiled program.

    regularizer: phi or its name and numbers, as for `minimize`; None for that of the algorithm.
    grid: numeric fields of the algorithm ("local_lr", "gamma", "local_steps") or, with the prefix
        "regularizer.", of the regulariser ("regularizer.weight"), each with its values. In ByName
        "regularizer.weight" is set in every part that has a weight, "regularizer.*kernel.weight"
        in that of the pattern "*kernel". A number multiplies a weight that is an array.
    models: return (table, models), models[p] the model of point p, with the trial as leading axis
        if there are several.
    options: as for `minimize`, without checkpoints.

    Returns the histories of all runs in one table: the columns of `Result.history`, one column
    for each entry of the grid, "diverged", the round in which the run left the finite numbers,
    counted from 1 as in `Result.diverged`, 0 for none, and "point", the number of the combination,
    the last entry of the grid running fastest. A warning counts the points that diverged or ended
    above their start.
    """
    require_no_checkpoint("sweep", options)
    for name, values in grid.items():
        if isinstance(values, str) or not isinstance(values, Iterable):
            raise CompositeFLError(
                f"grid: {name}={values!r} must be a list of values, such as [{values!r}]",
                parameter="grid",
                value=dict(grid),
            )
    if not grid or not all(len(values) for values in grid.values()):
        raise CompositeFLError(
            f"grid={dict(grid)} must name at least one field with values",
            parameter="grid",
            value=dict(grid),
        )
    points = [dict(zip(grid, p, strict=True)) for p in itertools.product(*grid.values())]
    problem, base = checked_problem(problem), with_regularizer(algorithm, regularizer)
    _require_numbers(base, grid)
    candidates = [at_point(base, point) for point in points]
    checked = Options(**options).settled([base, *candidates])
    table, found, stopped = run_all(problem, candidates, trials, checked, models)
    if stopped == "interrupted":
        warnings.warn(
            f"the sweep was interrupted after round {table['round'].iloc[-1]} of {checked.rounds}",
            RuntimeWarning,
            stacklevel=2,
        )
    for name in grid:
        table[name] = [points[i][name] for i in table["point"]]
    if bad := ended_badly(table):
        first = ", ".join(f"{name}={value:g}" for name, value in points[bad[0]].items())
        warnings.warn(
            f"{len(bad)} of {len(points)} points diverged or ended with psi above its start, the "
            f"first at {first}",
            ConvergenceWarning,
            stacklevel=2,
        )
    return (table, found) if models else table


def _require_numbers(algorithm: Algorithm, grid: Mapping[str, Sequence[float]]) -> None:
    """Refuse a choice of words, such as of a variant: the runs are one program."""
    for name, values in grid.items():
        owner = algorithm.regularizer if name.startswith(PREFIX) else algorithm
        words = {f.name for f in dataclasses.fields(owner) if is_static(f)}  # type: ignore[arg-type]
        if name.removeprefix(PREFIX) in words and len(values) > 1:
            raise CompositeFLError(
                f"grid: {name} is no number, and the runs of a sweep are one program: make a "
                "sweep for each of its values",
                parameter="grid",
                value=dict(grid),
            )


def run_all(
    problem: Problem,
    candidates: Sequence[Algorithm],
    trials: int,
    options: Options,
    models: bool = False,
) -> "tuple[pd.DataFrame, list[Params], str]":
    """Histories of several algorithms of one class; "point" is the number of the candidate.

    With `models` also the model of each. And why the runs stopped, as in `Result`.
    """
    require_integer(trials=trials)
    trials = int(trials)
    for candidate in candidates:
        options.check(problem, candidate)
    options = options.settled(candidates)
    with jax.enable_x64(options.dtype == "float64"):
        algorithms = [c for c in candidates for _ in range(trials)]
        run = Run(problem, algorithms, list(range(trials)) * len(candidates), options)
        stopped = run.loop()
        params = unwrap(run.simulation.models()) if models else None
    import pandas as pd

    table = pd.DataFrame(run.history)
    table["diverged"] = run.simulation.diverged[table["run"]] + 1
    table["point"] = table["run"] // trials
    found = [_runs_of(params, p, trials) for p in range(len(candidates))] if models else []
    return table.drop(columns="run"), found, stopped


def ended_badly(table: "pd.DataFrame") -> list[int]:
    """The points of which a run diverged or ended with psi above its start."""
    bad = set()
    for (point, _), rows in table.groupby(["point", "trial"]):
        if rows["diverged"].iloc[-1] or rose(rows["psi"].tolist()):
            bad.add(int(point))
    return sorted(bad)


def _runs_of(params: Params, point: int, trials: int) -> Params:
    """The models of one candidate, as `minimize` returns them."""
    cut = point if trials == 1 else slice(point * trials, (point + 1) * trials)
    return jax.tree.map(lambda a: a[cut], params)


def at_point(algorithm: Algorithm, point: Mapping[str, float]) -> Algorithm:
    """The algorithm, with its regulariser, at the numbers of one point of a grid."""
    own = {k: v for k, v in point.items() if not k.startswith(PREFIX)}
    its = {k.removeprefix(PREFIX): v for k, v in point.items() if k.startswith(PREFIX)}
    phi = algorithm.regularizer
    return replace(algorithm, regularizer=phi.with_fields(its) if its else phi, **own)


def path(
    problem: Problem,
    regularizer: Regularizer | str | None,
    algorithm: Algorithm | None = None,
    values: Sequence[float] | int = 20,
    *,
    field: str = "weight",
    smallest: float = 0.01,
    **options: Any,
) -> "tuple[pd.DataFrame, list[Params]]":
    """A regularisation path: one run for each weight, started at the model of the weight before.

    regularizer: phi or its name and numbers, as for `minimize`; None for that of the algorithm.
        Its weight counts only if an array: as factors.
    algorithm: as for `minimize`, None for its choice.
    values: of the regulariser's `field`, or their number; then they fall geometrically from
        `weight_max` to `smallest` times it.
    field: the number of the regulariser that changes, as in `sweep` without the prefix: in ByName
        "weight" is that of every part, "*kernel.weight" that of the pattern "*kernel".
    options: as for `minimize`, without checkpoints; weights="size" weighs the clients.

    Returns a table with the last row of each run's history, and the models. One warning tells of
    all weights that did not converge.
    """
    require_no_checkpoint("path", options)
    if options.get("trials", 1) != 1:
        raise wrong_value("trials", options["trials"], "1 for a path, which has one run a weight")
    problem = checked_problem(problem)
    if algorithm is None:
        phi = as_regularizer(regularizer)
    else:
        phi = with_regularizer(algorithm, regularizer).regularizer
        algorithm = replace(algorithm, regularizer=Zero())
    if not isinstance(values, Iterable):
        require_integer(values=values)
        require_share(smallest=smallest)
        top = weight_max(problem, phi, field, weights=options.get("weights", "uniform"))
        values = list(np.geomspace(top, smallest * top, int(values)))
    values = sorted(values, reverse=True)
    if not values:
        raise wrong_value("values", "[]", "at least one weight, or their number")
    rows, models, endings = [], [], []
    for weight in values:
        here = phi.with_fields({field: float(weight)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            result = minimize(problem, here, algorithm, **options)
        problem = problem.with_params(result.params)
        about = {field: weight, "stopped": result.stopped, "converged": result.converged}
        rows.append(about | dict(result.history.iloc[-1]))
        models.append(result.params)
        endings.append(result.ending)
        if result.stopped == "interrupted":
            warnings.warn(
                f"the path was interrupted at {field}={weight:g}, number {len(models)} of "
                f"{len(values)} weights",
                RuntimeWarning,
                stacklevel=2,
            )
            break
    if sentence := summary_of(endings, "weights"):
        warnings.warn(sentence, ConvergenceWarning, stacklevel=2)
    import pandas as pd

    return pd.DataFrame(rows), models
