import numpy as np
import pytest

from tests.algorithms.helpers import quadratic


@pytest.fixture(scope="session")
def solution(lasso_problem):
    """The minimiser of the smooth part alone."""
    hessian, linear = quadratic(lasso_problem)
    assert np.linalg.eigvalsh(hessian)[0] > 0.3
    return np.linalg.solve(hessian, linear)
