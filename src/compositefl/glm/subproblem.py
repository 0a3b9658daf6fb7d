"""The subproblem of a proximal Newton step for an elastic net with bounds, solved exactly.

    minimise over y   1/2 y'A y + c'y + sum_j l1_j |y_j|,    lower <= y <= upper,

A positive definite. In turns: a pass of coordinate descent over the entries that are not optimal,
which finds who leaves zero and who comes back; then, with the signs fixed, the linear system of the
entries that are free, and the best point on the way to its solution, at its end or where an entry
passes zero or meets its bound (as in the feature-sign search of Lee et al. 2006). The objective
falls in every turn; with the right signs one linear system gives the solution to the last digits.
"""

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

Array = np.ndarray
TURNS = 1000
SYSTEMS = 20  # linear systems between two passes over single entries
PATIENCE = 3  # turns without a gain after which what is left is rounding
EXACT = 1e-13  # residual that counts as zero, relative to the numbers that it is made of


def solve(A: Array, c: Array, l1: Array, lower: Array, upper: Array, start: Array) -> Array:
    """The minimiser, from a start that need not be feasible."""
    y = np.clip(start, lower, upper)
    no_gain = 0
    for _ in range(TURNS):
        q = A @ y + c
        wish = downhill(q, y, l1, lower, upper)
        wrong = np.abs(wish) > EXACT * (np.abs(c) + l1 + np.abs(A) @ np.abs(y))
        if not wrong.any() or no_gain >= PATIENCE:
            break
        before = _value(A, c, l1, y)
        # Inside its bounds, and not at a zero that it would cost something to leave.
        free = (y > lower) & (y < upper) & ((y != 0) | (l1 == 0))
        if (wrong & ~free).any():
            _single_entries(A, q, l1, lower, upper, y, wrong)
        for _ in range(SYSTEMS):
            found = _free_entries(A, c, l1, lower, upper, y)
            if found is None:
                break
            y, whole = found
            if whole:
                break
        gain = before - _value(A, c, l1, y)
        no_gain = 0 if gain > 1e-15 * abs(before) else no_gain + 1
    return y


def downhill(q: Array, y: Array, l1: Array, lower: Array, upper: Array) -> Array:
    """Minus the smallest subgradient at y: how each entry alone would like to move."""
    up = np.where(y >= 0, q + l1, q - l1)  # derivative to the right, and to the left
    down = np.where(y > 0, q + l1, q - l1)
    right = np.where(y < upper, np.maximum(-up, 0.0), 0.0)
    left = np.where(y > lower, np.maximum(down, 0.0), 0.0)
    return right - left


def _value(A: Array, c: Array, l1: Array, y: Array) -> float:
    return float(0.5 * y @ (A @ y) + c @ y + l1 @ np.abs(y))


def _single_entries(
    A: Array, q: Array, l1: Array, lower: Array, upper: Array, y: Array, which: Array
) -> None:
    """Move each of these entries of y, in place, to where it is best while the others stay."""
    for j in np.flatnonzero(which):
        a, old = A[j, j], y[j]
        z = old - q[j] / a
        new = np.sign(z) * max(abs(z) - l1[j] / a, 0.0)
        new = min(max(new, lower[j]), upper[j])
        if new != old:
            q += A[j] * (new - old)
            y[j] = new


def _free_entries(
    A: Array, c: Array, l1: Array, lower: Array, upper: Array, y: Array
) -> tuple[Array, bool] | None:
    """A step of the free entries with their signs, and whether it is a whole one; None: no step."""
    free = (y > lower) & (y < upper) & ((y != 0) | (l1 == 0))
    active, rest = np.flatnonzero(free), np.flatnonzero(~free & (y != 0))
    if not len(active):
        return None
    right = c[active] + l1[active] * np.sign(y[active])
    if len(rest):
        right = right + A[np.ix_(active, rest)] @ y[rest]
    try:
        target = cho_solve(cho_factor(A[np.ix_(active, active)], lower=True), -right)
    except LinAlgError:
        return None
    here, step = y[active], target - y[active]
    low, high = lower[active], upper[active]
    with np.errstate(divide="ignore", invalid="ignore"):
        cross = np.where((here != 0) & (here * target < 0) & (l1[active] > 0), -here / step, np.inf)
        wall = np.where(step > 0, (high - here) / step, (low - here) / step)
    wall = np.where(step == 0, np.inf, wall)
    last = min(1.0, wall.min())
    stops = np.unique(np.append(cross[cross < last], last))
    d = np.zeros_like(y)
    d[active] = step
    linear, quadratic = (A @ y + c) @ d, 0.5 * (d @ (A @ d))
    values = [t * linear + t * t * quadratic + np.abs(here + t * step) @ l1[active] for t in stops]
    t = stops[int(np.argmin(values))]
    moved = here + t * step
    moved[cross == t] = 0.0
    hit = wall <= t
    moved[hit] = np.where(step[hit] > 0, high[hit], low[hit])
    new = y.copy()
    new[active] = moved
    return (new, bool(t == 1.0)) if np.any(moved != here) else None
