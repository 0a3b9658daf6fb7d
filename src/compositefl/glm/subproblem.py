"""The subproblem of a proximal Newton step for an elastic net with bounds, solved exactly.

    minimise over y   1/2 y'A y + c'y + sum_j l1_j |y_j|,    lower <= y <= upper,

A positive definite, by active sets (feature-sign search, Lee et al. 2006, with bounds): the free
entries keep their signs and solve a linear system; along the way to its solution the best point is
taken where an entry passes zero or meets its bound; entries whose gradient leaves the
subdifferential become free. The objective falls in every turn and there are finitely many sets, so
it ends at the solution.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

Array = np.ndarray
TURNS = 500
EXACT = 1e-13  # residual that counts as zero, relative to the numbers that it is made of


def solve(A: Array, c: Array, l1: Array, lower: Array, upper: Array, start: Array) -> Array:
    """The minimiser, from a start that need not be feasible."""
    y = np.clip(start, lower, upper)
    at_rounding = 0
    for _ in range(TURNS):
        q = A @ y + c
        wish = downhill(q, y, l1, lower, upper)
        wrong = np.abs(wish) > EXACT * (np.abs(c) + l1 + np.abs(A) @ np.abs(y))
        # Inside its bounds, and not at a zero that it would cost something to leave.
        free = (y > lower) & (y < upper) & ((y != 0) | (l1 == 0))
        if not wrong.any() or at_rounding == 2:
            break
        found = _turn(A, c, l1, lower, upper, y, free, wrong & ~free, wish)
        if found is None:
            break
        y, gains = found
        at_rounding += not gains
    return y


def downhill(q: Array, y: Array, l1: Array, lower: Array, upper: Array) -> Array:
    """Minus the smallest subgradient at y: how each entry alone would like to move."""
    up = np.where(y >= 0, q + l1, q - l1)  # derivative to the right, and to the left
    down = np.where(y > 0, q + l1, q - l1)
    right = np.where(y < upper, np.maximum(-up, 0.0), 0.0)
    left = np.where(y > lower, np.maximum(down, 0.0), 0.0)
    return right - left


def _turn(
    A: Array,
    c: Array,
    l1: Array,
    lower: Array,
    upper: Array,
    y: Array,
    free: Array,
    joining: Array,
    wish: Array,
) -> tuple[Array, bool] | None:
    """A better point and whether the objective is seen to fall, or None if there is none."""
    for _ in range(len(y) + 2):
        active = np.flatnonzero(free | joining)
        if not len(active):
            return None
        sign = np.where(joining & (y == 0), np.sign(wish), np.sign(y))[active]
        rest = np.setdiff1d(np.arange(len(y)), active, assume_unique=True)
        right = c[active] + l1[active] * sign
        if len(rest):
            right = right + A[np.ix_(active, rest)] @ y[rest]
        try:
            target = cho_solve(cho_factor(A[np.ix_(active, active)], lower=True), -right)
        except LinAlgError:
            return None
        step = target - y[active]
        # An entry that joins must move the way it wished; else it waits.
        back = joining[active] & (step * wish[active] <= 0)
        if not back.any():
            return _search(A, c, l1, lower, upper, y, active, step)
        joining = joining.copy()
        joining[active[back]] = False
        if not joining.any() and not np.any(wish[free]):
            # The free entries are solved: the one that gains most joins them alone, which is sure
            # to move the way it wishes.
            joining[int(np.argmax(np.where(free, 0.0, np.abs(wish))))] = True
    return None


def _search(
    A: Array,
    c: Array,
    l1: Array,
    lower: Array,
    upper: Array,
    y: Array,
    active: Array,
    step: Array,
) -> tuple[Array, bool] | None:
    """The best point on the way: the end, or where an entry passes zero or meets a bound."""
    here, low, high = y[active], lower[active], upper[active]
    with np.errstate(divide="ignore", invalid="ignore"):
        cross = np.where((here != 0) & (here * (here + step) < 0), -here / step, np.inf)
        wall = np.where(step > 0, (high - here) / step, (low - here) / step)
    wall = np.where(step == 0, np.inf, wall)
    last = min(1.0, wall.min())
    stops = np.unique(np.append(cross[cross < last], last))
    if len(stops) > 200:
        stops = np.unique(np.append(stops[:: len(stops) // 200], last))
    d = np.zeros_like(y)
    d[active] = step
    Ad, q = A @ d, A @ y + c
    linear, quadratic = q @ d, 0.5 * (d @ Ad)
    points = here + stops[:, None] * step
    values = stops * linear + stops**2 * quadratic + np.abs(points) @ l1[active]
    at = int(np.argmin(values))
    t = stops[at]
    new = y.copy()
    moved = here + t * step
    moved[np.isclose(cross, t, rtol=1e-14, atol=0)] = 0.0
    hit = wall <= t * (1 + 1e-14)
    moved[hit] = np.where(step[hit] > 0, high[hit], low[hit])
    new[active] = moved
    before = np.abs(here) @ l1[active]
    gains = before - values[at] > 1e-15 * (abs(linear) + abs(quadratic) + before)
    return None if np.array_equal(new, y) else (new, bool(gains))
