"""Huang, Pu, Johansson (2026), Figures 2 to 5: a sigmoid network on MNIST sorted by label."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd

from compositefl import data, models
from compositefl.algorithms import ZA1, FedCanon, FedNMap
from compositefl.data import partition
from compositefl.experiments.declaration import PlannedRun
from compositefl.problem import Problem
from compositefl.regularizers import ElasticNet

SOURCE = "Huang, Pu, Johansson (2026)"
GAMMA = 4.0
ROUNDS, TRIALS = 800, 10
Y_LABEL = r"$\|F_{nat}^{\gamma}(x_t)\|^2$"
CHOICES = (
    "Network 784-32-10; inputs in [0, 1]; minibatch 8; the elastic net covers all parameters, "
    "biases too.",
    "The paper does not name its loss. Cross-entropy was run first; several claims did not hold. "
    "With half the squared error of sigmoid outputs, which is smoother, more of them hold and the "
    "slopes are closer to the paper's, so both are shown.",
    "Training samples sorted by label and cut into n consecutive parts whose sizes differ by at "
    "most one.",
    "Glorot start, taken as the point before the prox; stationarity is measured at gamma = 4, on "
    "the full training set.",
    "Final value: mean over the last quarter of the rounds and over the trials.",
    f"{ROUNDS} rounds; the paper does not say how many.",
)
AVERAGED = f"{TRIALS} trials, as in the paper."
COMPARED = (
    AVERAGED,
    "The start is the same for all methods: for FedCanon it is x_0. FedCanon's alpha is eta_hat = "
    "1 and its beta the local step.",
)
METHODS = ("FedNMap", "ZA1", "FedCanon")


@dataclass(frozen=True)
class MnistNetwork:
    """The problem of section 5.1 for n clients."""

    clients: int
    loss: ClassVar[str] = "cross-entropy"

    def __call__(self) -> Problem:
        """The problem, with the data loaded."""
        mnist = data.load("mnist")
        parts = partition.by_label(mnist.train, clients=self.clients)
        model = models.mlp((784, 32, 10), activation="sigmoid", loss=self.loss)
        return model.problem(parts, test=mnist.test)


@dataclass(frozen=True)
class MnistSquared(MnistNetwork):
    """The same with half the squared error."""

    loss: ClassVar[str] = "squared"


NETWORKS = {"squared error": MnistSquared, "cross-entropy": MnistNetwork}


def each_objective(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each objective that the table has."""
    for name in NETWORKS:
        part = table[table["objective"] == name]
        if len(part):
            yield name, part


def planned(
    objective: str,
    method: str,
    n: int,
    q: int,
    local_lr: float,
    quick: bool,
    batch: int = 8,
) -> PlannedRun:
    """One method for n clients and Q local steps."""
    steps: dict[str, Any] = dict(local_steps=q, local_lr=local_lr, server_lr=1.0)
    algorithm = {
        "FedNMap": lambda: FedNMap(gamma=GAMMA, **steps),
        "ZA1": lambda: ZA1(**steps),
        "FedCanon": lambda: FedCanon(**steps),
    }[method]()
    options = dict(
        rounds=ROUNDS // 10 if quick else ROUNDS,
        trials=1 if quick else TRIALS,
        batch_size=batch,
        eval_gamma=GAMMA,
        eval_every=ROUNDS // (100 if quick else 40),
    )
    return PlannedRun(
        {"objective": objective, "method": method, "n": n, "Q": q, "local_lr": local_lr},
        NETWORKS[objective](n),
        ElasticNet(1e-3, 1e-2),
        algorithm,
        options,
    )
