"""Figure 6: MobileNetV3-Small on CIFAR-10 with an l1 penalty."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from compositefl import data, models
from compositefl.algorithms import ZA1, FedCanon, FedNMap
from compositefl.core.types import Params
from compositefl.data import partition
from compositefl.experiments.declaration import Experiment, PlannedRun, Verdict
from compositefl.experiments.pictures import curves
from compositefl.experiments.starts import drawn
from compositefl.experiments.statistics import difference, every, tail_mean
from compositefl.models import vision
from compositefl.problem import Problem
from compositefl.regularizers import L1

GAMMA = 2.5
ROUNDS, TRIALS = 50, 3
PANELS = ((20, 10), (20, 20), (50, 10))
METHODS = ("FedNMap", "ZA1", "FedCanon")
MEASURES = {"hoyer": "Hoyer sparsity", "loss": "training loss"}


@dataclass(frozen=True)
class CifarNetwork:
    """The problem of section 5.2 for n clients."""

    clients: int
    quick: bool = False

    @property
    def model(self) -> models.Model:
        """The network."""
        if self.quick:
            return vision.mobilenet("mobilenet, first block", vision.MOBILENET_V3_SMALL[:1], 10)
        return models.mobilenet_v3_small()

    def __call__(self) -> Problem:
        """The problem, with the data loaded."""
        samples = data.load("cifar10").train
        parts = partition.dirichlet(samples, self.clients, alpha=0.5, min_samples=64)
        return self.model.problem(parts, coupled_batch=32, eval_samples=64)

    def start(self, trial: int) -> Params:
        """The start that the trial draws."""
        return drawn(self.model, trial)


def runs(quick: bool) -> list[PlannedRun]:
    """The runs behind the figure."""
    out = []
    for n, q in PANELS[:1] if quick else PANELS:
        steps: dict[str, Any] = dict(local_steps=2 if quick else q, local_lr=1 / q, server_lr=1.0)
        methods = (FedNMap(gamma=GAMMA, **steps), ZA1(**steps), FedCanon(**steps))
        options = dict(
            rounds=2 if quick else ROUNDS,
            batch_size=32,
            eval_gamma=GAMMA,
            eval_every=1 if quick else 5,
        )
        out += [
            PlannedRun(
                {"method": m, "n": n, "Q": q}, CifarNetwork(n, quick), L1(1e-3), a, options, TRIALS
            )
            for m, a in zip(METHODS, methods, strict=True)
        ]
    return out


def draw(table: pd.DataFrame, path: Path) -> None:
    """Sparsity above, loss below, one column for each (n, Q); all curves lie on each other."""
    rows = []
    for column, name in MEASURES.items():
        label = [f"{name}, n = {n}, Q = {q}" for n, q in zip(table["n"], table["Q"], strict=True)]
        rows.append(table.assign(panel=label, value=table[column]))
    columns = table.groupby(["n", "Q"]).ngroups
    long = pd.concat(rows)
    curves(
        long,
        path,
        panel=("panel",),
        line="method",
        y="value",
        columns=columns,
        log=False,
        share="row",
        ratio_to="FedNMap",
    )


def judge(table: pd.DataFrame) -> list[Verdict]:
    """The paper's claims against the table."""
    verdicts = []
    for column, name in MEASURES.items():
        end = tail_mean(table, ("n", "Q", "trial", "method"), column).unstack()
        sign, word = (-1, "higher") if column == "hoyer" else (1, "lower")
        for (n, q), here in end.groupby(["n", "Q"], sort=False):
            others = [difference(sign * here["FedNMap"], sign * here[m]) for m in METHODS[1:]]
            verdicts.append(
                Verdict(
                    f"n = {n}, Q = {q}: FedNMap ends with {word} {name}",
                    f"{word} than ZA1 and FedCanon",
                    ", ".join(f"{m} {here[m].mean():.4f}" for m in METHODS),
                    every([d.below(0.0) for d in others]),
                    f"FedNMap ends with {word} {name}",
                )
            )
    return verdicts


EXPERIMENT = Experiment(
    "fednmap-fig6",
    "MobileNetV3-Small on CIFAR-10 with l1",
    "Huang, Pu, Johansson (2026), Figure 6",
    (
        "torchvision's MobileNetV3-Small with 10 classes (1,528,106 parameters) and its start, "
        "without dropout; images of 32x32 in [0, 1], not augmented.",
        "Batch normalisation with the statistics of the minibatch at hand, in training and in "
        "evaluation; no running averages, so nothing but parameters is averaged.",
        "l1 weight 0.001, the paper's weight in its other experiment, on all parameters. The "
        "weight, the partition, the minibatch and the rounds are not in our copy.",
        "Each class spread over the clients in Dirichlet(0.5) proportions; minibatch 32.",
        "FedCanon's alpha is eta_hat = 1 and its beta the local step 1/Q.",
        "Training loss is f, without the penalty, over 64 fixed random samples of each client "
        "in batches of 32.",
        "Final value: mean over the last quarter of the rounds.",
        "The quick version has a network with the first of the eleven blocks only.",
    ),
    draw,
    judge,
    runs,
)
