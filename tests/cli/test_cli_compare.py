import dataclasses
import json

import pandas as pd
import pytest
from safetensors.numpy import load_file

from compositefl.cli import demo
from compositefl.cli.hospitals import fit_hospitals
from tests.cli.cli_words import SMALL, STEPS


@pytest.fixture
def compare(cli):
    return lambda *words: cli("compare", *SMALL, *words)


def test_methods_take_the_numbers_they_have(compare, cli, tmp_path):
    words = ["--algorithms", "fednmap,fedmid,prox-sgd", *STEPS, "--lr", "0.5", "--gamma", "3"]
    answer = compare(*words, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "gamma = 3" in answer.out
    history = pd.read_csv(tmp_path / "out" / "history.csv")
    assert list(history)[:3] == ["algorithm", "round", "trial"]
    assert list(history["algorithm"].unique()) == ["fednmap", "fedmid", "prox-sgd"]
    assert len(history) == 3 * 3  # methods, evaluations
    start = history[(history["round"] == 0) & (history["algorithm"] != "fednmap")]
    assert start["psi"].nunique() == 1  # the same problem for all
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    runs = config["runs"]
    assert {run["eval_gamma"] for run in runs.values()} == {3.0}
    assert "gamma=3.0" in runs["fednmap"]["algorithm"]
    assert "lr=0.5" in runs["prox-sgd"]["algorithm"]
    assert "gamma" not in runs["fedmid"]["algorithm"]
    assert (tmp_path / "out" / "plot.png").exists()
    model = load_file(tmp_path / "out" / "model-fedmid.safetensors")
    assert model["dense0/kernel"].shape == (64, 4)
    assert "FedMiD" in (tmp_path / "out" / "report.html").read_text()
    together = cli("report", tmp_path / "out", "--out", tmp_path / "page.html")
    assert together.code == 0, together.err
    text = (tmp_path / "page.html").read_text()
    assert "What the clients hold" in text and config["runs"]["fednmap"]["summary"] in text
    nothing = cli("report", tmp_path)
    assert nothing.code == 2 and nothing.err.count("\n") == 1 and "history.csv" in nothing.err


def test_all_methods_are_checked_before_the_first_runs(compare, tmp_path):
    cases = {
        "fedavg,nmap": "unknown algorithm 'nmap'",
        "fedavg,fedavg": "occurs twice",
        "fedavg,pgd": "pgd needs --lr",
        " , ": "names no algorithm",
    }
    for names, text in cases.items():
        answer = compare("--algorithms", names, *STEPS, "--out", tmp_path / "out")
        assert answer.code == 2
        assert text in answer.err
        assert answer.err.count("\n") == 1  # nothing ran
    absent = compare("--algorithms", "fedavg,fedmid", *STEPS, "--gamma", "2")
    assert absent.code == 2
    assert "--gamma 2.0" in absent.err and "fedmid has --local-steps" in absent.err
    part = compare("--algorithms", "fedmid,fedcanon2", *STEPS, "--participation", "0.5")
    assert part.code == 2 and "FedCanonII" in part.err
    assert not list(tmp_path.iterdir())


def test_each_method_has_its_own_checkpoint(compare, tmp_path):
    words = ["--algorithms", "fednmap,fedmid", *STEPS, "--checkpoint", tmp_path / "state.npz"]
    assert compare(*words, "--rounds", "2").code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["state-fedmid.npz", "state-fednmap.npz"]
    assert compare(*words).code == 2
    assert compare(*words, "--resume").code == 0


def test_demo(cli, tmp_path, monkeypatch):
    small = dataclasses.replace(
        demo.SETTINGS, hidden="4", clients=4, batch_size=8, regularizer="l1:0.01"
    )
    monkeypatch.setattr(demo, "SETTINGS", small)
    answer = cli("demo", "--out", tmp_path / "demo", "--rounds", "2", "--trials", "1")
    assert answer.code == 0, answer.err
    assert {"plot.png", "history.csv"} <= {p.name for p in (tmp_path / "demo").iterdir()}
    history = pd.read_csv(tmp_path / "demo" / "history.csv")
    assert list(history["algorithm"].unique()) == list(demo.METHODS)
    for words in ("FedNMap", "ZA1", "FedCanon", "FedMiD", "exactly zero", "plot.png"):
        assert words in answer.out
    assert "Five hospitals" in answer.out and "scikit-learn's fit of the pooled table" in answer.out


def test_the_hospitals_of_the_demo_reach_the_pooled_fit():
    made = fit_hospitals()
    assert made.model.n_iter_ <= 15 and made.difference < 1e-6
    assert min(made.shares) < 0.05 and max(made.shares) > 0.95  # sites that differ


def test_the_words_of_the_demo_follow_the_numbers(lasso_problem):
    class Plan:
        problem = lasso_problem

    def row(residual, accuracy, zeros=0.5, psi=1.0):
        return {"natural_residual_sq": residual, "accuracy": accuracy, "zeros": zeros, "psi": psi}

    finals = {name: row(1e-4, 0.9) for name in ("FedNMap", "ZA1", "FedCanon")}
    far = row(1e-2, 0.3, psi=2.0)
    drifting = " ".join(demo.observations(finals | {"FedMiD": far}, Plan))
    assert "2.000 and an accuracy of 30%" in drifting and "drift" in drifting
    assert "almost flat" not in drifting and "is behind" not in drifting
    empty = {"FedCanon": row(1e-3, 0.9), "FedMiD": row(1e-6, 0.1, zeros=0.95)}
    flat = " ".join(demo.observations(finals | empty, Plan))
    assert "almost flat" in flat and "is behind: 1.0e-03" in flat
    equal = " ".join(demo.observations(finals | {"FedMiD": row(1e-4, 0.9)}, Plan))
    assert "1.000 and an accuracy of 90%" in equal and "drift" not in equal
