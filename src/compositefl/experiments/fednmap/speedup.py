"""What Figures 3 and 4 share: the final value over n or Q, and its slope."""

from pathlib import Path

import pandas as pd

from compositefl.experiments.declaration import Verdict
from compositefl.experiments.fednmap.network import Y_LABEL, each_objective
from compositefl.experiments.pictures import save
from compositefl.experiments.statistics import slope, tail_mean


def slope_judge(over: str, paper: float, table: pd.DataFrame) -> list[Verdict]:
    """The claims about the speed-up in `over`; the paper measured the slope `paper`."""
    verdicts = []
    for name, part in each_objective(table):
        end = tail_mean(part, (over,)).sort_index()
        measured = slope(end)
        verdicts += [
            Verdict(
                f"{name}: the final stationarity falls with {over}, at least as {over}^-0.5",
                f"measured {over}^{paper}; theory {over}^-0.5",
                f"{over}^{measured:.3f}",
                measured <= -0.5,
            ),
            Verdict(
                f"{name}: larger {over} ends with a smaller stationarity measure",
                "smaller",
                ", ".join(f"{over} = {v}: {e:.2e}" for v, e in end.items()),
                bool(end.is_monotonic_decreasing),
            ),
        ]
        if over == "n":
            mean = part[part["round"] > 0].groupby(["round", "n"])["natural_residual_sq"].mean()
            ordered = (mean.unstack().diff(axis=1).iloc[:, 1:] < 0).all(axis=1)
            verdicts.append(
                Verdict(
                    f"{name}: larger n has the smaller measure throughout the rounds",
                    "throughout",
                    f"all in this order in {ordered.sum()} of {len(ordered)} evaluations"
                    + (f", the first at round {ordered.idxmax()}" if ordered.any() else ""),
                    bool(ordered.all()),
                )
            )
    return verdicts


def slope_draw(over: str, table: pd.DataFrame, path: Path) -> None:
    """A row for each objective: curves over rounds, final values over the varied number."""
    from matplotlib.figure import Figure

    from compositefl.report.style import COLOURS

    shown = list(each_objective(table))
    figure = Figure(figsize=(8, 3.2 * len(shown) + 0.2), dpi=110, layout="constrained")
    rows = figure.subplots(len(shown), 2, squeeze=False)
    for (left, right), (name, of) in zip(rows, shown, strict=True):
        for number, (value, part) in enumerate(of.groupby(over)):
            mean = part.groupby("round")["natural_residual_sq"].mean()
            colour = COLOURS[number % len(COLOURS)]
            left.plot(mean.index, mean, label=f"{over} = {value}", color=colour)
        left.set_yscale("log")
        left.set_title(name)
        left.set_xlabel("communication rounds")
        left.set_ylabel(Y_LABEL)
        left.legend(fontsize=8)
        end = tail_mean(of, (over,)).sort_index()
        right.loglog(end.index, end, "o-", color=COLOURS[0])
        right.set_xticks(list(end.index), [str(v) for v in end.index])
        right.set_xticks([], minor=True)
        right.set_title(f"slope {slope(end):.3f}")
        right.set_xlabel(over)
        right.set_ylabel("final value")
        for axis in (left, right):
            axis.grid(alpha=0.25)
    save(figure, path, table)
