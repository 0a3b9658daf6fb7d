"""Figures 3 to 5 with narrower networks: the width is not in our copy, and it moves the slopes.

Local smoothness grows with the width, and with it falls the largest eta_hat = Q eta_a that
converges, which under eta_a = 1/sqrt(Q) is sqrt(Q).
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pandas as pd

from compositefl.experiments.declaration import Experiment, Kind, PlannedRun, Verdict
from compositefl.experiments.fednmap.fig5 import COMPARABLE, RULES
from compositefl.experiments.fednmap.network import (
    CHOICES,
    NETWORKS,
    SOURCE,
    each_objective,
    planned,
)
from compositefl.experiments.fednmap.speedup import THEORY, by_trial
from compositefl.experiments.pictures import save
from compositefl.experiments.statistics import falls, log_ratio, slopes

WIDTHS = (8, 16, 32)
CLIENTS, LOCAL_STEPS = (10, 30, 90), (5, 10, 20)
MIDDLE = 30, 10  # n and Q where the other one varies
PAPER = {"n": -1.436, "Q": -1.181}
TRIALS = 3


def runs(quick: bool) -> list[PlannedRun]:
    """The runs behind the page; a setting that two rules share is run for both."""
    clients, steps = (CLIENTS[:2], LOCAL_STEPS[:2]) if quick else (CLIENTS, LOCAL_STEPS)
    n, q = MIDDLE
    cases = [("1/Q", other, q) for other in clients if other != n]
    cases += [(rule, n, other) for rule in RULES for other in steps]
    out = []
    for objective in NETWORKS:
        for width in WIDTHS[:1] if quick else WIDTHS:
            for rule, n, q in cases:
                one = planned(objective, "FedNMap", n, q, RULES[rule](q), quick, width=width)
                labels = {"width": width, "rule": rule, **one.labels}
                out.append(replace(one, labels=labels, trials=min(TRIALS, one.trials)))
    return out


def lines(part: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """What varies, the rule, and the final values of one network: a row per trial."""
    n, q = MIDDLE
    simple = part[part["rule"] == "1/Q"]
    yield "n", "1/Q", by_trial(simple[simple["Q"] == q], "n")
    for rule in RULES:
        here = part[(part["rule"] == rule) & (part["n"] == n)]
        yield "Q", rule, by_trial(here, "Q")


def judge(table: pd.DataFrame) -> list[Verdict]:
    """What Figures 3 to 5 say, for every width."""
    verdicts = []
    for objective, of in each_objective(table):
        for width, part in of.groupby("width"):
            name = f"{objective}, width {width}"
            for over, rule, end in lines(part):
                told = ", ".join(f"{over} = {v}: {e:.2e}" for v, e in end.mean().items())
                if rule == "1/Q":
                    measured = slopes(end)
                    claim = (
                        f"{name}: the final value falls with {over}, at least as {over}^{THEORY}"
                    )
                    paper = f"measured {over}^{PAPER[over]}, its width is not in our copy"
                    told, holds = f"slope {measured}; {told}", measured.below(THEORY)
                else:
                    claim = f"{name}, local step {rule}: the largest {over} ends comparable"
                    paper = f"comparable (here: at most {COMPARABLE:.0f} times the lowest)"
                    lowest = end[end.mean().idxmin()]
                    holds = log_ratio(end.iloc[:, -1], lowest).below(math.log(COMPARABLE))
                    if end.columns[-1] == lowest.name:
                        holds = True
                verdicts.append(Verdict(claim, paper, told, holds, kind=Kind.OURS))
            by_q = next(end for over, rule, end in lines(part) if (over, rule) == ("Q", "1/Q"))
            claim = f"{name}, local step 1/Q: larger Q ends lower"
            told = ", ".join(f"Q = {v}: {e:.2e}" for v, e in by_q.mean().items())
            verdicts.append(Verdict(claim, "lower", told, falls(by_q), kind=Kind.OURS))
    return verdicts


def draw(table: pd.DataFrame, path: Path) -> None:
    """A row for each objective, a panel for each figure's line, a curve for each width."""
    from matplotlib.figure import Figure

    from compositefl.report.style import COLOURS

    shown = list(each_objective(table))
    columns = 1 + len(RULES)
    size = 3.4 * columns, 3.0 * len(shown) + 0.4
    figure = Figure(figsize=size, dpi=110, layout="constrained")
    rows = figure.subplots(len(shown), columns, squeeze=False, sharey="row")
    for axes, (objective, of) in zip(rows, shown, strict=True):
        for number, (width, part) in enumerate(of.groupby("width")):
            for axis, (over, rule, end) in zip(axes, lines(part), strict=True):
                mean, error = end.mean(), 2 * end.sem()
                colour = COLOURS[number % len(COLOURS)]
                axis.errorbar(
                    mean.index, mean, error, fmt="o-", color=colour, capsize=3, label=f"{width}"
                )
                if rule == "1/Q" and number == 0:
                    x = mean.index.to_numpy(float)
                    for steep, dash in ((PAPER[over], "--"), (THEORY, ":")):
                        axis.plot(x, mean.iloc[0] * (x / x[0]) ** steep, dash, color="0.4")
                axis.set_title(f"{objective}, local step {rule}", fontsize=9)
                axis.set_xlabel(over)
                axis.set_xscale("log")
                axis.set_yscale("log")
                axis.set_xticks(list(mean.index), [str(v) for v in mean.index])
                axis.set_xticks([], minor=True)
                axis.grid(alpha=0.25)
        axes[0].set_ylabel("final value")
    handles, labels = rows[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=3, title="width; dashed the paper's "
        "slope, dotted theory's"
    )  # fmt: skip
    save(figure, path, table)


EXPERIMENT = Experiment(
    "fednmap-widths",
    "Figures 3 to 5 with networks of three widths",
    f"{SOURCE}, Figures 3 to 5; the width is not in our copy",
    (
        *CHOICES,
        "Widths 8, 16, 32; n in {10, 30, 90} with Q = 10, and Q in {5, 10, 20} with n = 30.",
    ),
    draw,
    judge,
    runs,
    compares=("method", "n", "Q", "rule", "local_lr"),
)
