import pytest

import compositefl  # noqa: F401  (before jax starts: makes every core a device)
from problems import lasso, network


@pytest.fixture(scope="session")
def lasso_problem():
    return lasso()


@pytest.fixture(scope="session")
def network_problem():
    return network()
