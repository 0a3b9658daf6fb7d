"""Figure 2: FedNMap, ZA1 and FedCanon on MNIST sorted by label."""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from compositefl.experiments.declaration import Experiment, PlannedRun, Verdict
from compositefl.experiments.fednmap.network import (
    CHOICES,
    COMPARED,
    METHODS,
    NETWORKS,
    SOURCE,
    Y_LABEL,
    each_objective,
    planned,
)
from compositefl.experiments.pictures import curves
from compositefl.experiments.statistics import tail_mean

# (objective, n, Q, minibatch). The last two, because with cross-entropy and minibatches of 8 the
# curves of n = 100 still fall in the last round.
PANELS = [
    *((name, n, q, 8) for name in NETWORKS for q in (10, 20) for n in (20, 50, 100)),
    ("cross-entropy", 100, 10, 1),
    ("cross-entropy", 100, 20, 1),
]


def runs(quick: bool) -> list[PlannedRun]:
    """The runs behind the figure."""
    out = []
    for name, n, q, b in PANELS[::6] if quick else PANELS:
        for method in METHODS:
            one = planned(name, method, n, q, 1 / q, quick, b)
            out.append(replace(one, labels={**one.labels, "minibatch": b}))
    return out


def draw(table: pd.DataFrame, path: Path) -> None:
    """One panel for each objective, minibatch, Q and n."""
    keys = zip(*(table[c] for c in ("objective", "n", "Q", "minibatch")), strict=True)
    panel = [
        name + (f", minibatch {b},\n" if b != 8 else ", ") + f"n = {n}, Q = {q}"
        for name, n, q, b in keys
    ]
    shown = table.assign(panel=panel)
    curves(shown, path, panel=("panel",), line="method", y_label=Y_LABEL, columns=3)


def judge(table: pd.DataFrame) -> list[Verdict]:
    """The paper's claims against the table."""
    by = ("objective", "n", "Q", "minibatch")
    end = tail_mean(table, (*by, "method")).unstack()
    single = tail_mean(table, (*by, "trial", "method")).unstack()
    verdicts = []
    for name, n, q, b in end.index:
        here, trials = end.loc[(name, n, q, b)], single.loc[(name, n, q, b)]
        lowest = int((trials.idxmin(axis=1) == "FedNMap").sum())
        verdicts.append(
            Verdict(
                f"{name}, n = {n}, Q = {q}, minibatch {b}: FedNMap ends lowest",
                "below ZA1 and FedCanon",
                ", ".join(f"{m} {here[m]:.2e}" for m in METHODS)
                + f"; lowest in {lowest} of {len(trials)} trials",
                here.idxmin() == "FedNMap",
            )
        )
    for name, part in each_objective(table[table["minibatch"] == 8]):
        own = tail_mean(part[part["method"] == "FedNMap"], ("n", "Q"))
        for varied, other in (("n", "Q"), ("Q", "n")):
            for value, values in own.groupby(other):
                values = values.droplevel(other).sort_index()
                if len(values) > 1:
                    verdicts.append(
                        Verdict(
                            f"{name}: FedNMap's final value falls with {varied} "
                            f"({other} = {value})",
                            "falls",
                            " > ".join(f"{v:.2e}" for v in values),
                            bool(values.is_monotonic_decreasing),
                        )
                    )
    return verdicts


EXPERIMENT = Experiment(
    "fednmap-fig2",
    "FedNMap, ZA1 and FedCanon on MNIST sorted by label",
    f"{SOURCE}, Figure 2",
    (*CHOICES, *COMPARED),
    draw,
    judge,
    runs,
)
