"""The problems of a fit: all samples, and all but those of one fold each.

All have the same entries and units; weights, deviations and hence penalties are their own.
"""

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.glm import scaling
from compositefl.glm.layout import hessian_index
from compositefl.glm.newton import Newton
from compositefl.glm.penalty import ElasticNet, General, Penalty
from compositefl.glm.scaling import Scaling
from compositefl.glm.sites import Sites
from compositefl.glm.spec import Spec

Array = np.ndarray
BARRED = 1e30  # a weight at which nothing leaves zero
ROUNDING = 32 * np.finfo(float).eps


class Problems:
    """What the sites' first sums tell: sizes, units, starts and penalties, in standard units."""

    def __init__(self, spec: Spec, sites: Sites):
        self.spec = spec
        self.described = sites.ask("describe", problems=spec.problems)
        _refuse_overflow(*(self.described[n] for n in ("weight", "sum_x", "sum_y", "sum_yy")))
        self.p = len(self.described["sum_x"])
        self.k = spec.family.outputs(spec.classes)
        self.size = (1 + self.p) * self.k + spec.family.has_scale
        self.rows = float(self.described["rows"])
        self.counted = float(self.described["counted"])  # rows with a weight
        self.weight = self.described["weight"]
        if (self.weight <= 0).any():
            raise CompositeFLError(
                "a fold holds all samples: fewer folds or more samples are needed"
            )
        self.scaling = self._units(sites)
        if not np.isfinite(self.penalty(0, 1.0).value(np.zeros(self.size))):
            raise CompositeFLError(
                f"penalty={spec.penalty!r} does not allow coefficients of zero, where a fit "
                "begins; compositefl.minimize takes it",
                parameter="penalty",
                value=spec.penalty,
            )

    def _units(self, sites: Sites) -> Scaling:
        spec = self.spec
        mean, deviation = scaling.measure(sites, spec.problems, self.described)
        _refuse_overflow(deviation)
        centred = spec.intercept or spec.family.coupled
        made = scaling.choose(mean, deviation, intercept=centred, standardize=spec.standardize)
        if spec.penalty is not None and not spec.standardize:
            ones = (made.scale > 0).astype(float)
            made = Scaling(mean, deviation, made.centre, ones)
        # Without an intercept a constant column is one, and no penalty asks for its units.
        constant = (made.scale == 0) & (mean != 0)
        self.as_intercept = constant & spec.unpenalised(self.p) & (not centred)
        scale = np.where(self.as_intercept, np.abs(mean), made.scale)
        return Scaling(mean, deviation, made.centre, scale)

    def coefficients(self, per_feature: Array, others: float = 0.0) -> Array:
        """A vector of all entries from one number for every feature."""
        out = np.full(self.size, others)
        out[self.k : self.k + self.p * self.k] = np.repeat(per_feature, self.k)
        return out

    def features(self, entries: Array) -> Array:
        """Which features have one of these entries."""
        found = entries[self.k : self.k + self.p * self.k].reshape(self.p, self.k)
        return np.asarray(found.any(axis=1))

    def index(self, columns: Array) -> Array:
        """The entries that a Hessian of these columns has."""
        spec = self.spec
        return hessian_index(columns, self.size, self.k, spec.intercept, spec.family.has_scale)

    def newton(self, q: int) -> Newton:
        """A problem at its start, where only what is never penalised is free."""
        mean, square = (self.described[n][q][0] / self.weight[q] for n in ("sum_y", "sum_yy"))
        level = ROUNDING * self.spec.family.rounding(float(mean), float(square))
        start = self.start(q)

        def floor(x: Array) -> float:
            # Where a fit is exact the scale of y falls, and residuals count in units of it.
            return level * float(start[-1] / x[-1]) if self.spec.family.has_scale else level

        return Newton(start, self.barred(q), self.free(q), floor)

    def free(self, q: int) -> Array:
        """Entries that the model of a problem has."""
        varies = self.scaling.scale > 0
        if self.spec.standardize or self.spec.intercept:
            varies = varies & ((self.scaling.deviation[q] > 0) | self.as_intercept)
        free = self.coefficients(varies.astype(float), 1.0) > 0
        free[: self.k] = self.spec.intercept
        return free

    def start(self, q: int) -> Array:
        """The model without features, as far as sums tell."""
        x = np.zeros(self.size)
        family, d = self.spec.family, self.described
        shares = d["sum_y"][q] / self.weight[q]
        if family.response != "number" and (shares <= 0).any():
            what = "a class has no samples" if family.response == "class" else "there is no event"
            raise CompositeFLError(what + _where(q))
        if self.spec.intercept:
            mean = shares if family.response == "class" else shares[0]
            if not np.isfinite(tilt := d["sum_tilt"][q] / self.weight[q]):
                raise CompositeFLError(
                    "an offset is too large: its exponential overflows", parameter="offset"
                )
            with np.errstate(divide="ignore"):
                start = family.start(mean, tilt)
            if not np.isfinite(start).all():
                raise CompositeFLError("y is zero for all samples" + _where(q), parameter="y")
            x[: self.k] = start
        if family.has_scale:
            x[-1] = np.sqrt(max(d["sum_yy"][q][0] / self.weight[q] - shares[0] ** 2, 1e-300))
        return x

    def penalty(self, q: int, alpha: float, l1_ratio: float | None = None) -> Penalty:
        """What a problem pays at this alpha."""
        spec, s = self.spec, self.scaling
        if spec.penalty is not None:
            shape = (self.p,) if self.k == 1 else (self.p, self.k)
            made = General(spec.penalty, shape, self.k, self.size)
            if spec.alphas is None:
                return made
            if spec.factors is None:
                return made.at("weight", alpha)
            factors = spec.factors if self.k == 1 else np.repeat(spec.factors, self.k)
            return made.at("weight", alpha * factors.reshape(shape))
        ratio = spec.l1_ratio if l1_ratio is None else l1_ratio
        safe = np.where(s.scale > 0, s.scale, 1.0)
        units = (s.deviation[q] if spec.standardize else 1.0) / safe
        factors = np.ones(self.p) if spec.factors is None else spec.factors
        lower = np.full(self.p, -np.inf) if spec.lower is None else spec.lower
        upper = np.full(self.p, np.inf) if spec.upper is None else spec.upper
        low, high = (
            self.coefficients(lower * safe, -np.inf),
            self.coefficients(upper * safe, np.inf),
        )
        if spec.family.has_scale:
            low[-1] = 1e-10 * max(self.start(q)[-1], 1e-300)
        return ElasticNet(
            self.coefficients(alpha * ratio * factors * units),
            self.coefficients(alpha * (1 - ratio) * factors * units**2),
            low,
            high,
        )

    def barred(self, q: int) -> Penalty:
        """The penalty of the model in which only what is never penalised is free."""
        if self.spec.penalty is not None:
            l1 = self.coefficients(np.where(self.spec.unpenalised(self.p), 0.0, BARRED))
            zero, infinite = np.zeros(self.size), np.full(self.size, np.inf)
            return ElasticNet(l1, zero, -infinite, infinite)
        made = self.penalty(q, 1.0, l1_ratio=1.0)
        assert isinstance(made, ElasticNet)
        return ElasticNet(np.where(made.l1 > 0, BARRED, 0.0), 0 * made.l2, made.lower, made.upper)


def _refuse_overflow(*sums: Array) -> None:
    """Numbers that are fine may have infinite sums: large weights times large squares."""
    if not all(np.isfinite(one).all() for one in sums):
        raise CompositeFLError(
            "sums over the samples overflow: choose other units for features, target or weights"
        )


def _where(q: int) -> str:
    return " in the training set of a fold; fewer folds are needed" if q else " with a weight"
