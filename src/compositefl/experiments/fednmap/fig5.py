"""Figure 5: three rules for the local step."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from compositefl.experiments.declaration import Experiment, PlannedRun, Verdict
from compositefl.experiments.fednmap.network import (
    AVERAGED,
    CHOICES,
    NETWORKS,
    SOURCE,
    Y_LABEL,
    each_objective,
    planned,
)
from compositefl.experiments.pictures import curves
from compositefl.experiments.statistics import tail_mean

RULES = {"1/Q": lambda q: 1 / q, "1/sqrt(Q)": lambda q: q**-0.5, "0.05": lambda _q: 0.05}
COMPARABLE = 3.0


def runs(quick: bool) -> list[PlannedRun]:
    """The runs behind the figure."""
    numbers: Sequence[int] = (5, 20) if quick else (5, 10, 20, 40)
    out = []
    for objective in NETWORKS:
        for rule, step in RULES.items():
            for q in numbers:
                one = planned(objective, "FedNMap", 30, q, step(q), quick)
                panel = f"{objective}, local step {rule}"
                out.append(replace(one, labels={"panel": panel, **one.labels}))
    return out


def judge(table: pd.DataFrame) -> list[Verdict]:
    """The paper's claims against the table."""
    verdicts = []
    tenth = table["round"].max() // 10
    early = table[(table["round"] > 0) & (table["round"] <= tenth)]
    end = tail_mean(table, ("panel", "Q"))

    def listed(values: pd.Series) -> str:
        return ", ".join(f"Q = {q}: {v:.2e}" for q, v in values.items())

    for name, _ in each_objective(table):
        here = end[f"{name}, local step 1/Q"].sort_index()
        verdicts.append(
            Verdict(
                f"{name}, local step 1/Q: larger Q ends lower",
                "lower",
                listed(here),
                bool(here.is_monotonic_decreasing),
            )
        )
        for rule in ("1/sqrt(Q)", "0.05"):
            panel = f"{name}, local step {rule}"
            speed = early[early["panel"] == panel].groupby("Q")["natural_residual_sq"].mean()
            here = end[panel].sort_index()
            verdicts += [
                Verdict(
                    f"{panel}: larger Q converges faster",
                    "faster",
                    f"mean over the first tenth of the rounds: {listed(speed)}",
                    bool(speed.is_monotonic_decreasing),
                ),
                Verdict(
                    f"{panel}: larger Q ends slightly higher, yet comparable",
                    f"comparable (here: the largest Q at most {COMPARABLE:.0f} times the lowest)",
                    listed(here),
                    bool(here.iloc[-1] <= COMPARABLE * here.min()),
                ),
            ]
    return verdicts


EXPERIMENT = Experiment(
    "fednmap-fig5",
    "three rules for the local step",
    f"{SOURCE}, Figure 5",
    (*CHOICES, AVERAGED, "Q in {5, 10, 20, 40}; the paper's are lost."),
    partial(curves, panel=("panel",), line="Q", y_label=Y_LABEL),
    judge,
    runs,
)
