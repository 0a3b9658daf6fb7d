"""The scripts of examples/ run, and end with what they promise."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(tmp_path, monkeypatch, capsys):
    """Run a script in this process, which saves the start of Python and of JAX."""

    def run(name, *words):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, *words])
        names = runpy.run_path(str(EXAMPLES / f"{name}.py"))
        return names, capsys.readouterr().out

    return run


def test_no_example_is_missing():
    here = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {file.stem for file in EXAMPLES.glob("*.py")} <= here


def test_sparse_digits(example, tmp_path):
    names, out = example("sparse_digits", "digits.png")
    last = names["result"].history.iloc[-1]
    assert last.zeros > 0.3 and last.accuracy > 0.5
    assert "FedNMap" in out and (tmp_path / "digits.png").stat().st_size > 10_000


def test_three_methods(example):
    names, out = example("three_methods")
    assert all(name in out for name in names["METHODS"]) and out.count("lr 1.00") == 3
    assert names["residual"].notna().all()


def test_own_loss_and_regularizer(example):
    names, out = example("own_loss_and_regularizer")
    found, truth = names["result"].params, names["truth"]
    assert np.all(found >= 0) and np.array_equal(found[truth > 0] > 0.2, [True] * 3)
    assert np.abs(found - truth).max() < 0.3 and np.sum(found == 0) >= 3
    assert "found weights" in out
