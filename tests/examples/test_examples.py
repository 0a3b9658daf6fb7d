"""The scripts of examples/ run, in a small form, and end with what they promise and a picture."""

import ast
import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
MAKE = runpy.run_path(str(EXAMPLES / "notebooks" / "make.py"))


@pytest.fixture
def example(tmp_path, monkeypatch, capsys):
    """Run a script in this process, which saves the start of Python and of JAX."""

    def run(name):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", [name, "--small"])
        names = runpy.run_path(str(EXAMPLES / f"{name}.py"))
        assert (tmp_path / f"{name}.png").stat().st_size > 5_000
        return names, capsys.readouterr().out

    return run


def test_no_example_is_missing():
    here = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {file.stem for file in SCRIPTS} <= here


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_notebooks_are_those_of_the_scripts(script):
    """`python examples/notebooks/make.py` makes them."""
    file = EXAMPLES / "notebooks" / f"{script.stem}.ipynb"
    assert file.read_text(encoding="utf-8") == MAKE["text_of"](script)
    cells = json.loads(file.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    whole = ast.parse(script.read_text()).body[1:]  # without the docstring
    assert ast.dump(ast.Module(whole, [])) == ast.dump(ast.parse("\n".join(code[:-1])))


def test_hospitals(example):
    names, out = example("hospitals")
    assert np.abs(names["together"] - names["pooled"]).max() < 0.05
    assert np.sum((names["together"] != 0) & (names["truth"] != 0)) >= 5
    assert "majority vote" in out


def test_pruned_network(example, tmp_path):
    names, out = example("pruned_network")
    assert np.abs(names["before"] - names["after"]).max() < 1e-4
    assert 0 < names["left"] < names["HIDDEN"] and (tmp_path / "pruned.onnx").exists()
    assert "compressed" in out


def test_low_rank_tasks(example):
    names, _ = example("low_rank_tasks")
    ranks = {k: np.linalg.matrix_rank(w, tol=1e-6) for k, w in names["estimates"].items()}
    assert ranks["nuclear norm"] < ranks["least squares"] == names["TASKS"]


def test_two_four(example):
    names, _ = example("two_four")
    assert names["packed"].values.shape == (32, 32) and names["last"].accuracy > 0.2
    assert np.mean(names["full"] < 4) > 0.2  # at the start every group is full


def test_fused_signal(example):
    names, _ = example("fused_signal")
    errors = [np.linalg.norm(names[k] - names["truth"]) for k in ("found", "mean")]
    assert errors[0] < errors[1]


def test_mixtures(example):
    names, _ = example("mixtures")
    assert names["found"]["simplex"].sum() == pytest.approx(1, abs=1e-9)
    assert names["found"]["simplex"].min() >= 0 and names["found"]["not negative"].min() >= 0
    assert names["found"]["no constraint"].min() < 0


def test_own_method(example):
    names, _ = example("own_method")
    assert set(names["histories"]) == {"MomentumProx", "FedNMap"}
    lines = names["table"].splitlines()
    assert lines[0] == r"\begin{tabular}{lrrrrr}" and lines[-1] == r"\end{tabular}"
    assert all(line.count("&") == 5 for line in (lines[2], *lines[4:-2]))
    assert r"\%" in lines[4] and r"$\pm$" in lines[4]


def test_sparse_digits(example):
    names, out = example("sparse_digits")
    last = names["result"].history.iloc[-1]
    assert last.zeros > 0.1 and last.accuracy > 0.5 and "FedNMap" in out


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
