"""Every experiment in miniature: its declarations, picture, verdicts and page cannot rot.

The data are small random ones of the right shapes and two rounds are run, so the verdicts mean
nothing here; only that they can be reached. Compiling is what such a run costs. So each experiment
builds its own problems, which checks data, partition and model against each other, and its methods
against its penalties; what runs is one small problem with one penalty, whose programs all
experiments share. The whole suite (COMPOSITEFL_TESTS=full) runs them on their own.
"""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from compositefl import data, models
from compositefl.algorithms.base import CompositeVariants
from compositefl.core.component import replace
from compositefl.data import partition
from compositefl.experiments import EXPERIMENTS, runner, write_index
from compositefl.experiments.declaration import PlannedRun
from compositefl.experiments.runner import fingerprint, reproduce
from compositefl.regularizers import L1, Zero
from tests.conftest import FULL

SHAPES = {
    "mnist": ((28, 28, 1), 10),
    "fashion-mnist": ((28, 28, 1), 10),
    "cifar10": ((32, 32, 3), 10),
    "a9a": ((123,), 2),
}
SHORT = {"rounds": 2, "trials": 2, "eval_every": 1}
ALIKE = {"batch_size": 4, "dtype": "float32", "devices": 1}  # what programs are made for
DEEP = ("fednmap-fig6", "fedcanon-fig3")  # seconds to build, minutes to compile


def fake_load(name, **options):
    if name not in SHAPES:
        return original_load(name, **options)
    shape, classes = SHAPES[name]
    rng = np.random.default_rng(0)

    def samples(count):
        x = rng.random((count, *shape), dtype=np.float32)
        return data.Samples(x, (np.arange(count) % classes).astype(np.int32))

    return data.Dataset(name, samples(1400), samples(50), classes)


original_load = data.load


@pytest.fixture(scope="module")
def stand_in():
    """Four clients, three classes, five features."""
    rng = np.random.default_rng(0)
    samples = data.Samples(rng.normal(size=(40, 5)), np.arange(40, dtype=np.int32) % 3)
    return models.multinomial(5, 3).problem(partition.iid(samples, 4), test=samples)


@pytest.fixture
def miniature(monkeypatch, stand_in):
    monkeypatch.setattr(data, "load", fake_load)
    run = runner.run_one

    def short(planned, problem, checkpoint, progress):
        new = dataclasses.replace(planned, options=planned.options | SHORT)
        if FULL:
            return run(new, problem, checkpoint, progress)
        replace(planned.algorithm, regularizer=planned.regularizer).check()
        smooth = isinstance(planned.algorithm, CompositeVariants)
        new = dataclasses.replace(
            new, options=new.options | ALIKE, regularizer=Zero() if smooth else L1(1e-3)
        )
        return run(new, stand_in, checkpoint, progress)

    monkeypatch.setattr(runner, "run_one", short)


DECLARED = [name for name, e in EXPERIMENTS.items() if e.runs is not None]


@pytest.mark.filterwarnings("ignore::compositefl.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", DECLARED)
def test_experiment_in_miniature(name, miniature, stand_in, tmp_path):
    experiment = EXPERIMENTS[name]
    if name in DEEP and not FULL:
        runs = [dataclasses.replace(p, problem=lambda: stand_in) for p in experiment.runs(True)]
        experiment = dataclasses.replace(experiment, runs=lambda _quick: runs)
    said = []
    verdicts = reproduce(experiment, tmp_path, quick=True, say=said.append, progress=False)
    assert verdicts and all(v.claim and v.paper and v.measured for v in verdicts)
    table = pd.read_csv(tmp_path / f"{name}.csv")
    assert len(said) == len(experiment.runs(True)) and len(table) == 6 * len(said)
    assert (tmp_path / f"{name}.png").stat().st_size > 2000
    page = (tmp_path / f"{name}.md").read_text()
    assert experiment.source in page and all(c in page for c in experiment.choices)
    write_index(tmp_path)
    index = (tmp_path / "README.md").read_text()
    assert index.count(f"[{name}]") == len(verdicts)


@pytest.mark.filterwarnings("ignore::compositefl.core.errors.ConvergenceWarning")
def test_runs_already_made_are_not_made_again(miniature, tmp_path):
    experiment = dataclasses.replace(EXPERIMENTS["zhang-fig3"], draw=lambda _table, _path: None)
    said = []
    once, again = (
        reproduce(experiment, tmp_path, quick=True, say=said.append, progress=False)
        for _ in range(2)
    )
    assert once == again and len(said) == len(experiment.runs(True))


def test_runs_have_different_fingerprints():
    for name in DECLARED:
        for quick in (True, False):
            runs: list[PlannedRun] = EXPERIMENTS[name].runs(quick)
            assert len({fingerprint(planned) for planned in runs}) == len(runs)
