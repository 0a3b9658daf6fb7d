import os

import pytest

import compositefl  # noqa: F401  (before jax starts: makes every core a device)
from tests.problems import lasso, network

# Half the time to compile, which is most of the time of the tests on a new machine; programs run
# slower. What users get, with all optimisations, runs in test_the_documented_command.
os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"


@pytest.fixture(scope="session")
def lasso_problem():
    return lasso()


@pytest.fixture(scope="session")
def network_problem():
    return network()
