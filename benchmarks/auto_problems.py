"""The forty problems of `benchmarks/auto.py`: thirty to develop with and ten held out."""

from functools import cache
from typing import NamedTuple

import numpy as np

import compositefl as cfl
from compositefl.data import Samples, partition


class Case(NamedTuple):
    """A problem with the way it is run; every fourth one is held out."""

    model: str
    data: str
    cut: str  # how the samples go to the clients
    phi: str
    batch_size: int | None = None
    participation: float = 1.0
    rounds: int = 200
    scaled: bool = True
    clients: int = 10
    samples: int | None = None  # only the first so many of the data

    @property
    def name(self):
        words = [self.model, self.data, self.cut, self.phi]
        words += [] if self.batch_size is None else [f"batch {self.batch_size}"]
        words += [] if self.participation == 1.0 else [f"participation {self.participation:g}"]
        words += [] if self.scaled else ["raw"]
        return ", ".join(words)


# Sizes at which sixty runs take a few minutes on two cores.
MLP = {"rounds": 100, "samples": 500}
CNN = {"rounds": 16, "clients": 3, "samples": 150}

CASES = (
    Case("logistic", "breast-cancer", "iid", "l1:0.01"),
    Case("logistic", "breast-cancer", "label", "l1:0.01"),
    Case("logistic", "breast-cancer", "dirichlet", "elastic-net:0.001,0.01"),
    Case("logistic", "breast-cancer", "label", "mcp:0.01,50"),
    Case("logistic", "breast-cancer", "dirichlet", "l1:0.01", None, 0.2),
    Case("logistic", "breast-cancer", "iid", "l1:0.01", 8),
    Case("logistic", "breast-cancer", "label", "elastic-net:0.001,0.01", 8, 0.2),
    Case("logistic", "breast-cancer", "iid", "l1:0.01", scaled=False),
    Case("logistic", "breast-cancer", "label", "l1:0.001", 32),
    Case("logistic", "breast-cancer", "label", "l1:0.1", None, 0.2),
    Case("linear", "diabetes", "iid", "l1:0.02"),
    Case("linear", "diabetes", "dirichlet", "l1:0.02"),
    Case("linear", "diabetes", "label", "mcp:0.02,5"),
    Case("linear", "diabetes", "label", "elastic-net:0.01,0.1", 8),
    Case("linear", "diabetes", "iid", "l1:0.02", scaled=False),
    Case("linear", "diabetes", "dirichlet", "l1:0.1", 32, 0.2),
    Case("logistic", "synthetic", "own", "l1:0.003", clients=30),
    Case("logistic", "synthetic", "own", "elastic-net:0.001,0.001", 32, 0.2, clients=30),
    Case("logistic", "a9a", "iid", "l1:0.001"),
    Case("logistic", "a9a", "label", "l1:0.001"),
    Case("logistic", "a9a", "dirichlet", "mcp:0.002,20", 32),
    Case("logistic", "a9a", "dirichlet", "l1:0.001", 32, 0.2),
    Case("multinomial", "digits", "iid", "group-lasso:0.01"),
    Case("multinomial", "digits", "label", "group-lasso:0.01"),
    Case("multinomial", "digits", "dirichlet", "nuclear-norm:0.01", rounds=60, clients=5),
    Case("multinomial", "digits", "label", "l1:0.001", 8),
    Case("multinomial", "digits", "label", "nuclear-norm:0.01", 32, rounds=60, clients=5),
    Case("multinomial", "digits", "dirichlet", "l1:0.001", None, 0.2),
    Case("multinomial", "wine", "label", "l1:0.01", clients=6),
    Case("multinomial", "wine", "iid", "group-lasso:0.02", 8, clients=6, scaled=False),
    Case("mlp", "digits", "iid", "elastic-net:0.0001,0.001", **MLP),
    Case("mlp", "digits", "label", "elastic-net:0.0001,0.001", **MLP),
    Case("mlp", "digits", "dirichlet", "l1:0.0003", 8, **MLP),
    Case("mlp", "digits", "label", "mcp:0.001,5", 32, **MLP),
    Case("mlp", "digits", "dirichlet", "group-lasso:0.001", 32, 0.2, **MLP),
    Case("mlp", "mnist", "label", "l1:0.0001", 32, rounds=40, clients=4, samples=400),
    Case("cnn-zhang", "mnist", "dirichlet", "l1:0.0001", 8, **CNN),
    Case("cnn-zhang", "mnist", "label", "l1:0.0001", 8, **CNN),
    Case("cnn-fedcanon", "fashion-mnist", "dirichlet", "l1:0.0001", 8, **CNN),
    Case("cnn-fedcanon", "fashion-mnist", "iid", "mcp:0.0005,5", 8, **CNN),
)
HELD_OUT = CASES[2::4]
DEVELOPED = tuple(case for case in CASES if case not in HELD_OUT)


def standardised(x):
    return (x - x.mean(0)) / np.maximum(x.std(0), 1e-12)


@cache
def samples(data, scaled):
    """(x, y, classes); classes 0 for a regression."""
    from sklearn import datasets

    if data in ("mnist", "fashion-mnist", "a9a", "digits"):
        found = cfl.data.load(data)
        count = {"a9a": 4000, "digits": 1437}.get(data, 800)
        return found.train.x[:count], found.train.y[:count], found.classes
    load = {
        "breast-cancer": datasets.load_breast_cancer,
        "diabetes": lambda **how: datasets.load_diabetes(scaled=False, **how),
        "wine": datasets.load_wine,
    }[data]
    x, y = load(return_X_y=True)
    x = standardised(x) if scaled else x
    classes = 0 if data == "diabetes" else int(y.max()) + 1
    y = standardised(y) if not classes else y
    return x.astype(np.float32), y.astype(np.float32 if not classes else np.int32), classes


def clients_of(case):
    if case.data == "synthetic":
        made = cfl.data.synthetic.generate(
            1.0, 1.0, case.clients, 100, 20, 2, shared_means=False, normalize=True
        )
        return made, (20,), 2
    x, y, classes = samples(case.data, case.scaled)
    x, y = x[: case.samples], y[: case.samples]
    labels = y if classes else np.digitize(y, np.quantile(y, np.linspace(0, 1, 11)[1:-1]))
    batch = Samples(x, y)
    if case.cut == "iid":
        cut = partition.iid(batch, case.clients, labels=labels)
    elif case.cut == "label":
        cut = partition.by_label(batch, case.clients, labels=labels)
    else:
        cut = partition.dirichlet(batch, case.clients, 0.3, min_samples=8, labels=labels)
    return cut, x.shape[1:], classes


def problem_of(case):
    """(problem, regulariser)."""
    clients, shape, classes = clients_of(case)
    options = {"intercept": True} if case.model in ("linear", "logistic") else {}
    model = cfl.models.build(case.model, input_shape=shape, classes=max(classes, 2), **options)
    phi = cfl.regularizers.parse(case.phi)
    if case.phi.startswith(("group", "nuclear")):
        phi = cfl.ByName({"*bias": cfl.Zero(), "*": phi})
    return model.problem(list(clients)), phi
