"""Every experiment in miniature: its declarations, picture, verdicts and page cannot rot.

The data are small random ones of the right shapes and three rounds are run, so the verdicts mean
nothing here; only that they can be reached.
"""

import dataclasses
import os

import numpy as np
import pandas as pd
import pytest

from compositefl import data
from compositefl.experiments import EXPERIMENTS, runner, write_index
from compositefl.experiments.declaration import PlannedRun
from compositefl.experiments.runner import fingerprint, reproduce

SHAPES = {
    "mnist": ((28, 28, 1), 10),
    "fashion-mnist": ((28, 28, 1), 10),
    "cifar10": ((32, 32, 3), 10),
    "a9a": ((123,), 2),
}
LONG = {"rounds": 3, "trials": 1, "eval_every": 1}


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


@pytest.fixture
def miniature(monkeypatch):
    monkeypatch.setattr(data, "load", fake_load)
    run = runner.run_one

    def short(planned, problem, checkpoint, progress):
        options = {k: v for k, v in planned.options.items() if k not in LONG} | LONG
        return run(dataclasses.replace(planned, options=options), problem, checkpoint, progress)

    monkeypatch.setattr(runner, "run_one", short)


DECLARED = [name for name, e in EXPERIMENTS.items() if e.runs is not None]
SLOW = ("fednmap-fig6", "fedcanon-fig3")  # deep networks: minutes of compilation


@pytest.mark.parametrize("name", DECLARED)
def test_experiment_in_miniature(name, miniature, tmp_path):
    if name in SLOW and not os.environ.get("COMPOSITEFL_SLOW_TESTS"):
        pytest.skip("takes minutes; set COMPOSITEFL_SLOW_TESTS=1")
    experiment = EXPERIMENTS[name]
    said = []
    verdicts = reproduce(experiment, tmp_path, quick=True, say=said.append, progress=False)
    assert verdicts and all(v.claim and v.paper and v.measured for v in verdicts)
    table = pd.read_csv(tmp_path / f"{name}.csv")
    assert len(said) == len(experiment.runs(True)) and len(table) >= 4 * len(said)
    assert (tmp_path / f"{name}.png").stat().st_size > 2000
    page = (tmp_path / f"{name}.md").read_text()
    assert experiment.source in page and all(c in page for c in experiment.choices)
    # A second call finds every run made and gives the same table.
    said.clear()
    assert reproduce(experiment, tmp_path, quick=True, say=said.append, progress=False) == verdicts
    assert not said
    write_index(tmp_path)
    index = (tmp_path / "README.md").read_text()
    assert index.count(f"[{name}]") == len(verdicts)


def test_runs_have_different_fingerprints():
    for name in DECLARED:
        for quick in (True, False):
            runs: list[PlannedRun] = EXPERIMENTS[name].runs(quick)
            assert len({fingerprint(planned) for planned in runs}) == len(runs)
