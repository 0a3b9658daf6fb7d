"""Rows reach those who listen while a run goes on."""

import json
import math
import sys
import types
import urllib.request

import pytest

import compositefl as cfl
from compositefl.report import notebook
from compositefl.report.live import serve
from compositefl.report.tracking import listen, tell

ROWS = [
    {"round": 0, "run": 0, "trial": 0, "psi": 2.0, "natural_residual_sq": 1.0, "zeros": 0.0},
    {"round": 5, "run": 0, "trial": 0, "psi": math.inf, "natural_residual_sq": 0.1, "zeros": 0.5},
]


def test_every_row_of_a_run_is_told(lasso_problem, tmp_path):
    algorithm = cfl.FedNMap(gamma=0.5, local_steps=2, local_lr=0.05)
    with cfl.track(f"jsonl:{tmp_path / 'new' / 'run.jsonl'}"):
        result = cfl.minimize(lasso_problem, "l1:0.1", algorithm, rounds=4, progress=False)
    lines = [json.loads(line) for line in (tmp_path / "new" / "run.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == list(result.history["round"])
    assert [line["psi"] for line in lines] == list(result.history["psi"])
    assert {line["method"] for line in lines} == {"FedNMap"}


def test_only_those_who_listen_now():
    heard = []
    with listen(lambda name, rows: heard.append((name, len(rows)))):
        tell("A", ROWS)
    tell("B", ROWS)
    assert heard == [("A", 2)]


def test_json_has_no_infinity(tmp_path):
    with cfl.track(f"jsonl:{tmp_path / 'a.jsonl'}"):
        tell("A", ROWS)
    assert json.loads((tmp_path / "a.jsonl").read_text().splitlines()[1])["psi"] is None


def test_tensorboard_reads_what_was_written(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with cfl.track(f"tensorboard:{tmp_path}"):
        tell("FedNMap", ROWS)
    events = EventAccumulator(str(tmp_path / "FedNMap-0"))
    events.Reload()
    read = events.Scalars("natural_residual_sq")
    assert [(e.step, round(e.value, 6)) for e in read] == [(0, 1.0), (5, 0.1)]
    assert [e.step for e in events.Scalars("psi")] == [0]  # infinity is no point


def test_mlflow_reads_what_was_written(tmp_path, monkeypatch):
    """Into a folder of the present one, as in the documentation."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.chdir(tmp_path)
    with cfl.track("mlflow:runs"):
        tell("FedNMap", ROWS)
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "runs").as_uri())
    (experiment,) = [e for e in client.search_experiments() if e.name == "compositefl"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "FedNMap-0" and run.info.status == "FINISHED"
    history = client.get_metric_history(run.info.run_id, "natural_residual_sq")
    assert [(m.step, m.value) for m in history] == [(0, 1.0), (5, 0.1)]


def test_weights_and_biases_gets_the_rows(monkeypatch):
    """Its package is not among those of the tests: a stand-in takes what it would get."""
    logged, finished = [], []

    class Run:
        def log(self, values, step):
            logged.append((step, values))

        def finish(self):
            finished.append(True)

    stand_in = types.ModuleType("wandb")
    stand_in.init = lambda **about: logged.append(about) or Run()
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    with cfl.track("wandb:mine"):
        tell("FedNMap", ROWS)
    assert logged[0] == {"project": "mine", "name": "FedNMap-0", "reinit": "create_new"}
    assert [step for step, _ in logged[1:]] == [0, 5] and finished == [True]


def test_wrong_places_are_refused():
    for place, words in {"csv:x": "unknown tracker 'csv'", "jsonl": "must say where"}.items():
        with pytest.raises(cfl.CompositeFLError, match=words), cfl.track(place):
            pass


def test_the_live_page_follows_the_run():
    said = []
    with serve("My run", said.append) as address:
        assert address.startswith("http://127.0.0.1:") and address in said[0]
        tell("FedNMap", ROWS[:1])
        first = urllib.request.urlopen(address, timeout=60).read().decode()
        assert 'data-live="now"' in first and "round 0" in first
        tell("FedNMap", ROWS)
        now = urllib.request.urlopen(address + "now", timeout=60).read().decode()
        assert "round 5" in now and now.startswith("<main>")
        with pytest.raises(urllib.error.HTTPError):
            urllib.request.urlopen(address + "other", timeout=60)
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=60)


def test_a_notebook_shows_a_bar_and_a_curve(monkeypatch, lasso_problem):
    shown = []

    class ZMQInteractiveShell:
        pass

    handle = types.SimpleNamespace(update=shown.append)
    display = types.ModuleType("IPython.display")
    display.HTML, display.display = str, lambda *a, **k: handle
    ipython = types.ModuleType("IPython")
    ipython.display, ipython.get_ipython = display, ZMQInteractiveShell
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    algorithm = cfl.FedNMap(gamma=0.5, local_steps=2, local_lr=0.05)
    cfl.minimize(lasso_problem, "l1:0.1", algorithm, rounds=4, progress=True)
    assert "round 4 of 4 (100%)" in shown[-1] and "<polyline" in shown[-1]
    count = len(shown)
    cfl.minimize(lasso_problem, "l1:0.1", algorithm, rounds=4, progress=False)
    assert len(shown) == count


def test_the_curve_of_a_notebook_leaves_out_what_has_no_logarithm():
    assert notebook.curve([1.0, math.inf, 0.0, 0.1]).split() == ["2.0,3.0", "258.0,45.0"]
    assert notebook.curve([0.0]) == ""
