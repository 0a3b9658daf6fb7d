"""The subproblem of a proximal Newton step for an elastic net with bounds, solved exactly.

    minimise over y   1/2 y'A y + c'y + sum_j l1_j |y_j|,    lower <= y <= upper,

A positive definite. In turns: with the signs fixed, the linear system of the entries that are free,
and the best point on the way to its solution, at its end or where an entry passes zero or meets its
bound (as in the feature-sign search of Lee et al. 2006); then a pass of coordinate descent over the
other entries that are not optimal, which finds who leaves zero or its bound. The objective falls in
every turn; with the right signs one linear system gives the solution to the last digits.
"""

import numpy as np
from scipy.linalg.lapack import dposv

Array = np.ndarray
TURNS = 1000
SYSTEMS = 20  # linear systems between two passes over single entries
PATIENCE = 3  # turns without a gain after which what is left is rounding
EXACT = 1e-13  # residual that counts as zero, relative to the numbers that it is made of


def solve(A: Array, c: Array, l1: Array, lower: Array, upper: Array, start: Array) -> Array:
    """The minimiser, from a start that need not be feasible."""
    y = np.minimum(np.maximum(start, lower), upper)
    size = np.abs(A)
    no_gain, best = 0, np.inf
    for _ in range(TURNS):
        for _ in range(SYSTEMS):
            found = _free_entries(A, A @ y + c, l1, lower, upper, y)
            if found is None:
                break
            y, whole = found
            if whole:
                break
        q = A @ y + c
        wish = downhill(q, y, l1, lower, upper)
        wrong = np.abs(wish) > EXACT * (np.abs(c) + l1 + size @ np.abs(y))
        value = 0.5 * float(y @ (q + c)) + float(l1 @ np.abs(y))
        no_gain = 0 if value < best - 1e-15 * abs(best) else no_gain + 1
        best = min(best, value)
        if not wrong.any() or no_gain >= PATIENCE:
            break
        others = wrong & ~_free(y, l1, lower, upper)
        _single_entries(A, q, l1, lower, upper, y, others if others.any() else wrong)
    return y


def downhill(q: Array, y: Array, l1: Array, lower: Array, upper: Array) -> Array:
    """Minus the smallest subgradient at y: how each entry alone would like to move."""
    up = np.where(y >= 0, q + l1, q - l1)  # derivative to the right, and to the left
    down = np.where(y > 0, q + l1, q - l1)
    right = np.where(y < upper, np.maximum(-up, 0.0), 0.0)
    left = np.where(y > lower, np.maximum(down, 0.0), 0.0)
    return right - left


def _free(y: Array, l1: Array, lower: Array, upper: Array) -> Array:
    """Entries inside their bounds, and not at a zero that it would cost something to leave."""
    return (y > lower) & (y < upper) & ((y != 0) | (l1 == 0))


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
    A: Array, q: Array, l1: Array, lower: Array, upper: Array, y: Array
) -> tuple[Array, bool] | None:
    """A step of the free entries with their signs, and whether it is a whole one; None: no step.

    q: A y + c.
    """
    active = np.flatnonzero(_free(y, l1, lower, upper))
    if not len(active):
        return None
    here, weight = y[active], l1[active]
    slope = q[active] + weight * np.sign(here)
    _, step, wrong = dposv(A[active[:, None], active], -slope, lower=1)
    if wrong:
        return None
    target, low, high = here + step, lower[active], upper[active]
    crosses = (here * target < 0) & (weight > 0)
    outside = (target < low) | (target > high)
    new = y.copy()
    if not (crosses.any() or outside.any()):
        new[active] = target
        return (new, True) if np.any(target != here) else None
    with np.errstate(divide="ignore", invalid="ignore"):
        cross = np.where(crosses, -here / step, np.inf)
        wall = np.where(outside, np.where(step > 0, high - here, low - here) / step, np.inf)
    last = min(1.0, wall.min())
    stops = np.unique(np.append(cross[cross < last], last))
    # Along the step A step = -slope, so the quadratic needs no product with A.
    linear, bend = float(q[active] @ step), -0.5 * float(slope @ step)
    along = np.abs(here + stops[:, None] * step) @ weight
    t = stops[int(np.argmin(stops * linear + stops**2 * bend + along))]
    moved = here + t * step
    moved[cross == t] = 0.0
    hit = wall <= t
    moved[hit] = np.where(step[hit] > 0, high[hit], low[hit])
    new[active] = moved
    return (new, bool(t == 1.0)) if np.any(moved != here) else None
