"""Earlier results are kept, a bad end is told, and a command that lacks numbers names some."""

import json

import pytest

from compositefl.cli.folder import is_result
from compositefl.solve.result import Result


def test_an_earlier_result_is_kept(run, tmp_path):
    out = ["--out", tmp_path / "out"]
    assert run(*out).code == 0
    before = (tmp_path / "out" / "config.json").read_text()
    refused = run(*out, "--rounds", "2")
    assert refused.code == 2
    assert "holds an earlier result" in refused.err and "--overwrite" in refused.err
    assert (tmp_path / "out" / "config.json").read_text() == before
    assert run(*out, "--rounds", "2", "--overwrite").code == 0
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["options"]["rounds"] == 2 and is_result(tmp_path / "out")


def test_the_exit_code_of_a_bad_end(run, monkeypatch):
    assert run().code == 0
    monkeypatch.setattr(Result, "ended_badly", True, raising=False)
    assert run().code == 1


def test_numbers_to_start_from(cli):
    assert "needs --lr; for example --lr 0.1." in cli("run", "--algorithm", "pgd").err
    fast = cli("run", "--algorithm", "fast-fedda", "--local-steps", "2").err
    assert fast == "error: fast-fedda needs --set strong_convexity=, --set proximity=\n"


TUNED = [
    "--hidden",
    "4",
    "--clients",
    "4",
    "--batch-size",
    "8",
    "--rounds",
    "4",
    "--eval-every",
    "2",
]


def test_tune_finds_the_step_size_itself(cli):
    words = ["tune", *TUNED, "--budget", "2", "--quiet", "--algorithms"]
    answer = cli(*words, "pgd")
    assert answer.code == 0, answer.err
    assert "lr" in answer.out
    answer = cli(*words, "fednmap")
    assert answer.code == 0 and "local_steps" in answer.out, answer.err


PLAIN = [
    "run",
    "--clients",
    "4",
    "--batch-size",
    "8",
    "--rounds",
    "1",
    "--local-steps",
    "2",
    "--local-lr",
    "0.1",
]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("--model resnet18", "resnet18' takes 28x28x1 or 32x32x3 inputs, the data has shape"),
        ("--model mobilenet-v3-small", "takes 32x32x3 inputs"),
        ("--model linear --model-option loss=squared", "loss is for the model 'mlp', not for"),
        ("--hidden 4 --model-option hidden=4", "hidden is given twice"),
        ("--model-option deep=3", "unknown option of the model mlp: 'deep'"),
    ],
)
def test_models_and_options_that_do_not_fit(words, text, cli):
    answer = cli(*PLAIN, *words.split())
    assert answer.code == 2 and text in answer.err, answer.err


@pytest.mark.parametrize("words", ["loss=squared", "hidden=3"])
def test_options_of_a_model(words, cli):
    answer = cli(*PLAIN, "--model-option", words)
    assert answer.code == 0, answer.err


def test_a_default_eval_gamma_is_admissible(cli):
    words = ["--regularizer", "mcp:0.05,0.5", "--algorithm", "fedmid", "--hidden", "4"]
    answer = cli("run", *words, "--local-steps", "1", "--local-lr", "0.1", "--rounds", "1")
    assert answer.code == 0, answer.err
    assert "natural residual at gamma = 0.25" in answer.out


def test_the_list_fits_a_terminal(cli):
    answer = cli("list")
    assert answer.code == 0
    assert max(map(len, answer.out.splitlines())) <= 80
    assert "…" not in answer.out
    for name in ("resnet18", "mobilenet-v3-small", "activation=sigmoid"):
        assert name in answer.out
