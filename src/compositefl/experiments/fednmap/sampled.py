"""FedNMap with sampled clients and lost uploads: an extension of ours, which no theorem covers."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd

from compositefl import data, models
from compositefl.algorithms import FedCanon, FedDR, FedNMap, Scaffold
from compositefl.algorithms.base import Algorithm
from compositefl.core.types import Params
from compositefl.data import partition
from compositefl.experiments.declaration import Experiment, Kind, PlannedRun, Verdict
from compositefl.experiments.fednmap.network import Y_LABEL
from compositefl.experiments.pictures import curves
from compositefl.experiments.starts import drawn
from compositefl.experiments.statistics import log_ratio, tail_mean
from compositefl.problem import Problem
from compositefl.regularizers import ElasticNet

ROUNDS, TRIALS = 400, 5
CONDITIONS: dict[str, dict[str, Any]] = {
    "all clients": {},
    "5 of 20 clients": {"participation": 5},
    "5 of 20, a fifth of the uploads lost": {"participation": 5, "dropout": 0.2},
}
ALL = "all clients"
COMPARABLE = 3.0


@dataclass(frozen=True)
class DigitsNetwork:
    """The network of README.md: digits sorted by label over 20 clients."""

    @property
    def model(self) -> models.Model:
        """The network."""
        return models.mlp((64, 32, 10), activation="sigmoid")

    def __call__(self) -> Problem:
        """The problem, with the data loaded."""
        digits = data.load("digits")
        parts = partition.by_label(digits.train, clients=20)
        return self.model.problem(parts, test=digits.test)

    def start(self, trial: int) -> Params:
        """The start that the trial draws."""
        return drawn(self.model, trial)


def runs(quick: bool) -> list[PlannedRun]:
    """The runs behind the page."""
    steps: dict[str, Any] = dict(local_steps=10, local_lr=0.1)
    methods: dict[str, Algorithm] = {
        "FedNMap": FedNMap(gamma=1.0, **steps),
        "FedCanon": FedCanon(**steps),
        "SCAFFOLD, server prox": Scaffold(composite="server-prox", **steps),
        "FedDR": FedDR(eta=1.0, **steps),
    }
    rounds = ROUNDS // 10 if quick else ROUNDS
    options: dict[str, Any] = dict(
        rounds=rounds, batch_size=16, eval_gamma=1.0, eval_every=rounds // 20
    )
    return [
        PlannedRun(
            {"panel": condition, "method": name},
            DigitsNetwork(),
            ElasticNet(1e-3, 1e-3),
            algorithm,
            options | more,
            TRIALS,
        )
        for condition, more in CONDITIONS.items()
        for name, algorithm in methods.items()
    ]


def judge(table: pd.DataFrame) -> list[Verdict]:
    """What is said of the extension against the table."""
    end = tail_mean(table, ("panel", "trial", "method")).unstack()
    verdicts = []
    for condition, here in end.groupby("panel", sort=False):
        for other in here.columns.drop("FedNMap"):
            ratio = log_ratio(here["FedNMap"], here[other])
            verdicts.append(
                Verdict(
                    f"{condition}: FedNMap ends below {other}",
                    "not in the paper",
                    f"FedNMap {here['FedNMap'].mean():.2e}, {other} {here[other].mean():.2e}; ln "
                    f"of the ratio {ratio}",
                    ratio.below(0.0),
                    kind=Kind.OURS,
                )
            )
        if condition != ALL:
            own = here["FedNMap"].droplevel("panel")
            ratio = log_ratio(own, end.loc[ALL]["FedNMap"])
            verdicts.append(
                Verdict(
                    f"{condition}: FedNMap ends at most {COMPARABLE:.0f} times as high as with all",
                    "not in the paper",
                    f"{math.exp(ratio.mean):.2f} times; ln of the ratio {ratio}",
                    ratio.below(math.log(COMPARABLE)),
                    kind=Kind.OURS,
                )
            )
    return verdicts


EXPERIMENT = Experiment(
    "fednmap-sampled",
    "FedNMap with sampled clients and lost uploads",
    "an extension of ours; the paper of Huang, Pu, Johansson (2026) has all clients in every round",
    (
        "Digits (bundled with scikit-learn) sorted by label over 20 clients, network 64-32-10, "
        "cross-entropy, elastic net 0.001 and 0.001, Q = 10, local step 0.1, server step 1, "
        "minibatch 16; gamma = 1, FedDR's eta = 1.",
        "A client keeps h_i, the mean of its last accepted gradients, and the server cbar, the "
        "mean of all h_i. The correction is c_i = cbar - h_i, and what is lost or not drawn leaves "
        "both as they were. With all clients this is the paper's algorithm. No proof is known to "
        "us: over a sample the c_i do not add up to zero, so a round's step has a random error, of "
        "mean zero given the past, whose size falls with the distance of the h_i from the "
        "gradients; the paper's recursion, in which the c_i add up to zero in every round, does "
        "not carry over as it stands.",
        "Final value: mean over the last quarter of the rounds.",
    ),
    partial(curves, panel=("panel",), line="method", y_label=Y_LABEL, ratio_to="FedNMap"),
    judge,
    runs,
)
