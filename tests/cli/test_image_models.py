"""The networks for images, built from the command line's words; no round is run."""

import sys

import jax
import numpy as np
import pytest

from compositefl.cli.problems import build_problem
from compositefl.cli.settings import Settings
from compositefl.core.errors import CompositeFLError
from tests.conftest import FULL

IMAGES = """
import numpy as np
from compositefl import data

def samples(*shape):
    rng = np.random.default_rng(0)
    return data.Samples(rng.normal(size=(8, *shape)).astype(np.float32), np.arange(8) % 4)

def grey():
    return samples(28, 28, 1)

def colour():
    return samples(32, 32, 3)
"""


@pytest.fixture
def build(tmp_path, monkeypatch):
    # Every shape that is drawn is compiled; here the shapes are the proof.
    monkeypatch.setattr(jax.random, "normal", lambda _key, shape: np.zeros(shape, np.float32))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "ownimages.py").write_text(IMAGES)
    yield lambda images, model: build_problem(
        Settings(dataset=f"ownimages:{images}", model=model, clients=2)
    )
    sys.modules.pop("ownimages", None)


@pytest.mark.parametrize(
    ("model", "images", "parameters"),
    [
        ("resnet18", "grey", 11_175_370 - 6 * 513),  # 4 classes of 10: rows of 512 and a bias
        *[("resnet18", "colour", 11_181_642 - 6 * 513)] * FULL,
        ("mobilenet-v3-small", "colour", 1_528_106 - 6 * 1025),
    ],
)
def test_a_problem_is_made_of_images(model, images, parameters, build):
    problem, source = build(images, model)
    assert source.classes == 4 and list(problem.sizes) == [4, 4]
    assert sum(leaf.size for leaf in jax.tree.leaves(problem.params)) == parameters


def test_images_of_another_shape_are_refused(build):
    text = "--model mobilenet-v3-small: model 'mobilenet-v3-small' takes 32x32x3 inputs"
    with pytest.raises(CompositeFLError) as error:
        build("grey", "mobilenet-v3-small")
    assert str(error.value) == f"{text}, the data has shape (28, 28, 1)"
