"""The example of docs/adding-a-regularizer.md does what the page says."""

import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import compositefl as cfl
from compositefl.deployment import Federation
from compositefl.regularizers import parse
from tests.deployment.deployment_cases import OWN, text

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-regularizer.md"


@pytest.fixture(scope="module")
def example():
    """The page's two files as modules."""
    blocks = re.findall(r"```python\n# (\w+)\.py\n(.*?)```", PAGE.read_text(), re.DOTALL)
    modules = {}
    for name, code in blocks:
        modules[name] = sys.modules[name] = types.ModuleType(name)
        exec(compile(code, f"{name}.py", "exec"), modules[name].__dict__)
    yield modules
    for name in modules:
        del sys.modules[name]


@pytest.mark.parametrize("t", [0.01, 0.5, 3.0])
def test_its_own_test_passes(example, t):
    example["test_huber"].test_prox_is_the_minimiser(t)


def test_it_runs_in_sweeps_and_in_by_name(example, network_problem):
    huber = example["huber"].Huber
    phi = cfl.ByName({"*bias": cfl.Zero(), "*": huber(0.1)})
    algorithm = cfl.FedNMap(gamma=0.5, local_steps=2, local_lr=0.05)
    grid = {"regularizer.weight": [0.0, 5.0]}
    _, models = cfl.sweep(
        network_problem, phi, algorithm, grid, models=True, rounds=3, progress=False
    )
    small, large = (np.abs(m["hidden"]["kernel"]).sum() for m in reversed(models))
    assert small < large
    z = np.array([2.0, -2.0])
    np.testing.assert_allclose(huber(np.array([1.0, 0.0])).prox(z, 0.5), [1.5, -2.0])
    with pytest.raises(cfl.CompositeFLError, match="weight=-1 must be a finite number >= 0"):
        huber(-1)


def test_it_goes_by_its_name(example):
    given = "huber:Huber:0.1,0.5"
    phi = parse(given)
    assert isinstance(phi, example["huber"].Huber) and (phi.weight, phi.delta) == (0.1, 0.5)
    federation = Federation.parse(text(regularizer=given))
    assert federation.trusting([OWN, "huber"]).check().make_regularizer() == phi
    with pytest.raises(cfl.CompositeFLError, match="the module huber is not accepted here"):
        federation.trusting([OWN]).check()
