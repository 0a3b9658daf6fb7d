"""Figure 3: sparse logistic regression with minibatches."""

from functools import partial
from typing import Any

import pandas as pd

from compositefl.algorithms import ZA1, FedDA, FedNMap
from compositefl.algorithms.base import Algorithm
from compositefl.algorithms.fast_fedda import FastFedDA
from compositefl.experiments.declaration import Experiment, PlannedRun, Verdict
from compositefl.experiments.statistics import tail_mean
from compositefl.experiments.zhang.sparse import (
    ADDED,
    SOURCE,
    SPARSE_CHOICES,
    SparseLogistic,
    optimality,
    optimality_curves,
)
from compositefl.regularizers import L1


def runs(quick: bool) -> list[PlannedRun]:
    """The runs behind the figure."""
    q = 20
    steps: dict[str, Any] = dict(local_steps=q, local_lr=2.0, server_lr=8.0)
    eta_hat = 320.0
    algorithms: dict[str, Algorithm] = {
        "ZA1": ZA1(**steps),
        "FedDA": FedDA(**steps),
        "Fast-FedDA": FastFedDA(local_steps=q, strong_convexity=5.6e-4, proximity=0.25),
        "FedNMap": FedNMap(gamma=eta_hat, **steps),
    }
    rounds = 200 if quick else 1000
    options = dict(
        rounds=rounds,
        trials=1 if quick else 5,
        dtype="float64",
        eval_gamma=eta_hat,
        eval_every=rounds // 100,
    )
    return [
        PlannedRun(
            {"method": m, "batch size": b},
            SparseLogistic(2000),
            L1(0.0005),
            a,
            {**options, "batch_size": b},
        )
        for b in (1, 20)
        for m, a in algorithms.items()
    ]


def judge(table: pd.DataFrame) -> list[Verdict]:
    """The paper's claims against the table."""
    floor = tail_mean(optimality(table), ("method", "batch size"), y="optimality")
    verdicts = []
    for method, paper in (("ZA1", "falls"), ("FedNMap", ADDED)):
        one, many = floor[method, 1], floor[method, 20]
        verdicts.append(
            Verdict(
                f"{method}: the floor falls with the batch, 1 to 20",
                paper,
                f"{one:.2e} to {many:.2e}, {one / many:.1f} times lower",
                bool(many < one),
            )
        )
    for b in (1, 20):
        for method, paper in (("FedDA", "worse"), ("Fast-FedDA", "worse")):
            verdicts.append(
                Verdict(
                    f"batch size {b}: {method} is behind ZA1",
                    paper,
                    f"{method} {floor[method, b]:.2e}, ZA1 {floor['ZA1', b]:.2e}",
                    bool(floor[method, b] > floor["ZA1", b]),
                )
            )
        verdicts.append(
            Verdict(
                f"batch size {b}: FedDA is the best of the others",
                "'performs best among all compared algorithms' (section 4.2)",
                f"FedDA {floor['FedDA', b]:.2e}, Fast-FedDA {floor['Fast-FedDA', b]:.2e}",
                bool(floor["FedDA", b] < floor["Fast-FedDA", b]),
            )
        )
        ratio = floor["FedNMap", b] / floor["ZA1", b]
        verdicts.append(
            Verdict(
                f"batch size {b}: FedNMap ends within 10 % of ZA1",
                ADDED,
                f"FedNMap {floor['FedNMap', b]:.2e}, {ratio:.3f} times ZA1",
                bool(0.9 <= ratio <= 1.1),
            )
        )
    return verdicts


EXPERIMENT = Experiment(
    "zhang-fig3",
    "sparse logistic regression with minibatches",
    f"{SOURCE}, Figure 3",
    (
        *SPARSE_CHOICES,
        "1000 rounds, 5 trials; floor: mean over the last quarter of rounds and the trials.",
    ),
    partial(optimality_curves, panel=("batch size",)),
    judge,
    runs,
)
