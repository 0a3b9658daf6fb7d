"""Algorithm, regulariser, model and data of the user's own, by module:name."""

import re
import sys
from pathlib import Path

import jax
import pytest

from compositefl import Algorithm, Regularizer
from compositefl.core.errors import CompositeFLError
from compositefl.core.resolve import require_kind, resolve
from compositefl.data import load
from compositefl.models import Model, build
from compositefl.regularizers import L1, parse

PAGE = Path(__file__).parents[2] / "docs" / "adding-an-algorithm.md"
SMALL = ["--batch-size", "8", "--rounds", "2", "--eval-every", "2", "--clients", "4"]
OWN = """
import numpy as np
import compositefl as cfl
from compositefl import data, models, partition

number = 3

@cfl.component
class Weighted(cfl.L1):
    factor: float = 1.0
    norm: str = cfl.static(default="one")

def net(features, classes, width: int = 4):
    return models.mlp((features, width, classes))

def no_model():
    return 3

def samples(count=24):
    x = np.arange(count * 3, dtype=np.float32).reshape(count, 3) / 100
    return data.Samples(x, np.arange(count) % 2)

def dataset():
    return data.Dataset("mine", samples(), samples(6), 2)

def clients():
    return partition.by_label(samples(), clients=3)

def with_test():
    return samples(), samples(6)

def no_data():
    return 3
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A current folder with modules of the user's own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "ownmodule.py").write_text(OWN)
    (tmp_path / "brokenmodule.py").write_text("1 / 0\n")
    (tmp_path / "needymodule.py").write_text("import nosuchpackage\n")
    yield tmp_path
    for name in ("ownmodule", "brokenmodule", "needymodule", "mymethods"):
        sys.modules.pop(name, None)


@pytest.fixture
def page(here):
    """The Python blocks of the page: the module and its test."""
    module, test = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (here / "mymethods.py").write_text(module)
    return test


def test_the_example_of_the_page_runs_by_its_name(page, cli):
    words = ["--algorithm", "mymethods:MomentumProx", "--local-steps", "2", "--local-lr", "0.1"]
    words += ["--regularizer", "l1:0.001", "--hidden", "4", *SMALL, "--set"]
    answer = cli("run", *words, "momentum=0.5")
    assert answer.code == 0, answer.err
    assert "MomentumProx" in answer.out
    refused = cli("run", *words, "momentum=1.5")
    assert refused.code == 2
    assert refused.err == "error: --set momentum=1.5 must be in [0, 1)\n"


def test_the_example_of_the_page_is_what_the_page_says(page, here, monkeypatch):
    monkeypatch.syspath_prepend(str(here))
    exec(compile(page, "page", "exec"), {})


def test_own_algorithm_next_to_the_librarys(page, cli, tmp_path):
    words = ["--local-steps", "2", "--local-lr", "0.1", "--model", "multinomial"]
    out = tmp_path / "out"
    names = "mymethods:MomentumProx,fedmid"
    answer = cli("compare", "--algorithms", names, *words, *SMALL, "--out", out)
    assert answer.code == 0, answer.err
    models = {path.name for path in out.glob("*.safetensors")}
    assert models == {"model-mymethods.MomentumProx.safetensors", "model-fedmid.safetensors"}


PGD = ["run", "--algorithm", "pgd", "--lr", "0.1", "--rounds", "1"]


@pytest.mark.parametrize("data", ["dataset", "clients", "with_test", "samples"])
def test_own_data_and_model(data, here, cli):
    words = ["--dataset", f"ownmodule:{data}", "--model", "ownmodule:net"]
    spread = [] if data == "clients" else ["--clients", "3"]
    answer = cli(*PGD, *words, *spread, "--model-option", "width=5")
    assert answer.code == 0, answer.err
    assert ("accuracy" in answer.out) == (data in ("dataset", "with_test"))


def test_own_data_and_model_in_python(here, monkeypatch):
    monkeypatch.syspath_prepend(str(here))
    assert load("ownmodule:dataset").name == "mine"
    with pytest.raises(CompositeFLError, match="must return Dataset, it returned int"):
        load("ownmodule:no_data")
    model = build("ownmodule:net", input_shape=(3,), classes=2, width=5)
    assert model.init(jax.random.key(0))["dense0"]["kernel"].shape == (3, 5)
    with pytest.raises(CompositeFLError, match="must have the form package"):
        build("ownmodule:", input_shape=(3,), classes=2)


def test_own_regularizer(here, cli):
    answer = cli(*PGD, "--regularizer", "ownmodule:Weighted:0.1,2,two", "--hidden", "4")
    assert answer.code == 0, answer.err
    phi = parse("ownmodule:Weighted:0.1,2,two")
    assert (phi.weight, phi.factor, phi.norm) == (0.1, 2.0, "two")
    assert isinstance(phi, L1)


REFUSED = [
    ("--algorithm ownmodule:Weighted", "ownmodule:Weighted must be a subclass of Algorithm"),
    ("--algorithm nomodule:Method", "there is no module nomodule here"),
    ("--algorithm ownmodule:Methd", "unknown name in ownmodule 'Methd'"),
    ("--algorithm brokenmodule:M", "importing brokenmodule failed with ZeroDivisionError"),
    ("--algorithm needymodule:M", "needymodule needs nosuchpackage"),
    ("--algorithm own:", "must have the form package.module:name"),
    ("--regularizer ownmodule:net:1", "ownmodule:net' must be a subclass of Regularizer"),
    ("--regularizer ownmodule:Weighted", "has 0 parameters; expected ownmodule:Weighted:weight"),
    ("--model ownmodule:no_model", "must return Model, it returned int"),
    ("--model ownmodule:net --model-option wide=3", "'wide'; it takes features, classes, width"),
    ("--model ownmodule:number", "ownmodule:number must be a subclass of Model or a function"),
    ("--dataset ownmodule:no_data", "must return a Dataset, a Partition"),
    ("--dataset ownmodule:clients --clients 3", "comes with its clients"),
    ("--dataset ownmodule:clients --data-folder x", "--data-folder x does not go here"),
]


@pytest.mark.parametrize(("words", "text"), REFUSED, ids=[words for words, _ in REFUSED])
def test_one_line_for_what_is_wrong(words, text, here, cli):
    answer = cli(*PGD, *words.split())
    assert answer.code == 2
    assert answer.err.startswith("error: --") and answer.err.count("\n") == 1, answer.err
    assert text in answer.err


def test_only_accepted_modules():
    assert resolve("compositefl.algorithms.fedavg:FedAvg", Algorithm, modules=["compositefl"])
    assert resolve("compositefl.regularizers:L1", Regularizer, modules=["compositefl.regularizers"])
    for modules in ([], ["compositefl.algo"], ["os.path"]):
        with pytest.raises(CompositeFLError, match="is not accepted here"):
            resolve("compositefl.algorithms.fedavg:FedAvg", Algorithm, modules=modules)
    with pytest.raises(CompositeFLError, match="is not accepted here"):
        parse("compositefl.regularizers:L1:1", modules=["mypackage"])


def test_functions_only_where_a_factory_will_do():
    assert resolve("compositefl.models:mlp", Model, factory=True)
    with pytest.raises(CompositeFLError, match="must be a subclass of Model, not a function"):
        resolve("compositefl.models:mlp", Model)
    with pytest.raises(CompositeFLError, match="must return Model, it returned int"):
        require_kind("a:b", 3, Model)
