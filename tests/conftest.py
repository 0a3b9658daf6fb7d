import os

import pytest

import compositefl  # noqa: F401  (before jax starts: makes every core a device)
from tests.problems import lasso, network

FULL = os.environ.get("COMPOSITEFL_TESTS") == "full"  # make test-full

if FULL:
    os.environ["COMPOSITEFL_NETWORK_TESTS"] = "all"
    os.environ["COMPOSITEFL_SLOW_TESTS"] = "1"
else:
    # Half the time to compile, which is most of the time of the tests on a new machine; programs
    # run slower. What users get, with all optimisations, runs in test_the_documented_command.
    os.environ["XLA_FLAGS"] += (
        " --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"
    )


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items):
    """Under xdist the tests of a file go to one process: they share what it has compiled."""
    for item in items:
        if "network" not in item.path.parts:  # these form one group, over several files
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="session")
def lasso_problem():
    return lasso()


@pytest.fixture(scope="session")
def network_problem():
    return network()
