import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys

import jax
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file

import compositefl as cfl

COLUMNS = [
    "round",
    "trial",
    "psi",
    "loss",
    "natural_residual_sq",
    "normal_map_sq",
    "zeros",
    "hoyer",
    "accuracy",
    "gradients",
    "prox_clients",
    "prox_server",
    "bytes_up",
    "bytes_down",
    "seconds",
]
PROGRAM = [sys.executable, "-m", "compositefl"]
FILES = ["config.json", "history.csv", "model.safetensors", "plot.png", "report.html"]


def shell(*words, **options):
    return subprocess.run(
        [*PROGRAM, *words], capture_output=True, text=True, timeout=120, **options
    )


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_documented_command(tmp_path, cli):
    out = tmp_path / "a" / "b"
    line = (
        "run --dataset digits --model mlp --hidden 32 --partition label --clients 20 "
        "--algorithm fednmap --gamma 4 --local-steps 10 --local-lr 0.1 --server-lr 1 "
        "--batch-size 32 --rounds 20 --regularizer elastic-net:0.001,0.01 --seed 0 --trials 3 "
        "--eval-every 10 --out"
    )
    as_user = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = shell(*line.split(), str(out), env=as_user)
    assert done.returncode == 0, done.stderr
    assert files(out) == FILES
    assert files(out.parent) == ["b"]  # no temporary folder is left
    history = pd.read_csv(out / "history.csv")
    assert list(history) == COLUMNS
    assert list(history["round"]) == [0, 0, 0, 10, 10, 10, 20, 20, 20]
    assert list(history["trial"]) == [0, 1, 2] * 3
    assert (out / "plot.png").read_bytes().startswith(b"\x89PNG")
    assert (out / "plot.png").stat().st_size < 150_000
    model = load_file(out / "model.safetensors")
    assert {name: array.shape for name, array in model.items()} == {
        "dense0/kernel": (3, 64, 32),
        "dense0/bias": (3, 32),
        "dense1/kernel": (3, 32, 10),
        "dense1/bias": (3, 10),
    }
    for trial, share in enumerate(history["zeros"].tail(3)):
        entries = np.concatenate([array[trial].ravel() for array in model.values()])
        assert np.mean(entries == 0) == pytest.approx(share, abs=1e-6)
        assert share > 0.02
    # All other tests compile with fewer optimisations (conftest.py): the numbers are the same.
    assert cli(*line.split(), tmp_path / "here").code == 0
    here = pd.read_csv(tmp_path / "here" / "history.csv")
    np.testing.assert_allclose(here["psi"], history["psi"], rtol=1e-5)
    assert "natural residual at gamma = 4" in done.stdout
    assert "FedNMap" in done.stdout and "\x1b" not in done.stdout


def test_it_is_what_minimize_returns(run, tmp_path):
    assert run("--gamma", "2", "--partition", "iid", "--seed", "5", "--out", tmp_path).code == 0
    digits = cfl.data.load("digits")
    clients = cfl.partition.iid(digits.train, clients=4, seed=5)
    problem = cfl.models.mlp((64, 4, 10)).problem(clients, test=digits.test, seed=5)
    algorithm = cfl.FedNMap(gamma=2.0, local_steps=2, local_lr=0.1)
    numbers = {"rounds": 4, "eval_every": 2, "batch_size": 8, "seed": 5, "eval_gamma": 2.0}
    result = cfl.minimize(problem, cfl.L1(0.01), algorithm, **numbers)
    model = load_file(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(model["dense0/kernel"], result.params["dense0"]["kernel"])
    history = pd.read_csv(tmp_path / "history.csv").drop(columns="seconds")
    pd.testing.assert_frame_equal(
        history, result.history.drop(columns="seconds"), check_dtype=False, rtol=1e-6
    )
    loaded = cfl.Result.load(tmp_path, like=result.params)
    np.testing.assert_equal(loaded.params, jax.tree.map(np.asarray, result.params))
    assert loaded.summary() == result.summary() and loaded.rounds == 4
    assert loaded.config == json.loads(json.dumps(result.config)) and loaded.diverged == [0]


def test_config_repeats_the_run(run, cli, tmp_path):
    words = ["--regularizer", "l1:10", "--unpenalized", "dense1/*", "--participation", "2"]
    words += ["--partition", "dirichlet", "--alpha", "0.5", "--trials", "2", "--seed", "3"]
    words += ["--algorithm", "fedmid", "--set", "prox-at=server", "--dropout", "0.1"]
    assert run(*words, "--out", tmp_path / "first").code == 0
    config = json.loads((tmp_path / "first" / "config.json").read_text())
    assert config["options"]["alpha"] == 0.5
    assert config["runs"]["fedmid"]["stopped"] == "rounds"
    program, *again = shlex.split(config["command"])
    assert program == "compositefl"
    assert cli(*again, "--out", tmp_path / "second").code == 0
    first, second = (load_file(tmp_path / d / "model.safetensors") for d in ("first", "second"))
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])
    assert not first["dense0/kernel"].any()  # so strong is this regulariser
    assert first["dense1/kernel"].all()  # which leaves these alone


def test_quiet_and_no_folder(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("--quiet") == (0, "", "")
    assert not list(tmp_path.iterdir())


def test_tolerance_stops_the_run(run, tmp_path):
    assert run("--tolerance", "1e9", "--out", tmp_path / "out").code == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["runs"]["fednmap"]["stopped"] == "tolerance"


def test_synthetic_data(cli, tmp_path):
    line = "run --dataset synthetic --alpha 1 --beta 0.5 --clients 3 --model logistic --rounds 2"
    options = "--data-option classes=2 --data-option features=5 --data-option normalize=true"
    answer = cli(
        *line.split(), *options.split(), *["--algorithm", "pgd", "--lr", "1", "--out"], tmp_path
    )
    assert answer.code == 0, answer.err
    history = pd.read_csv(tmp_path / "history.csv")
    assert "accuracy" not in history  # there is no test set
    assert load_file(tmp_path / "model.safetensors")["dense0/kernel"].shape == (5, 1)


def test_an_earlier_result_is_replaced(run, tmp_path):
    (tmp_path / "config.json").write_text('{"compositefl": "0.1.0"}')
    for name in ("history.csv", "model-fedavg.safetensors", "notes.txt"):
        (tmp_path / name).write_text("old")
    assert run("--out", tmp_path, "--overwrite").code == 0
    assert files(tmp_path) == sorted([*FILES, "notes.txt"])
    assert (tmp_path / "history.csv").read_text() != "old"


def test_a_folder_with_other_files_is_refused(run, tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    answer = run("--out", tmp_path)
    assert answer.code == 2
    assert "thesis.tex" in answer.err and "--overwrite" in answer.err
    assert files(tmp_path) == ["thesis.tex"]
    assert run("--out", tmp_path, "--overwrite").code == 0
    assert files(tmp_path) == sorted([*FILES, "thesis.tex"])


def test_divergence_keeps_what_there_is(cli, tmp_path):
    line = "run --model linear --clients 2 --algorithm prox-sgd --lr 100 --rounds 90 --out"
    answer = cli(*line.split(), tmp_path / "out")
    assert answer.code == 1
    assert re.fullmatch(r"warning: prox-sgd: diverged .* in round \d+;.*\n", answer.err)
    assert files(tmp_path / "out") == FILES
    assert np.isfinite(load_file(tmp_path / "out" / "model.safetensors")["dense0/kernel"]).all()
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    about = config["runs"]["prox-sgd"]
    assert about["stopped"] == "diverged" and about["diverged"][0] > 0
    assert cfl.Result.load(tmp_path / "out").summary() == about["summary"]
    for later in ("diverged", "converged", "ended_badly"):  # folders of earlier versions lack them
        del about[later]
    (tmp_path / "out" / "config.json").write_text(json.dumps(config))
    loaded = cfl.Result.load(tmp_path / "out")
    assert loaded.stopped == "diverged" and loaded.rounds == about["rounds_run"]


def test_checkpoint_and_resume(run, tmp_path):
    state = ["--checkpoint", tmp_path / "out" / "state.npz"]
    assert run(*state, "--rounds", "2", "--out", tmp_path / "out").code == 0
    refused = run(*state, "--out", tmp_path / "out")
    assert refused.code == 2 and "--resume" in refused.err
    assert run(*state, "--resume", "--out", tmp_path / "out").code == 0
    assert run("--out", tmp_path / "whole").code == 0
    resumed, whole = (load_file(tmp_path / d / "model.safetensors") for d in ("out", "whole"))
    for name, array in whole.items():
        np.testing.assert_array_equal(array, resumed[name])
    assert "state.npz" in files(tmp_path / "out")
    other = run(*state, "--resume", "--local-lr", "0.2", "--out", tmp_path / "other")
    assert other.code == 2 and "another run" in other.err
    assert not (tmp_path / "other").exists()


def test_a_failure_while_writing_leaves_nothing(run, tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr("compositefl.cli.runs.plot", fail)
    answer = run("--out", tmp_path / "out")
    assert answer.code == 1
    assert "error: No space left on device" in answer.err
    assert not list(tmp_path.iterdir())


def test_interrupt_keeps_what_there_is_and_another_process_resumes(cli, tmp_path):
    words = "run --dataset synthetic --alpha 1 --beta 1 --model multinomial --clients 2 "
    words += "--algorithm pgd --lr 0.000001 --eval-every 100 --checkpoint "
    words = [*words.split(), str(tmp_path / "state.npz")]
    first = ["--rounds", "100000000", "--out", str(tmp_path / "out")]
    ours, theirs = os.openpty()  # a terminal, where the progress bar shows when rounds begin
    process = subprocess.Popen([*PROGRAM, *words, *first], stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    seen = b""
    try:
        while b"residual" not in seen:
            seen += os.read(ours, 1000)
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # how a terminal says that the other side is closed
            while data := os.read(ours, 1000):
                seen += data
        assert process.wait(timeout=60) == 130, seen
    finally:
        process.kill()
        os.close(ours)
    assert b"interrupted: pgd stopped after round" in seen
    assert b"Traceback" not in seen
    assert files(tmp_path / "out") == FILES
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    about = config["runs"]["pgd"]
    assert about["stopped"] == "interrupted"
    rounds = pd.read_csv(tmp_path / "out" / "history.csv")["round"]
    assert rounds.iloc[-1] == about["rounds_run"]
    assert f"after round {about['rounds_run']}:" in about["summary"]
    end = about["rounds_run"] + 2
    answer = cli(*words, "--rounds", end, "--resume", "--out", tmp_path / "on")
    assert answer.code == 0, answer.err
    history, resumed = (pd.read_csv(tmp_path / d / "history.csv") for d in ("out", "on"))
    assert list(resumed["round"]) == [*range(0, end, 100), end]
    kept = sum(resumed["round"] <= rounds.iloc[-1])  # not run again, as their seconds tell
    assert list(resumed["seconds"][:kept]) == list(history["seconds"][:kept])


def test_help_and_version(cli):
    version = shell("--version")
    assert (version.returncode, version.stdout) == (0, f"compositefl {cfl.__version__}\n")
    for command in ("run", "compare", "list", "demo"):
        assert command in cli("--help").out
        assert cli(command, "--help").code == 0


def test_no_algorithm_and_no_number(cli):
    """Small and convex: Newton. With minibatches: FedNMap, whose numbers set themselves."""
    few = "run --dataset synthetic --model logistic --data-option classes=2 --clients 4 --rounds 8"
    few = few.split()
    newton = cli(*few, "--regularizer", "l1:0.01")
    assert newton.code == 0 and "prox-newton: converged in 8 rounds" in newton.out
    auto = cli(*few, "--batch-size", 8, "--local-steps", "auto")
    assert auto.code == 0 and "FedNMap" in auto.out
