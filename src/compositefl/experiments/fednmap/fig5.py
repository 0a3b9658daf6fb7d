"""Figure 5: three rules for the local step."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pandas as pd

from compositefl.experiments.declaration import Experiment, PlannedRun, Verdict
from compositefl.experiments.fednmap.network import (
    CHOICES,
    NETWORKS,
    SOURCE,
    Y_LABEL,
    each_objective,
    planned,
)
from compositefl.experiments.pictures import curves
from compositefl.experiments.statistics import falls, log_ratio, tail_mean

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
    later = table[table["round"] > 0]
    early = later[later["round"] <= max(later["round"].min(), later["round"].max() // 10)]
    by = ("panel", "Q", "trial")
    end = tail_mean(table, by)
    speed = early.groupby(list(by), sort=False)["natural_residual_sq"].mean()

    def columns(values: pd.Series, panel: str) -> pd.DataFrame:
        return values[panel].unstack("Q").sort_index(axis=1)

    def listed(values: pd.DataFrame) -> str:
        return ", ".join(f"Q = {q}: {v:.2e}" for q, v in values.mean().items())

    for name, _ in each_objective(table):
        here = columns(end, f"{name}, local step 1/Q")
        claim = "local step 1/Q: larger Q ends lower"
        verdicts.append(Verdict(f"{name}, {claim}", "lower", listed(here), falls(here), claim))
        for rule in ("1/sqrt(Q)", "0.05"):
            panel = f"{name}, local step {rule}"
            fast, here = columns(speed, panel), columns(end, panel)
            lowest = here.mean().idxmin()
            most = log_ratio(here.iloc[:, -1], here[lowest]).below(math.log(COMPARABLE))
            verdicts += [
                Verdict(
                    f"{panel}: larger Q converges faster",
                    "faster",
                    f"mean over the first tenth of the rounds: {listed(fast)}",
                    falls(fast),
                    f"local step {rule}: larger Q converges faster",
                ),
                Verdict(
                    f"{panel}: the largest Q ends comparable",
                    "'slightly higher yet comparable' (here: the largest Q at most "
                    f"{COMPARABLE:.0f} times the lowest; whether it is higher is not judged)",
                    listed(here),
                    most,
                    f"local step {rule}: the largest Q ends comparable",
                ),
            ]
    return verdicts


EXPERIMENT = Experiment(
    "fednmap-fig5",
    "three rules for the local step",
    f"{SOURCE}, Figure 5",
    (*CHOICES, "Q in {5, 10, 20, 40}; the paper's are not in our copy."),
    partial(curves, panel=("panel",), line="Q", y_label=Y_LABEL),
    judge,
    runs,
    compares=("method", "Q", "local_lr"),
)
