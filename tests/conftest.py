import gc
import os

import jax
import pytest

import compositefl  # noqa: F401  (before jax starts: makes every core a device)
from tests.problems import lasso, network

LONGEST = ("/network/", "/algorithms/", "/test_loop.py", "/test_matrix.py", "/experiments/")
LAST = ("/test_memory.py",)  # drops all compiled programs of its process
FULL = os.environ.get("COMPOSITEFL_TESTS") == "full"  # make test-full
QUICK_TO_COMPILE = (
    ""
    if FULL
    else " --xla_cpu_use_fusion_emitters=false --xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true --xla_cpu_parallel_codegen_split_count=1"
)

if FULL:
    os.environ["COMPOSITEFL_NETWORK_TESTS"] = "all"
    os.environ["COMPOSITEFL_SLOW_TESTS"] = "1"
else:
    # Half the time to compile, which is most of the time of the tests on a new machine; programs
    # run slower. What users get, with all optimisations, runs in test_the_documented_command.
    os.environ["XLA_FLAGS"] += QUICK_TO_COMPILE
    jax.config.update("jax_traceback_in_locations_limit", 0)  # a tenth of the time to trace
    # What is compiled twice, in several processes of the tests or in one, is compiled once.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    gc.set_threshold(50_000)  # tracing makes objects that stay: a twentieth of it looked for cycles


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config, log):
    """The tests of a file go to one process: they share what it has compiled.

    Marks of xdist_group do nothing under pytest 9.2: xdist 3.8 hands them on in a node id that
    pytest no longer reads.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            if "/network/" in file:
                return "network"  # these share one federation
            if "/algorithms/" in file or file.endswith("/test_loop.py"):
                return "methods"  # the same programs of rounds, compiled once
            return file

    config.option.loadscopereorder = False  # by number of tests: the longest would come last
    return ByFile(config, log)


def pytest_collection_modifyitems(items):
    """The longest groups first: a process that has one of them at the end keeps all waiting."""

    def place(item):
        if any(name in item.nodeid for name in LAST):
            return len(LONGEST) + 1
        return next((i for i, name in enumerate(LONGEST) if name in item.nodeid), len(LONGEST))

    items.sort(key=place)


@pytest.fixture(scope="session")
def lasso_problem():
    return lasso()


@pytest.fixture(scope="session")
def network_problem():
    return network()
