"""The subproblem of a step is solved exactly: its optimality conditions hold to rounding."""

import numpy as np
import pytest

from compositefl.glm.subproblem import downhill, solve


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("bounded", [False, True])
def test_conditions_hold(seed, bounded):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40))
    half = rng.standard_normal((n, n)) * np.geomspace(1, 1e-3, n)  # badly conditioned
    A = half @ half.T + 1e-6 * np.eye(n)
    c, l1 = rng.standard_normal(n), rng.random(n) * (rng.random(n) < 0.8)
    lower = -rng.random(n) if bounded else np.full(n, -np.inf)
    upper = rng.random(n) if bounded else np.full(n, np.inf)
    y = solve(A, c, l1, lower, upper, rng.standard_normal(n))
    assert ((lower <= y) & (y <= upper)).all()
    size = np.abs(c) + l1 + np.abs(A) @ np.abs(y)
    assert (np.abs(downhill(A @ y + c, y, l1, lower, upper)) <= 1e-10 * size).all()
