"""Figure 2: no penalty, Fashion-MNIST under three label skews."""

from functools import partial
from typing import Any

import pandas as pd

from compositefl.algorithms import (
    FedAvg,
    FedCanon,
    Scaffnew,
    Scaffold,
)
from compositefl.algorithms.base import Algorithm
from compositefl.experiments.declaration import Experiment, PlannedRun, Verdict
from compositefl.experiments.fedcanon.images import SHARED, SKEWS, SOME, SOURCE, Images
from compositefl.experiments.pictures import accuracy_curves
from compositefl.experiments.statistics import tail_mean
from compositefl.regularizers import Zero


def runs(quick: bool) -> list[PlannedRun]:
    """The runs behind the figure."""
    # Scaffnew has no server step: its clients average.
    steps: dict[str, Any] = dict(local_steps=20, local_lr=0.05)
    methods: dict[str, Algorithm] = {
        "FedCanon": FedCanon(**steps),
        "FedAvg": FedAvg(**steps),
        "SCAFFOLD": Scaffold(**steps),
        "Scaffnew": Scaffnew(**steps),
    }
    options = dict(
        rounds=6 if quick else 300,
        trials=1 if quick else 3,
        batch_size=32,
        eval_every=3 if quick else 10,
    )
    return [
        PlannedRun(
            {"panel": skew, "method": name},
            Images("fashion-mnist", "MLP", skew),
            Zero(),
            algorithm,
            options,
        )
        for skew in (SKEWS[-1:] if quick else SKEWS)
        for name, algorithm in methods.items()
    ]


def judge(table: pd.DataFrame) -> list[Verdict]:
    """The paper's claims against the table."""
    end = 100 * tail_mean(table, ("panel", "method"), "accuracy")
    verdicts = []
    for skew in dict.fromkeys(table["panel"]):
        here = end[skew]
        others = here.drop("FedAvg")
        told = ", ".join(f"{m} {v:.2f} %" for m, v in here.items())
        gap = others.max() - others.min()
        verdicts.append(
            Verdict(
                f"{skew}: FedCanon, SCAFFOLD and Scaffnew are comparable",
                "similar accuracy",
                f"{told}; they differ by {gap:.2f} points",
                bool(gap <= 1.0),
            )
        )
        behind = others.min() - here["FedAvg"]
        if skew == "iid":
            similar = abs(here["FedAvg"] - others.mean()) <= 1.0
            claim = Verdict("iid: FedAvg is as good", "similar", told, bool(similar))
        else:
            claim = Verdict(
                f"{skew}: FedAvg is noticeably behind",
                "behind (by how much is lost)",
                f"{abs(behind):.2f} points {'behind' if behind > 0 else 'above'} the lowest of "
                "the others",
                bool(behind >= 0.5),
            )
        verdicts.append(claim)
    return verdicts


EXPERIMENT = Experiment(
    "fedcanon-fig2",
    "no penalty: Fashion-MNIST under three label skews",
    f"{SOURCE}, Figure 2",
    (
        *SHARED,
        "MLP 784-128-64-10 with ReLU, K = 20, local step 0.05, server step 1, 300 rounds, 3 "
        "trials. Scaffnew communicates after each step with probability 1/20.",
        SOME,
        "Accuracy at the end: mean over the last quarter of the rounds and over the trials. "
        "Comparable means within 1 point, behind at least half a point.",
    ),
    partial(accuracy_curves, panel=("panel",), bottom=0.7),
    judge,
    runs,
)
