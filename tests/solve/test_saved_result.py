"""A result comes back from its folder."""

import json

import jax
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import save

import compositefl as cfl
from compositefl.solve.result import Result

TREES = {
    "bare": np.arange(3.0),
    "nested": {"dense0": {"kernel": np.ones((2, 2)), "bias": np.zeros(2)}, "scale": np.ones(1)},
    "a number": {"weights": np.ones((2, 3)).T, "intercept": np.array(2.0)},
    "list": [np.ones(2), (np.zeros(1), np.arange(2.0))],
}


def result(params, **changes):
    history = {"round": [0, 5], "trial": 0, "psi": [1.0, 0.1], "natural_residual_sq": [1.0, 1e-9]}
    fields = dict(stopped="rounds", rounds=5, diverged=[0], config={"tolerance": None, "seed": 3})
    fields["history"] = pd.DataFrame(history | {"zeros": 0.5})
    return Result(params=params, server=None, clients=None, **fields | changes)


@pytest.mark.parametrize("params", TREES.values(), ids=TREES)
def test_round_trip(params, tmp_path):
    saved = result(params)
    saved.save(tmp_path)
    loaded = cfl.Result.load(tmp_path, like=params)
    np.testing.assert_equal(loaded.params, params)
    assert jax.tree.map(np.shape, loaded.params) == jax.tree.map(np.shape, params)
    pd.testing.assert_frame_equal(loaded.history, saved.history)
    assert loaded.config == saved.config and loaded.converged and loaded.diverged == [0]
    assert loaded.summary() == saved.summary() and loaded.rounds == 5


def test_without_a_pattern_models_are_nested_dicts(tmp_path):
    for name in ("bare", "nested"):
        result(TREES[name]).save(tmp_path / name)
        np.testing.assert_equal(cfl.Result.load(tmp_path / name).params, TREES[name])
    result(TREES["list"]).save(tmp_path / "list")
    assert set(cfl.Result.load(tmp_path / "list").params) == {"0", "1"}


def test_what_cannot_be_loaded(tmp_path):
    with pytest.raises(cfl.CompositeFLError, match=r"has no history.csv"):
        cfl.Result.load(tmp_path)
    result(TREES["nested"]).save(tmp_path)
    with pytest.raises(cfl.CompositeFLError, match=r"differ in .*scale"):
        cfl.Result.load(tmp_path, like=TREES["nested"]["dense0"])


NEST = np.ones(1)
DAMAGED = {
    "history.csv": [
        *(b"", b"hello", b"{}", bytes(range(256)), b"round,psi\n1,fine\n", b"a,b\n1,2\n"),
        b"round,psi\n1,2\n",
        b"round,trial,psi,natural_residual_sq,zeros\n0,0,1,a,1\n",
        b"round,trial,psi,natural_residual_sq,zeros,loss\n0,0,1,1,1,a\n",
    ],
    "model.safetensors": [
        *(b"", b"hello", bytes(range(256)), b"\x02" + bytes(7) + b"{}!"),
        save({"a": NEST, "a/b": NEST}),
        save({"a/b/c": NEST, "a/b": NEST}),
    ],
    "config.json": [
        b"",
        b"hello",
        b"{}",
        b"[1]",
        bytes(range(256)),
        b"[" * 100_000,
        b'{"rounds_run": "x", "stopped": "rounds"}',
        b'{"rounds_run": -1, "stopped": "rounds"}',
        b'{"rounds_run": true, "stopped": "rounds"}',
        b'{"rounds_run": 3, "stopped": "rounds", "diverged": ["x"]}',
        b'{"rounds_run": 3, "stopped": "rounds", "tolerance": "x"}',
        b'{"runs": {}}',
        b'{"runs": 3}',
    ],
}


@pytest.mark.parametrize(
    ("name", "content"),
    [(name, content) for name, all_ in DAMAGED.items() for content in all_],
    ids=lambda given: str(given[:16]),
)
def test_a_damaged_file_is_named(tmp_path, name, content):
    result(TREES["nested"]).save(tmp_path)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(cfl.CompositeFLError, match=f"{name} is damaged: ") as caught:
        cfl.Result.load(tmp_path)
    assert str(caught.value).startswith(str(tmp_path)) and "\n" not in str(caught.value)


def test_a_bad_end_survives(tmp_path):
    result(TREES["bare"], diverged=[4], stopped="diverged").save(tmp_path)
    loaded = cfl.Result.load(tmp_path)
    assert loaded.ended_badly and "round 4" in loaded.summary()
    written = json.loads((tmp_path / "config.json").read_text())
    assert written["ended_badly"] and not written["converged"] and "round 4" in written["summary"]


def test_a_run_without_an_evaluation(tmp_path):
    result(TREES["bare"], history=pd.DataFrame()).save(tmp_path)
    loaded = cfl.Result.load(tmp_path)
    assert not loaded.converged and not loaded.ended_badly
    assert loaded.summary() == "ended without an evaluation"


@pytest.mark.parametrize("params", TREES.values(), ids=TREES)
def test_a_result_writes_a_page(params, tmp_path):
    made = result(params, config={"algorithm": "FedNMap(gamma=1.0)"})
    made.report(tmp_path / "out.html", title="My run")
    text = (tmp_path / "out.html").read_text()
    assert "My run" in text and "FedNMap" in text and made.summary() in text
