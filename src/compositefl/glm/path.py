"""The server of a fit: it walks all problems of a path down the alphas, a round at a time.

The fit to all samples and those without one fold each go side by side, each at its own pace: one
message a round carries their trial points, one answer their sums.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from compositefl.core.errors import CompositeFLError, ConvergenceWarning
from compositefl.glm.alphas import choose_alphas, largest_alpha
from compositefl.glm.curvature import SHARED, choose_columns, choose_kinds, symmetric
from compositefl.glm.newton import Hessian, Newton
from compositefl.glm.outcome import Path
from compositefl.glm.penalty import ElasticNet
from compositefl.glm.problems import Problems
from compositefl.glm.sites import Sites
from compositefl.glm.spec import Spec

Array = np.ndarray
SATURATED = 0.999  # share of the deviance explained at which a path ends
REJECTIONS = 25  # in a row, after which an alpha is given up


@dataclass
class Step:
    """The solution of one problem for one alpha, in standard units."""

    x: Array
    loss: float
    residual: float  # relative to the gradient at the start


@dataclass
class Walk:
    """One problem on its way down the alphas."""

    problem: int
    newton: Newton
    weight: float  # of its training samples
    tolerance: float
    steps: list[Step] = field(default_factory=list)
    rounds: int = 0  # for the present alpha
    shared: bool = False  # its Hessian is that of the common point
    over: bool = False


@dataclass(frozen=True)
class Progress:
    """How far a fit is, after a round of communication."""

    rounds: int  # so far
    solved: int  # alphas behind the slowest of the problems
    alphas: int  # how many there are; 0 before the largest one is known
    alpha: float  # that the slowest works on


Report = Callable[[Progress], object]


def fit_path(spec: Spec, sites: Sites, report: Report | None = None) -> Path:
    """Fit every alpha of the specification; `report` is called after every round."""
    return Server(spec, sites, report).run()


class Server:
    """The state of a fit."""

    def __init__(self, spec: Spec, sites: Sites, report: Report | None = None):
        self.spec, self.sites, self.report = spec, sites, report
        self.problems = Problems(spec, sites)
        self.walks = [
            Walk(
                q,
                self.problems.newton(q),
                float(self.problems.weight[q]),
                spec.tolerance,
            )
            for q in range(spec.problems)
        ]
        self.alphas = np.empty(0)
        self.alpha_max = 0.0
        self.null_loss = 0.0

    def run(self) -> Path:
        """First the models without penalised features, which the largest alpha needs; then down."""
        self._advance_all()
        first = self.walks[0].newton
        self.null_loss = first.loss
        self.alpha_max = largest_alpha(self.problems, first)
        self.alphas = choose_alphas(self.problems, self.alpha_max)
        for walk in self.walks:
            walk.over, walk.rounds = False, 0
            walk.newton.aim(self.problems.penalty(walk.problem, self.alphas[0]))
            self._next(walk)
        self._advance_all(down=True)
        return self._outcome()

    def _advance_all(self, down: bool = False) -> None:
        while active := [walk for walk in self.walks if not walk.over]:
            self._round(active)
            for walk in active:
                if not down:
                    walk.over = self._is_solved(walk)
                else:
                    self._next(walk)
            self._tell()

    def _round(self, active: list[Walk]) -> None:
        """One exchange with the sites: the trial points of these problems down, their sums up."""
        for walk in active:
            walk.newton.propose()
            walk.rounds += 1
        problems = self.problems
        columns = choose_columns(problems, active)
        kinds = choose_kinds(problems, active, len(columns))
        answer = self.sites.ask(
            "evaluate",
            points=np.array([walk.newton.trial for walk in active]),
            problems=np.array([walk.problem for walk in active]),
            hessians=kinds,
            columns=columns,
            mean=problems.scaling.centre,
            scale=problems.scaling.scale,
            intercept=self.spec.intercept,
        )
        index = problems.index(columns)
        triangles = iter(answer["hessian"])
        for i, walk in enumerate(active):
            hessian = None
            if kinds[i]:
                hessian = Hessian(symmetric(next(triangles), len(index)) / walk.weight, index)
                walk.shared = bool(kinds[i] == SHARED)
            walk.newton.receive(
                float(answer["loss"][i]) / walk.weight, answer["gradient"][i] / walk.weight, hessian
            )
            self._refuse_divergence(walk)

    def _next(self, walk: Walk) -> None:
        """Note solutions and go on to the alphas below."""
        newton = walk.newton
        while not walk.over and self._is_solved(walk):
            relative = newton.residual / newton.scale if newton.scale else 0.0
            walk.steps.append(Step(newton.x, newton.loss, relative))
            if walk.problem == 0 and self._explained(newton.loss) > SATURATED:
                self.alphas = self.alphas[: len(walk.steps)]
            if len(walk.steps) >= len(self.alphas):
                walk.over = True
                return
            walk.rounds = 0
            newton.aim(self.problems.penalty(walk.problem, self.alphas[len(walk.steps)]))

    def _is_solved(self, walk: Walk) -> bool:
        """Whether a problem is done with its alpha: solved, or given up."""
        newton = walk.newton
        gives_up = walk.rounds >= self.spec.max_rounds or newton.rejected > REJECTIONS
        return newton.done(walk.tolerance) or gives_up

    def _explained(self, loss: float) -> float:
        """The share of the deviance, for a path of our own choice."""
        if isinstance(self.spec.alphas, int):
            best = float(self.problems.described["saturated"] / self.problems.weight[0])
            return (self.null_loss - loss) / max(self.null_loss - best, 1e-300)
        return 0.0

    def _tell(self) -> None:
        if self.report is not None:
            count = len(self.alphas)
            solved = min(count, min(len(walk.steps) for walk in self.walks))
            alpha = float(self.alphas[min(solved, count - 1)]) if count else np.nan
            self.report(Progress(self.sites.rounds, solved, count, alpha))

    def _refuse_divergence(self, walk: Walk) -> None:
        """Without a penalty separated classes, for one, have no finite coefficients."""
        newton, family = walk.newton, self.spec.family
        if walk.problem or not family.recedes:
            return
        penalty, loose = newton.penalty, newton.free.copy()
        loose[: self.problems.k] = False
        if isinstance(penalty, ElasticNet):
            bounded = np.isfinite(penalty.lower) & np.isfinite(penalty.upper)
            loose &= (penalty.l1 == 0) & (penalty.l2 == 0) & ~bounded
        if newton.recedes(self.spec.tolerance, loose):
            apart = family.response == "class" and newton.loss < 1e-5
            what = (
                "the classes are perfectly separated"
                if apart
                else "features separate some samples (a group in which one outcome never occurs)"
            )
            raise CompositeFLError(
                f"{what}: without a penalty coefficients grow for ever. A ridge helps: "
                "alpha=0.001, l1_ratio=0"
            )

    def _outcome(self) -> Path:
        steps = [walk.steps[: len(self.alphas)] for walk in self.walks]
        self._warn(steps[0])
        return Path(
            self.alphas,
            np.array([[step.x for step in row] for row in steps]),
            np.array([[step.loss for step in row] for row in steps]),
            np.array([[step.residual for step in row] for row in steps]),
            self.problems.scaling,
            self.problems.rows,
            self.alpha_max,
        )

    def _warn(self, steps: list[Step]) -> None:
        """Say which alphas of the fit to all samples did not converge."""
        first = self.walks[0].newton
        enough = max(self.spec.tolerance, first.floor / first.scale if first.scale else 0.0)
        residuals = [step.residual for step in steps]
        failed = sum(not residual <= enough for residual in residuals)
        if failed:
            warnings.warn(
                f"{failed} of {len(self.alphas)} alphas did not converge in "
                f"{self.spec.max_rounds} rounds (residual {max(residuals):.1e} of the gradient at "
                f"the start, wanted {self.spec.tolerance:.0e})",
                ConvergenceWarning,
                stacklevel=5,
            )
