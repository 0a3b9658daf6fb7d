"""The alphas of a path: the largest one, at which nothing has left zero, and those below."""

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.glm.newton import Newton
from compositefl.glm.penalty import ElasticNet
from compositefl.glm.problems import BARRED, Problems

Array = np.ndarray
LEAST_L1 = 1e-3  # l1_ratio below which the largest alpha is that of this one


def largest_alpha(problems: Problems, null: Newton) -> float:
    """The smallest alpha that keeps all penalised coefficients at zero.

    null: the fit to all samples without penalised features.
    """
    spec = problems.spec
    if spec.penalty is not None:
        return _largest_weight(problems, null) if isinstance(spec.alphas, int) else 0.0
    unit = problems.penalty(0, 1.0, max(spec.l1_ratio, LEAST_L1))
    assert isinstance(unit, ElasticNet)
    wish = np.abs(null.gradient)
    if spec.bounded:  # only the directions that the bounds leave
        zero = np.zeros(problems.size)
        wish = ElasticNet(zero, zero, unit.lower, unit.upper).residual(null.x, null.gradient)
    held = null.free & (unit.l1 > 0)
    return float((wish[held] / unit.l1[held]).max(initial=0.0))


def _largest_weight(problems: Problems, null: Newton) -> float:
    """The same for a regulariser of the library, by bisection over its weight."""

    barred = problems.barred(0)
    assert isinstance(barred, ElasticNet)
    held = null.free & (barred.l1 > 0)

    def is_zero(weight: float) -> bool:
        made = problems.penalty(0, weight)
        moved = made.residual(null.x, null.gradient)[held]
        return bool(moved.max(initial=0.0) <= 1e-9 * null.scale)

    high = null.scale or 1.0
    while not is_zero(high) and high < BARRED:
        high *= 2
    low = high / 2
    while is_zero(low) and low > high * 1e-12:
        low /= 2
    while high > low * (1 + 1e-7):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if is_zero(middle) else (middle, high)
    return float(high)


def choose_alphas(problems: Problems, largest: float) -> Array:
    """All alphas of a path, the largest first."""
    spec = problems.spec
    if spec.alphas is None:
        return np.array([np.nan])
    if not isinstance(spec.alphas, int):
        return np.sort(np.asarray(spec.alphas, float))[::-1]
    share = spec.smallest or (1e-4 if problems.rows > problems.p else 1e-2)
    if spec.unpenalised(problems.p).all():
        raise CompositeFLError(
            "no feature has a penalty: there is no alpha to choose", parameter="penalty_factor"
        )
    if largest <= 0:
        raise CompositeFLError("no feature tells anything of the target: there is no path")
    return np.geomspace(largest, share * largest, spec.alphas)
