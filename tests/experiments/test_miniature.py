"""Every experiment in miniature: its declarations, picture, verdicts and page cannot rot.

The data are small random ones of the right shapes and two rounds are run, so the verdicts mean
nothing here; only that they can be reached. Compiling is what such a run costs. So each experiment
builds its own problems, which checks data, partition and model against each other, and its methods
against its penalties and options; what runs is one small problem with one penalty, every method
once for all experiments. The whole suite (COMPOSITEFL_TESTS=full) runs them on their own.
"""

import dataclasses
import json

import jax
import numpy as np
import pandas as pd
import pytest

from compositefl import data, models
from compositefl.algorithms.base import CompositeVariants
from compositefl.core.component import replace
from compositefl.core.errors import CompositeFLError
from compositefl.core.files import only_one
from compositefl.data import partition
from compositefl.experiments import EXPERIMENTS, runner, write_index
from compositefl.experiments.declaration import PlannedRun
from compositefl.experiments.fedcanon import table6
from compositefl.experiments.pages import claims
from compositefl.experiments.runner import fingerprint, reproduce
from compositefl.regularizers import L1, Zero
from compositefl.solve.options import Options
from tests.conftest import FULL

SHAPES = {
    "mnist": ((28, 28, 1), 10),
    "fashion-mnist": ((28, 28, 1), 10),
    "cifar10": ((32, 32, 3), 10),
    "a9a": ((123,), 2),
}
SHORT = {"rounds": 2, "eval_every": 1}
ALIKE = {  # what programs are made for
    "batch_size": 4,
    "dtype": "float32",
    "devices": 1,
    "participation": 1.0,
    "dropout": 0.0,
}
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


class StandIn:
    """Four clients, three classes, five features."""

    def __call__(self):
        rng = np.random.default_rng(0)
        samples = data.Samples(rng.normal(size=(40, 5)), np.arange(40, dtype=np.int32) % 3)
        return models.multinomial(5, 3).problem(partition.iid(samples, 4), test=samples)

    def start(self, trial):
        params = models.multinomial(5, 3).init(jax.random.key(trial))
        rng = np.random.default_rng(trial)
        return jax.tree.map(lambda a: rng.normal(size=a.shape).astype(np.float32), params)


@pytest.fixture(scope="module")
def stand_in():
    return StandIn()()


histories = {}  # of the stand-in, by method and trial: other step sizes would tell no more here


@pytest.fixture
def miniature(monkeypatch, stand_in):
    monkeypatch.setattr(data, "load", fake_load)
    run = runner.run_one

    def short(planned, problem, trial, checkpoint, progress):
        new = dataclasses.replace(planned, options=planned.options | SHORT)
        if FULL:
            return run(new, problem, trial, checkpoint, progress)
        method = replace(planned.algorithm, regularizer=planned.regularizer)
        Options(**new.options).check(problem, method)
        known = type(planned.algorithm), trial
        if known in histories:
            return histories[known]
        smooth = isinstance(planned.algorithm, CompositeVariants)
        new = dataclasses.replace(
            new,
            problem=StandIn(),
            options=new.options | ALIKE,
            regularizer=Zero() if smooth else L1(1e-3),
        )
        histories[known] = run(new, stand_in, trial, checkpoint, progress)
        return histories[known]

    monkeypatch.setattr(runner, "run_one", short)


DECLARED = [name for name, e in EXPERIMENTS.items() if e.runs is not None]


def shortened(name):
    """The experiment with two trials, or one where nothing is random."""
    experiment = EXPERIMENTS[name]
    runs = [dataclasses.replace(p, trials=min(p.trials, 2)) for p in experiment.runs(True)]
    if name in DEEP and not FULL:
        runs = [dataclasses.replace(p, problem=StandIn()) for p in runs]
    return dataclasses.replace(experiment, runs=lambda _quick: runs)


@pytest.mark.filterwarnings("ignore::compositefl.core.errors.ConvergenceWarning")
@pytest.mark.parametrize("name", DECLARED)
def test_experiment_in_miniature(name, miniature, tmp_path):
    experiment = shortened(name)
    said = []
    verdicts = reproduce(experiment, tmp_path, quick=True, say=said.append, progress=False)
    assert verdicts and all(v.claim and v.paper and v.measured for v in verdicts)
    table = pd.read_csv(tmp_path / f"{name}.csv")
    parts = sum(planned.trials for planned in experiment.runs(True))
    assert len(said) == parts and len(table) == 3 * parts
    panel = [c for c in experiment.runs(True)[0].labels if c not in experiment.compares]
    for _, first in table[table["round"] == 0].groupby([*panel, "trial"]):
        start = first["loss"].to_numpy()  # of the same model
        assert FULL or np.allclose(start, start[0], rtol=1e-4), first
    assert (tmp_path / f"{name}.png").stat().st_size > 2000
    page = (tmp_path / f"{name}.md").read_text()
    assert experiment.source in page and all(c in page for c in experiment.choices)
    assert json.loads((tmp_path / f"{name}.json").read_text())["runs"] == parts
    write_index(tmp_path)
    index = (tmp_path / "README.md").read_text()
    assert index.count(f"[{name}]") == len(claims(verdicts))


@pytest.mark.filterwarnings("ignore::compositefl.core.errors.ConvergenceWarning")
def test_parts_already_made_are_not_made_again_and_whole_trials_alone_count(miniature, tmp_path):
    experiment = dataclasses.replace(shortened("zhang-fig3"), draw=lambda _table, _path: None)
    said = []

    def again(**options):
        return reproduce(
            experiment, tmp_path, quick=True, say=said.append, progress=False, **options
        )

    with pytest.raises(CompositeFLError, match="no trial is complete"):
        again(finished=True)
    once, first = again(), len(said)
    assert again() == once and len(said) == first
    planned = experiment.runs(True)[0]  # batch size 1
    (tmp_path / "parts" / experiment.name / f"{fingerprint(planned, 1)}.csv").unlink()
    (tmp_path / f"{experiment.name}.json").unlink()  # or the part would come from the table
    again(finished=True)
    table = pd.read_csv(tmp_path / f"{experiment.name}.csv")
    assert set(table[table["batch size"] == 1]["trial"]) == {0}
    assert set(table[table["batch size"] == 20]["trial"]) == {0, 1}


def test_two_processes_do_not_make_the_same_parts(tmp_path):
    name = "zhang-fig3"
    folder = tmp_path / "parts" / name
    folder.mkdir(parents=True)
    with (
        only_one(folder / "lock", "another"),
        pytest.raises(CompositeFLError, match=f"{name} in .* is at work already, as process"),
    ):
        reproduce(EXPERIMENTS[name], tmp_path, quick=True, progress=False)


@pytest.mark.filterwarnings("ignore::compositefl.core.errors.ConvergenceWarning")
def test_a_table_is_continued_on_another_machine(miniature, tmp_path):
    experiment = dataclasses.replace(shortened("fednmap-fig2"), draw=lambda _table, _path: None)
    said = []

    def again(parts):
        reproduce(experiment, tmp_path, quick=True, parts=parts, say=said.append, progress=False)
        return [(tmp_path / f"{experiment.name}.{end}").read_text() for end in ("csv", "json")]

    first, count = again(tmp_path / "here"), len(said)
    assert count == sum(planned.trials for planned in experiment.runs(True))
    assert again(tmp_path / "there") == first
    assert len(said) == count, "a part of the table was made again"
    about = json.loads(first[1])
    about["made"][0]["parts"].popitem()
    (tmp_path / f"{experiment.name}.json").write_text(json.dumps(about))
    again(tmp_path / "elsewhere")
    assert len(said) == count + 1


def test_runs_have_different_fingerprints():
    for name in DECLARED:
        for quick in (True, False):
            runs: list[PlannedRun] = EXPERIMENTS[name].runs(quick)
            made = [fingerprint(planned, trial) for planned in runs for trial in (0, 1)]
            assert len(set(made)) == len(made)


@pytest.mark.parametrize("fused, eager", [*zip(*table6.PENALTIES.values(), strict=True)])
def test_a_prox_outside_of_the_compiled_round_is_the_same_prox(fused, eager):
    z = np.random.default_rng(0).normal(0, 2e-3, (5, 7, 3))
    t = np.linspace(0.1, 2.0, 5)
    inside, outside = (jax.jit(jax.vmap(phi.prox))(z, t) for phi in (fused, eager))
    np.testing.assert_allclose(outside, inside, atol=1e-8, rtol=0)
    assert len({*np.sign(np.ravel(outside))}) == 3, "no zeros, or nothing but zeros"
