"""The benchopt folder: its solvers agree on the minimum.

benchopt itself is not among the packages of the tests; its three base classes only hand parameters
and data from one part to the next, and a stand-in does that here.
"""

import importlib.util
import itertools
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import FULL

FOLDER = Path(__file__).parents[2] / "benchmarks" / "benchopt"


@pytest.fixture
def parts(monkeypatch):
    """load(file) -> its class, made with given parameters."""
    stand_in = types.ModuleType("benchopt")
    for name in ("BaseObjective", "BaseDataset", "BaseSolver"):
        setattr(stand_in, name, type(name, (), {}))
    monkeypatch.setitem(sys.modules, "benchopt", stand_in)
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in [n for n in sys.modules if n.startswith("benchmark_utils")]:
        monkeypatch.delitem(sys.modules, name)

    def load(file, kind, **parameters):
        spec = importlib.util.spec_from_file_location(Path(file).stem, FOLDER / file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        made = getattr(module, kind)()
        defaults = {}
        for names, values in getattr(made, "parameters", {}).items():
            words = [word.strip() for word in names.split(",")]
            value = values[0] if len(words) > 1 else (values[0],)
            defaults |= dict(zip(words, value, strict=True))
        for name, value in {**defaults, **parameters}.items():
            setattr(made, name, value)
        return made

    return load


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_solvers_agree_on_the_minimum(parts, task):
    size = {"n_sites": 3, "n_samples": 60, "n_features": 6, "heterogeneity": 0.5}
    data = parts("datasets/simulated.py", "Dataset", task=task, **size).get_data()
    objective = parts("objective.py", "Objective", reg=0.1)
    objective.set_data(**data)
    passed = objective.get_objective()
    values = {}
    files = ["fednmap", "prox_newton", "sklearn_pooled"]
    if FULL:  # ten seconds in which numba compiles
        pytest.importorskip("skglm")
        files.append("skglm_pooled")
    for file in files:
        solver = parts(f"solvers/{file}.py", "Solver")
        solver.set_objective(**passed)
        solver.run(400 if file in ("fednmap", "sklearn_pooled") else 30)
        values[file] = objective.evaluate_result(**solver.get_result())
    least = values["sklearn_pooled"]["value"]
    for file, found in values.items():
        assert found["value"] == pytest.approx(least, rel=1e-4), file
        assert found["natural_residual"] < 1e-2, file
    start = objective.evaluate_result(**objective.get_one_result())
    assert start["value"] > least and start["zeros"] == 1


def test_every_file_has_its_class(parts):
    files = itertools.chain(FOLDER.glob("solvers/*.py"), FOLDER.glob("datasets/*.py"))
    kinds = {"solvers": "Solver", "datasets": "Dataset"}
    made = [parts(f"{f.parent.name}/{f.name}", kinds[f.parent.name]) for f in sorted(files)]
    assert len({type(m).__module__ for m in made}) == len(made) >= 11
    data = parts("datasets/breast_cancer.py", "Dataset").get_data()
    assert np.shape(data["X"]) == (569, 30) and len(np.unique(data["sites"])) == 8
