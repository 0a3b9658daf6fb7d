"""What is loaded when: help without JAX, and JAX's settings whenever JAX is loaded."""

import os
import subprocess
import sys
from importlib.metadata import version

import pytest

import compositefl as cfl

HEAVY = ("jax", "numpy", "pandas", "rich", "matplotlib", "pydantic")


def python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env=os.environ | environment,
    )


@pytest.mark.parametrize("words", [["--help"], ["run", "--help"], ["deploy", "--help"], []])
def test_help_loads_nothing_heavy(words):
    code = (
        "import sys\nfrom compositefl.cli import main\n"
        f"main({words})\n"
        f"print('loaded:', [name for name in {HEAVY} if name in sys.modules])"
    )
    done = python(code)
    assert done.stdout.startswith("Usage: compositefl"), done.stderr
    assert done.stdout.endswith("loaded: []\n")
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    "imports",
    [
        "import compositefl, importlib.util as u; u.find_spec('jax'); import jax.numpy as jnp; "
        "jnp.zeros(2) + 1; import jax",
        "import jax, compositefl",
        "from compositefl.regularizers.elementary import L1; import jax",
        "from compositefl import cluster; import jax",
    ],
)
def test_whoever_loads_jax_gets_the_settings(imports):
    done = python(f"{imports}; print(len(jax.devices()))", COMPOSITEFL_DEVICES="3")
    assert done.stdout == "3\n", done.stderr


def test_names_for_a_run_load_no_table_and_no_optimiser():
    names = "cfl.minimize, cfl.sweep, cfl.Problem, cfl.FedNMap, cfl.Mime, cfl.L1, cfl.models"
    late = ("pandas", "optax", "matplotlib", "sklearn", "rich", "pooch", "jax.extend")
    code = (
        f"import sys, compositefl as cfl; {names}; "
        f"print([name for name in {late} if name in sys.modules])"
    )
    done = python(code)
    assert done.stdout == "[]\n", done.stderr


def test_a_star_gives_the_curated_names():
    names = {}
    exec("from compositefl import *", names)
    del names["__builtins__"]
    assert sorted(names) == sorted(cfl.__all__)
    for name in ("minimize", "sweep", "path", "tune", "weight_max", "Problem", "Result"):
        assert name in names
    for name in ("Vector", "component", "static", "Regularizer", "SmoothAlgorithm", "partition"):
        assert name in names
    assert {cls.__name__ for cls in cfl.algorithms.ALGORITHMS.values()} <= set(names)
    assert {cls.__name__ for cls in cfl.regularizers.REGULARIZERS.values()} <= set(names)
    assert set(cfl.__all__) <= set(dir(cfl))


def test_other_names():
    assert cfl.TopK is cfl.algorithms.TopK
    assert cfl.__version__ == version("compositefl")
    with pytest.raises(AttributeError, match="no attribute 'minimise'"):
        _ = cfl.minimise
