"""Rounds on demand: for those who measure something else than the history of `minimize` has."""

from typing import Any

import jax

from compositefl.algorithms.base import Algorithm, automatic
from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Params
from compositefl.core.vector import unwrap
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer
from compositefl.solve.inputs import checked_problem, with_regularizer
from compositefl.solve.options import Options
from compositefl.solve.run import Run


class Trajectory:
    """The trajectory of `minimize` with the same options, round by round and without evaluations.

    `trials` independent runs go side by side.
    """

    def __init__(
        self,
        problem: Problem,
        regularizer: Regularizer | str | None,
        algorithm: Algorithm,
        *,
        trials: int = 1,
        **options: Any,
    ):
        chosen = Options(rounds=1, **options)  # where it ends is the caller's decision
        problem = checked_problem(problem)
        algorithm = with_regularizer(algorithm, regularizer)
        chosen.check(problem, algorithm)
        if automatic(algorithm):
            name = automatic(algorithm)[0]
            raise CompositeFLError(
                f"{name}='auto' is understood by minimize, not by a Trajectory",
                parameter=name,
                value="auto",
            )
        self._double = chosen.dtype == "float64"
        with jax.enable_x64(self._double):
            run = Run(problem, [algorithm] * trials, range(trials), chosen)
        self._simulation = run.simulation

    @property
    def round(self) -> int:
        """The number of rounds so far."""
        return int(self._simulation.round)

    def advance(self, stop: int) -> None:
        """Run all rounds before round `stop`, and wait for their end."""
        with jax.enable_x64(self._double):
            self._simulation.advance(stop)
            self._simulation.block_until_ready()

    def models(self) -> Params:
        """The present models, with the trials as leading axis."""
        with jax.enable_x64(self._double):
            return unwrap(self._simulation.models())
