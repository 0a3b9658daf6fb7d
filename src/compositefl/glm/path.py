"""The server of a fit: it walks all problems of a path down the alphas, a round at a time.

The fit to all samples and those without one fold each go side by side, each at its own pace: one
message per round carries their trial points, one answer their sums.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from compositefl.core.errors import CompositeFLError, NotConverged
from compositefl.glm.alphas import choose_alphas, largest_alpha
from compositefl.glm.curvature import choose_columns, choose_problems
from compositefl.glm.layout import symmetric
from compositefl.glm.newton import Hessian, Newton
from compositefl.glm.outcome import Path
from compositefl.glm.penalty import ElasticNet
from compositefl.glm.problems import Problems
from compositefl.glm.sites import Sites
from compositefl.glm.spec import Spec

Array = np.ndarray
SATURATED = 0.999  # share of the deviance explained at which a path ends
UNEVEN = 0.1  # difference of two steps along a path, relative, up to which they are alike
REJECTIONS = 25  # in a row, after which an alpha is given up


@dataclass
class Step:
    """The solution of one problem for one alpha, in standard units."""

    x: Array
    gradient: Array
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
    took: int = 0  # rounds for the alpha before
    hessian_at: int = 0  # number of the alpha at which its Hessian was asked for
    aimed: bool = True  # at the alpha after its last solution
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
                spec.fold_tolerance if q else spec.tolerance,
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
            walk.over = walk.aimed = False
            self._next(walk)
        self._advance_all(down=True)
        return self._outcome()

    def _advance_all(self, down: bool = False) -> None:
        while active := [walk for walk in self.walks if walk.aimed and not walk.over]:
            self._round(active)
            for walk in self.walks:
                if down:
                    self._next(walk)
                else:
                    walk.over = self._is_solved(walk)
            self._tell()

    def _round(self, active: list[Walk]) -> None:
        """One round trip to the sites: the trial points of these problems down, their sums up."""
        for walk in active:
            walk.newton.propose()
            walk.rounds += 1
        problems, away = self.problems, self.sites.away
        columns = choose_columns(problems, active)
        wanted = choose_problems(problems, active, len(columns))
        answer = self.sites.ask(
            "evaluate",
            points=np.array([walk.newton.trial for walk in active]),
            problems=np.array([walk.problem for walk in active]),
            hessians=wanted,
            columns=columns,
            mean=problems.scaling.centre,
            scale=problems.scaling.scale,
            intercept=self.spec.intercept,
        )
        index = problems.index(columns)
        triangles = iter(answer["hessian"])
        for i, walk in enumerate(active):
            hessian = None
            if wanted[i]:
                hessian = Hessian(symmetric(next(triangles), len(index)) / walk.weight, index)
            walk.newton.comparable &= away == self.sites.away  # else losses of other functions
            accepted = walk.newton.receive(
                float(answer["loss"][i]) / walk.weight, answer["gradient"][i] / walk.weight, hessian
            )
            if accepted and hessian is not None:
                walk.hessian_at = len(walk.steps)
            self._refuse_divergence(walk)

    def _next(self, walk: Walk) -> None:
        """Note solutions and go on to the alphas below."""
        newton, first = walk.newton, self.walks[0]
        while not walk.over:
            at = len(walk.steps)
            if not walk.aimed:
                walk.aimed, walk.took, walk.rounds = True, walk.rounds, 0
                newton.aim(self.problems.penalty(walk.problem, self.alphas[at]), self._bend(walk))
            if not self._is_solved(walk):
                return
            relative = newton.residual / newton.scale if newton.scale else 0.0
            walk.steps.append(Step(newton.x, newton.gradient, newton.loss, relative))
            walk.aimed = False
            if walk is first and self._explained(newton.loss) > SATURATED:
                self.alphas = self.alphas[: len(walk.steps)]
            walk.over = len(walk.steps) >= len(self.alphas)

    def _bend(self, walk: Walk) -> Array | None:
        """What the gradient will do on the way to the next alpha beyond its linear model.

        Along a path of geometric alphas one step is like the last. With a Hessian that is j alphas
        older than the present solution, the last step's gradient missed the linear model by
        (j - 1/2) T d^2, T the third derivative; the next one will miss it by (j + 1/2) T d^2.
        """
        at, hessian = len(walk.steps), walk.newton.hessian
        if at < 2 or hessian is None or not self._is_even(at):
            return None
        a, b = walk.steps[-2], walk.steps[-1]
        j = at - 1 - walk.hessian_at
        missed = b.gradient - a.gradient - hessian.times(b.x - a.x)
        return (2 * j + 1) / (2 * j - 1) * missed

    def _is_even(self, at: int) -> bool:
        """Whether the step to this alpha is as long as the last one, in logarithms."""
        a, b, c = self.alphas[at - 2 : at + 1]
        if c <= 0 or a <= b:
            return False
        return bool(abs(np.log(b / c) / np.log(a / b) - 1) < UNEVEN)

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
                f"{what}: without a penalty coefficients grow for ever. A ridge helps: ",
                remedy="ridge",
            )

    def _outcome(self) -> Path:
        steps = [walk.steps[: len(self.alphas)] for walk in self.walks]
        first = self.walks[0].newton
        enough = max(self.spec.tolerance, first.floor / first.scale if first.scale else 0.0)
        self._warn(steps[0], enough)
        return Path(
            self.alphas,
            np.array([[step.x for step in row] for row in steps]),
            np.array([[step.loss for step in row] for row in steps]),
            np.array([[step.residual for step in row] for row in steps]),
            self.problems.scaling,
            self.problems.counted,
            self.alpha_max,
            enough,
        )

    def _warn(self, steps: list[Step], enough: float) -> None:
        """Say which alphas of the fit to all samples did not converge."""
        residuals = [step.residual for step in steps]
        failed = sum(not residual <= enough for residual in residuals)
        if failed:
            warnings.warn(
                f"{failed} of {len(self.alphas)} alphas did not converge in "
                f"{self.spec.max_rounds} rounds (residual {max(residuals):.1e} of the gradient at "
                f"the start, wanted {self.spec.tolerance:.0e})",
                NotConverged,
                stacklevel=5,
            )
