"""The server of a fit: it walks all problems of a path down the alphas, a round at a time.

The fit to all samples and those without one fold each go side by side, each at its own pace: one
message a round carries their trial points, one answer their sums.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from compositefl.core.errors import CompositeFLError, ConvergenceWarning
from compositefl.glm import scaling
from compositefl.glm.newton import Hessian, Newton
from compositefl.glm.penalty import ElasticNet, General, Penalty
from compositefl.glm.scaling import Scaling
from compositefl.glm.sites import Sites
from compositefl.glm.spec import Spec

Array = np.ndarray
LARGEST = 4000  # entries of a Hessian: 128 MB a matrix, 64 MB an answer
ALL_COLUMNS = 100  # coefficients up to which a Hessian has them all
AHEAD = 0.5  # share of its weight from which on an entry's second derivatives are asked for
CHEAP = 3e8  # multiplications for Hessians in a round that are worth no thought
BARRED = 1e30  # a weight at which nothing leaves zero
ROUNDING = 32 * np.finfo(float).eps
SATURATED = 0.999  # share of the deviance explained at which a path ends
LEAST_L1 = 1e-3  # l1_ratio below which the largest alpha is that of this one


@dataclass
class Step:
    """The solution of one problem for one alpha, in standard units."""

    x: Array
    loss: float
    residual: float  # relative to the gradient at the start
    rounds: int  # that this alpha took


@dataclass
class Walk:
    """One problem on its way down the alphas."""

    problem: int
    newton: Newton
    weight: float  # of its training samples
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


@dataclass
class Path:
    """Solutions for all alphas. Arrays are by problem and alpha, in standard units."""

    alphas: Array
    x: Array  # (problems, alphas, entries)
    loss: Array
    residual: Array
    rounds: Array  # of the fit to all samples, by alpha
    scaling: Scaling
    weight: Array  # by problem
    rows: float
    null_loss: float
    alpha_max: float
    failed: list[float]  # alphas whose fit to all samples did not converge
    hessian: Array | None  # of the mean loss at the last solution, all free entries
    free: Array
    described: dict[str, Array]


def fit_path(spec: Spec, sites: Sites, report: Report | None = None) -> Path:
    """Fit every alpha of the specification; `report` is called after every round."""
    return Server(spec, sites, report).run()


class Server:
    """The state of a fit."""

    def __init__(self, spec: Spec, sites: Sites, report: Report | None = None):
        self.spec, self.sites, self.report = spec, sites, report
        problems = spec.problems
        self.described = sites.ask("describe", problems=problems)
        self.p = len(self.described["sum_x"])
        self.k = spec.family.outputs(spec.classes)
        self.weight = self.described["weight"]
        if (self.weight <= 0).any():
            raise CompositeFLError(
                "a fold holds all samples: fewer folds or more samples are needed"
            )
        mean, deviation = scaling.measure(sites, problems, self.described)
        centred = spec.intercept or spec.family.coupled
        self.scaling = scaling.choose(
            mean, deviation, intercept=centred, standardize=spec.standardize
        )
        if spec.penalty is not None and not spec.standardize:
            ones = (self.scaling.scale > 0).astype(float)
            self.scaling = Scaling(mean, deviation, self.scaling.centre, ones)
        self.size = (1 + self.p) * self.k + spec.family.has_scale
        self.walks = [
            Walk(q, Newton(*self._problem(q)), float(self.weight[q])) for q in range(problems)
        ]
        self.alphas = np.empty(0)
        self.alpha_max = 0.0
        self.null_loss = 0.0

    # --- what a problem is ----------------------------------------------------------------------

    def _coefficients(self, per_feature: Array, others: float = 0.0) -> Array:
        """A vector of all entries from one number for every feature."""
        out = np.full(self.size, others)
        out[self.k : self.k + self.p * self.k] = np.repeat(per_feature, self.k)
        return out

    def _problem(self, q: int) -> tuple[Array, Penalty, Array, float]:
        """Where a problem starts, its first penalty, what is free and what rounding leaves."""
        mean, square = (self.described[n][q][0] / self.weight[q] for n in ("sum_y", "sum_yy"))
        floor = ROUNDING * self.spec.family.rounding(float(mean), float(square))
        return self._start(q), self._barred(q), self._free(q), floor

    def _free(self, q: int) -> Array:
        """Entries that the model of a problem has."""
        varies = self.scaling.scale > 0
        if self.spec.standardize or self.spec.intercept:
            varies = varies & (self.scaling.deviation[q] > 0)
        free = self._coefficients(varies.astype(float), 1.0) > 0
        free[: self.k] = self.spec.intercept
        return free

    def _start(self, q: int) -> Array:
        """The model without features, as far as sums tell."""
        x = np.zeros(self.size)
        family, d = self.spec.family, self.described
        shares = d["sum_y"][q] / self.weight[q]
        if family.response != "number" and (shares <= 0).any():
            what = "a class has no samples" if family.response == "class" else "there is no event"
            raise CompositeFLError(what + self._where(q))
        if self.spec.intercept:
            with np.errstate(divide="ignore"):
                start = family.start(shares if family.response == "class" else shares[0])
            start = shares if start is None else start
            if not np.isfinite(start).all():
                raise CompositeFLError("y is zero for all samples" + self._where(q))
            x[: self.k] = start - d["sum_offset"] / self.weight[0]
        if family.has_scale:
            x[-1] = np.sqrt(max(d["sum_yy"][q][0] / self.weight[q] - shares[0] ** 2, 1e-300))
        return x

    def _where(self, q: int) -> str:
        return " in the training set of a fold; fewer folds are needed" if q else " with a weight"

    def _penalty(self, q: int, alpha: float, l1_ratio: float | None = None) -> Penalty:
        spec, s = self.spec, self.scaling
        if spec.penalty is not None:
            shape = (self.p,) if self.k == 1 else (self.p, self.k)
            made = General(spec.penalty, shape, self.k, self.size)
            return made if spec.alphas is None else made.at("weight", alpha)
        ratio = spec.l1_ratio if l1_ratio is None else l1_ratio
        safe = np.where(s.scale > 0, s.scale, 1.0)
        units = (s.deviation[q] if spec.standardize else 1.0) / safe
        factors = np.ones(self.p) if spec.factors is None else spec.factors
        lower = np.full(self.p, -np.inf) if spec.lower is None else spec.lower
        upper = np.full(self.p, np.inf) if spec.upper is None else spec.upper
        low, high = (
            self._coefficients(lower * safe, -np.inf),
            self._coefficients(upper * safe, np.inf),
        )
        if spec.family.has_scale:
            low[-1] = 1e-10 * max(self._start(q)[-1], 1e-300)
        return ElasticNet(
            self._coefficients(alpha * ratio * factors * units),
            self._coefficients(alpha * (1 - ratio) * factors * units**2),
            low,
            high,
        )

    def _barred(self, q: int) -> Penalty:
        """The penalty of the model in which only what is never penalised is free."""
        if self.spec.penalty is not None:
            l1 = self._coefficients(np.full(self.p, BARRED))
            zero, infinite = np.zeros(self.size), np.full(self.size, np.inf)
            return ElasticNet(l1, zero, -infinite, infinite)
        made = self._penalty(q, 1.0, l1_ratio=1.0)
        assert isinstance(made, ElasticNet)
        return ElasticNet(np.where(made.l1 > 0, BARRED, 0.0), 0 * made.l2, made.lower, made.upper)

    # --- the walk -------------------------------------------------------------------------------

    def run(self) -> Path:
        """First the models without penalised features, which the largest alpha needs; then down."""
        self._advance_all()
        first = self.walks[0].newton
        self.null_loss = first.loss
        self.alpha_max = self._largest_alpha(first)
        self.alphas = self._choose_alphas()
        for walk in self.walks:
            walk.over, walk.rounds = False, 0
            walk.newton.aim(self._penalty(walk.problem, self.alphas[0]))
            self._next(walk)
        self._advance_all(down=True)
        return self._outcome()

    def _advance_all(self, down: bool = False) -> None:
        while active := [walk for walk in self.walks if not walk.over]:
            self._round(active)
            for walk in active:
                if not down:
                    walk.over = walk.newton.done(self.spec.tolerance) or self._gives_up(walk)
                else:
                    self._next(walk)
            self._tell()

    def _tell(self) -> None:
        if self.report is not None:
            count = len(self.alphas)
            solved = min(count, min(len(walk.steps) for walk in self.walks))
            alpha = float(self.alphas[min(solved, count - 1)]) if count else np.nan
            self.report(Progress(self.sites.rounds, solved, count, alpha))

    def _gives_up(self, walk: Walk) -> bool:
        return walk.rounds >= self.spec.max_rounds or walk.newton.rejected > 25

    def _next(self, walk: Walk) -> None:
        """Note solutions and go on to the alphas below."""
        newton = walk.newton
        while not walk.over and (newton.done(self.spec.tolerance) or self._gives_up(walk)):
            relative = newton.residual / newton.scale if newton.scale else 0.0
            walk.steps.append(Step(newton.x, newton.loss, relative, walk.rounds))
            if walk.problem == 0 and self._explained(newton.loss) > SATURATED:
                self.alphas = self.alphas[: len(walk.steps)]
            if len(walk.steps) >= len(self.alphas):
                walk.over = True
                return
            walk.rounds = 0
            newton.aim(self._penalty(walk.problem, self.alphas[len(walk.steps)]))

    def _explained(self, loss: float) -> float:
        if isinstance(self.spec.alphas, int):  # a path of our own choice
            best = float(self.described["saturated"] / self.weight[0])
            return (self.null_loss - loss) / max(self.null_loss - best, 1e-300)
        return 0.0

    def _round(self, active: list[Walk]) -> None:
        for walk in active:
            walk.newton.propose()
            walk.rounds += 1
        columns = self._columns(active)
        kinds = self._kinds(active, len(columns))
        points = np.array([walk.newton.trial for walk in active])
        answer = self.sites.ask(
            "evaluate",
            points=points,
            problems=np.array([walk.problem for walk in active]),
            hessians=kinds,
            columns=columns,
            mean=self.scaling.centre,
            scale=self.scaling.scale,
            intercept=self.spec.intercept,
        )
        index = self._index(columns)
        at = 0
        for i, walk in enumerate(active):
            hessian = None
            if kinds[i]:
                hessian = Hessian(symmetric(answer["hessian"][at], len(index)) / walk.weight, index)
                at += 1
            walk.newton.receive(
                float(answer["loss"][i]) / walk.weight, answer["gradient"][i] / walk.weight, hessian
            )
            walk.shared = bool(kinds[i] == 2) if kinds[i] else walk.shared
            self._refuse_divergence(walk)

    def _columns(self, active: list[Walk]) -> Array:
        """Features whose second derivatives are asked for."""
        free = np.any([walk.newton.free for walk in active], axis=0)
        features = free[self.k : self.k + self.p * self.k].reshape(self.p, self.k).any(axis=1)
        if self.p * self.k > ALL_COLUMNS or self.spec.penalty is not None:
            wanted = np.any([walk.newton.wants(AHEAD) for walk in active], axis=0)
            wanted = wanted[self.k : self.k + self.p * self.k].reshape(self.p, self.k).any(axis=1)
            if not active[0].newton.begun:  # no gradient yet that tells
                wanted = np.zeros(self.p, bool)
            features &= wanted | (self.spec.penalty is not None)
        columns = np.flatnonzero(features)
        if len(columns) * self.k > LARGEST:
            raise CompositeFLError(
                f"{len(columns) * self.k:,} coefficients are free at the same time; second "
                f"derivatives of at most {LARGEST:,} are held (128 MB a matrix). A larger alpha or "
                "l1_ratio keeps more at zero; compositefl.FedNMap needs gradients alone"
            )
        return columns

    def _kinds(self, active: list[Walk], columns: int) -> Array:
        """Which Hessians to ask for: all while they are cheap, else those that are wanted."""
        size = (columns + 1) * self.k
        work = float(self.described["rows"]) * size**2
        if work * len(active) <= CHEAP:
            return np.ones(len(active), int)
        kinds = np.zeros(len(active), int)
        for i, walk in enumerate(active):
            if walk.newton.stale or not walk.newton.ready:
                first_try = not (walk.shared and walk.rounds > 1)
                together = i > 0 and first_try and not self.spec.family.coupled
                kinds[i] = 2 if together and self.walks[0] is active[0] else 1
        return kinds

    def _index(self, columns: Array) -> Array:
        """The entries that a Hessian of these columns has."""
        k = self.k
        first = np.arange(k) if self.spec.intercept else np.empty(0, int)
        features = (k + columns[:, None] * k + np.arange(k)).ravel()
        last = [self.size - 1] if self.spec.family.has_scale else []
        return np.concatenate([first, features, last]).astype(int)

    # --- alphas and the end ---------------------------------------------------------------------

    def _largest_alpha(self, newton: Newton) -> float:
        """The smallest alpha that keeps all penalised coefficients at zero."""
        spec = self.spec
        if spec.penalty is not None:
            return self._largest_weight(newton) if isinstance(spec.alphas, int) else 0.0
        unit = self._penalty(0, 1.0, max(spec.l1_ratio, LEAST_L1))
        assert isinstance(unit, ElasticNet)
        wish = np.abs(newton.gradient)
        if spec.bounded:  # only the directions that the bounds leave
            zero = np.zeros(self.size)
            wish = ElasticNet(zero, zero, unit.lower, unit.upper).residual(
                newton.x, newton.gradient
            )
        held = newton.free & (unit.l1 > 0)
        return float((wish[held] / unit.l1[held]).max(initial=0.0))

    def _largest_weight(self, newton: Newton) -> float:
        """The same for a regulariser of the library, by bisection over its weight."""

        def is_zero(weight: float) -> bool:
            made = self._penalty(0, weight)
            moved = made.residual(newton.x, newton.gradient)[newton.free]
            return bool(moved.max(initial=0.0) <= 1e-9 * newton.scale)

        high = newton.scale or 1.0
        while not is_zero(high) and high < BARRED:
            high *= 2
        low = high / 2
        while is_zero(low) and low > high * 1e-12:
            low /= 2
        while high > low * (1 + 1e-7):
            middle = np.sqrt(low * high)
            low, high = (low, middle) if is_zero(middle) else (middle, high)
        return float(high)

    def _choose_alphas(self) -> Array:
        spec = self.spec
        if spec.alphas is None:
            return np.array([np.nan])
        if not isinstance(spec.alphas, int):
            return np.sort(np.asarray(spec.alphas, float))[::-1]
        share = spec.smallest or (1e-4 if self.described["rows"] > self.p else 1e-2)
        if self.alpha_max <= 0:
            raise CompositeFLError("no feature tells anything of the target: there is no path")
        return np.geomspace(self.alpha_max, share * self.alpha_max, spec.alphas)

    def _refuse_divergence(self, walk: Walk) -> None:
        """Without a penalty separated classes, for one, have no finite coefficients."""
        newton, family = walk.newton, self.spec.family
        if walk.problem or not family.recedes:
            return
        penalty, loose = newton.penalty, newton.free.copy()
        loose[: self.k] = False
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
        first = self.walks[0].newton
        enough = max(self.spec.tolerance, first.floor / first.scale if first.scale else 0.0)
        failed = [
            float(alpha)
            for alpha, step in zip(self.alphas, steps[0], strict=True)
            if not step.residual <= enough
        ]
        full = first.hessian is not None and first.hessian.covers(first.free)
        path = Path(
            self.alphas,
            np.array([[step.x for step in row] for row in steps]),
            np.array([[step.loss for step in row] for row in steps]),
            np.array([[step.residual for step in row] for row in steps]),
            np.array([step.rounds for step in steps[0]]),
            self.scaling,
            self.weight,
            float(self.described["rows"]),
            self.null_loss,
            self.alpha_max,
            failed,
            first.hessian.matrix if full and first.hessian is not None else None,
            self._index(np.arange(self.p)) if full else np.empty(0, int),
            self.described,
        )
        if failed:
            worst = max(step.residual for step in steps[0])
            warnings.warn(
                f"{len(failed)} of {len(self.alphas)} alphas did not converge in "
                f"{self.spec.max_rounds} rounds (residual {worst:.1e} of the gradient at the "
                f"start, wanted {self.spec.tolerance:.0e})",
                ConvergenceWarning,
                stacklevel=4,
            )
        return path


def in_original_units(spec: Spec, path: Path, x: Array) -> tuple[Array, Array]:
    """(intercepts (..., k), coefficients (..., p, k)) of solutions (..., entries).

    With several classes what is not penalised is known up to a constant, the same for all classes:
    its mean over the classes is made zero.
    """
    k, p = spec.family.outputs(spec.classes), len(path.scaling.scale)
    b = x[..., k : k + p * k].reshape(*x.shape[:-1], p, k)
    intercept, b = path.scaling.to_original(x[..., :k], b)
    if k > 1:
        loose = np.zeros(p, bool) if spec.factors is None else spec.factors == 0
        if spec.penalty is None and not isinstance(spec.alphas, int) and not np.any(spec.alphas):
            loose[:] = True
        if not spec.bounded:
            b = np.where(loose[:, None], b - b.mean(axis=-1, keepdims=True), b)
        intercept = intercept - intercept.mean(axis=-1, keepdims=True)
    if spec.bounded:  # which dividing by the scale may miss by a rounding
        b = np.clip(b, _column(spec.lower), _column(spec.upper))
    return intercept if spec.intercept else np.zeros_like(intercept), b


def _column(bound: Array | None) -> Array | None:
    return None if bound is None else bound[:, None]


def symmetric(triangle: Array, size: int) -> Array:
    """The matrix with this lower triangle, row by row."""
    out = np.empty((size, size))
    lower = np.tril_indices(size)
    out[lower] = triangle
    out.T[lower] = triangle
    return out
