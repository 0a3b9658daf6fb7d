"""What Figures 3 and 4 share: the final value over n or Q, and its slope."""

from pathlib import Path

import pandas as pd

from compositefl.experiments.declaration import Verdict
from compositefl.experiments.fednmap.network import Y_LABEL, each_objective
from compositefl.experiments.pictures import save
from compositefl.experiments.statistics import falls, slopes, tail_mean

THEORY = -0.5


def by_trial(part: pd.DataFrame, over: str) -> pd.DataFrame:
    """The final value: a row per trial, a column per value of `over`."""
    return tail_mean(part, (over, "trial")).unstack(over).sort_index(axis=1)


def slope_judge(over: str, paper: float, table: pd.DataFrame) -> list[Verdict]:
    """The claims about the speed-up in `over`; the paper measured the slope `paper`."""
    verdicts = []
    for name, part in each_objective(table):
        end = by_trial(part, over)
        measured = slopes(end)
        verdicts += [
            Verdict(
                f"{name}: the final stationarity falls with {over}, at least as {over}^{THEORY}",
                f"measured {over}^{paper}; theory {over}^{THEORY}",
                f"slope {measured}",
                measured.below(THEORY),
                f"the final stationarity falls with {over}, at least as {over}^{THEORY}",
            ),
            Verdict(
                f"{name}: larger {over} ends with a smaller stationarity measure",
                "smaller",
                ", ".join(f"{over} = {v}: {e:.2e}" for v, e in end.mean().items()),
                falls(end),
                f"larger {over} ends with a smaller stationarity measure",
            ),
        ]
        if over == "n":
            mean = part[part["round"] > 0].groupby(["round", "n"])["natural_residual_sq"].mean()
            ordered = (mean.unstack().diff(axis=1).iloc[:, 1:] < 0).all(axis=1)
            verdicts.append(
                Verdict(
                    f"{name}: larger n has the smaller measure throughout the rounds",
                    "throughout",
                    f"means over the trials all in this order in {ordered.sum()} of "
                    f"{len(ordered)} evaluations"
                    + (f", the first at round {ordered.idxmax()}" if ordered.any() else ""),
                    bool(ordered.all()),
                    "larger n has the smaller measure throughout the rounds",
                )
            )
    return verdicts


def slope_draw(over: str, paper: float, table: pd.DataFrame, path: Path) -> None:
    """A row for each objective: curves over rounds, final values over the varied number."""
    from matplotlib.figure import Figure

    from compositefl.report.style import COLOURS

    shown = list(each_objective(table))
    figure = Figure(figsize=(8, 3.2 * len(shown) + 0.4), dpi=110, layout="constrained")
    rows = figure.subplots(len(shown), 2, squeeze=False, sharex="col", sharey="col")
    for (left, right), (name, of) in zip(rows, shown, strict=True):
        for number, (value, part) in enumerate(of.groupby(over)):
            values = part.groupby("round")["natural_residual_sq"]
            colour = COLOURS[number % len(COLOURS)]
            mean = values.mean()
            left.plot(mean.index, mean, label=f"{over} = {value}", color=colour)
            if part["trial"].nunique() > 1:
                band = values.min(), values.max()
                left.fill_between(mean.index, *band, color=colour, alpha=0.15, lw=0)
        left.set_yscale("log")
        left.set_title(name)
        left.set_xlabel("communication rounds")
        left.set_ylabel(Y_LABEL)
        left.legend(fontsize=8)
        trials = by_trial(of, over)
        end = trials.mean()
        error = 2 * trials.sem() if len(trials) > 1 else None
        right.errorbar(end.index, end, error, fmt="o-", color=COLOURS[0], capsize=3, label="here")
        x = end.index.to_numpy(float)
        for steep, dash, label in ((paper, "--", "the paper's"), (THEORY, ":", "theory's")):
            line = end.iloc[0] * (x / x[0]) ** steep
            right.plot(x, line, dash, color="0.4", label=f"{label} slope {steep}")
        right.set_xscale("log")
        right.set_yscale("log")
        right.set_xticks(list(end.index), [str(v) for v in end.index])
        right.set_xticks([], minor=True)
        right.set_title(f"{name}, slope {slopes(trials)}")
        right.set_xlabel(over)
        right.set_ylabel("final value")
        right.legend(fontsize=8)
        for axis in (left, right):
            axis.grid(alpha=0.25)
    save(figure, path, table)
