"""A checkpoint that is not what was written is refused in one line."""

import io
import json

import numpy as np
import pytest

import compositefl as cfl
from tests.problems import lasso

PROBLEM = lasso(clients=3, features=4)


def go_on(file, rounds=4, **options):
    """Go on to this round, or begin."""
    return cfl.minimize(
        PROBLEM,
        cfl.L1(0.1),
        cfl.PGD(lr=0.1),
        rounds=rounds,
        checkpoint=file,
        resume=True,
        progress=False,
        **options,
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The arrays of a checkpoint, what it says of itself among them."""
    file = tmp_path_factory.mktemp("whole") / "run.ckpt"
    go_on(file, rounds=2)
    with np.load(file) as arrays:
        return dict(arrays)


def said(**changes):
    """Change what the checkpoint says of itself."""

    def change(arrays):
        arrays["about"] = np.array(json.dumps(json.loads(str(arrays["about"])) | changes))

    return change


def to(name, value):
    """Replace an array."""
    return lambda arrays: arrays.update({name: value})


def last(arrays):
    return f"leaf{len(arrays) - 2}"


ROW = {"round": 2, "psi": 1.0, "natural_residual_sq": 1.0}
DAMAGED = {
    "the last leaf": (lambda a: a.pop(last(a)), "arrays of the state, not"),
    "the first leaf": (lambda a: a.pop("leaf0"), "it has no array 'leaf0'"),
    "a leaf more": (to("leaf9", np.ones(1)), "leaf"),
    "a shape": (to("leaf0", np.ones((7, 7), np.float32)), r"leaf0 is .* of shape \(7, 7\), not"),
    "a type": (lambda a: a.update(leaf0=a["leaf0"].astype(str)), "leaf0 is <U"),
    "nothing about": (lambda a: a.pop("about"), "is not a compositefl checkpoint: "),
    "about a list": (to("about", np.array("[1]")), "in a list, not by names"),
    "about empty": (to("about", np.array("{}")), "its fingerprint is missing"),
    "about nested": (to("about", np.array("[" * 100_000)), "recursion"),
    "round text": (said(round="x"), "its round is a str"),
    "round negative": (said(round=-5), "round=-5 must be a whole number >= 0"),
    "round yes": (said(round=True), "round=True must be a whole number >= 0"),
    "seconds": (said(seconds=float("nan")), "seconds=nan must be"),
    "history text": (said(history="x"), "its history is a str"),
    "history of text": (said(history=["x"]), "its history has a row without"),
    "history short": (
        said(history=[{"round": 2}]),
        "a row without natural_residual_sq, psi, round",
    ),
    "history words": (said(history=[ROW | {"psi": "x"}]), "a row with more than numbers"),
    "fingerprint": (said(fingerprint=[1]), "its fingerprint is a list"),
    "NaN": (lambda a: a["leaf0"].fill(np.nan), "its model has numbers that are not finite"),
    "infinity": (lambda a: a["leaf0"].fill(np.inf), "its model has numbers that are not finite"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_checkpoint(whole, tmp_path, name):
    change, text = DAMAGED[name]
    arrays = {key: array.copy() for key, array in whole.items()}
    change(arrays)
    with (tmp_path / "run.ckpt").open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(cfl.CompositeFLError, match=text) as caught:
        go_on(tmp_path / "run.ckpt")
    assert str(caught.value).startswith(f"checkpoint={tmp_path / 'run.ckpt'} is not a compositefl ")
    assert "\n" not in str(caught.value)


def test_one_array_is_no_checkpoint(tmp_path):
    file = io.BytesIO()
    np.save(file, np.ones(3))
    (tmp_path / "run.ckpt").write_bytes(file.getvalue())
    with pytest.raises(
        cfl.CompositeFLError, match="not a compositefl checkpoint: it is no NPZ file"
    ):
        go_on(tmp_path / "run.ckpt")


@pytest.mark.filterwarnings("ignore:diverged to NaN")
def test_a_checkpoint_that_is_whole_is_taken(whole, tmp_path):
    """What the cases above change; NaN in the rows of a run that diverged are no damage."""
    with (tmp_path / "run.ckpt").open("wb") as file:
        np.savez(file, **whole)
    assert go_on(tmp_path / "run.ckpt").rounds == 4

    def diverging(rounds):
        return cfl.minimize(
            PROBLEM,
            cfl.L1(0.1),
            cfl.PGD(lr=1e30),
            rounds=rounds,
            checkpoint=tmp_path / "diverged.ckpt",
            resume=True,
            progress=False,
        )

    assert diverging(3).stopped == "diverged"
    again = diverging(4)
    assert again.stopped == "diverged" and not np.isfinite(again.history["psi"].iloc[-1])
