"""Huang, Pu, Johansson (2026): Figures 2 to 5, a sigmoid network on MNIST sorted by label."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from compositefl import data, models, partition
from compositefl.algorithms import ZA1, FedCanon, FedNMap
from compositefl.experiments.declaration import Experiment, Setting, Verdict
from compositefl.experiments.pictures import curves, final, slope
from compositefl.problem import Problem
from compositefl.regularizers import ElasticNet

SOURCE = "Huang, Pu, Johansson (2026)"
GAMMA = 4.0
ROUNDS = 800
Y_LABEL = r"$\|F_{nat}^{\gamma}(x_t)\|^2$"
CHOICES = (
    "Network 784-32-10 with cross-entropy; inputs in [0, 1]; minibatch 8; the elastic net covers "
    "all parameters, biases too.",
    "Training samples sorted by label and cut into n consecutive parts whose sizes differ by at "
    "most one.",
    "Glorot start, the same for all methods; for FedNMap and ZA1 it is the point before the prox.",
    "FedCanon's alpha is eta_hat = 1 and its beta the local step.",
    "All methods measured at gamma = 4, on the full training set.",
    "Final value: mean over the last quarter of the rounds and over the trials.",
)


@dataclass(frozen=True)
class MnistNetwork:
    """The problem of section 5.1 for n clients."""

    clients: int

    def __call__(self) -> Problem:
        mnist = data.load("mnist")
        parts = partition.by_label(mnist.train, clients=self.clients)
        return models.mlp((784, 32, 10), activation="sigmoid").problem(parts, test=mnist.test)


def setting(
    method: str, n: int, q: int, local_lr: float, quick: bool, rounds: int, batch: int = 8
) -> Setting:
    steps: dict[str, Any] = dict(local_steps=q, local_lr=local_lr, server_lr=1.0)
    algorithm = {
        "FedNMap": lambda: FedNMap(gamma=GAMMA, **steps),
        "ZA1": lambda: ZA1(**steps),
        "FedCanon": lambda: FedCanon(**steps),
    }[method]()
    options = dict(
        rounds=rounds // 10 if quick else rounds,
        trials=1 if quick else 3,
        batch_size=batch,
        eval_gamma=GAMMA,
        eval_every=max(1, rounds // (100 if quick else 40)),
    )
    return Setting(
        {"method": method, "n": n, "Q": q, "local_lr": local_lr},
        MnistNetwork(n),
        ElasticNet(1e-3, 1e-2),
        algorithm,
        options,
    )


# (n, Q, minibatch); the last two because with minibatches of 8 the curves of n = 100 still fall
FIG2 = [*((n, q, 8) for q in (10, 20) for n in (20, 50, 100)), (100, 10, 1), (100, 20, 1)]
METHODS = ("FedNMap", "ZA1", "FedCanon")


def fig2_settings(quick: bool) -> list[Setting]:
    out = []
    for n, q, b in FIG2[:1] if quick else FIG2:
        for method in METHODS:
            one = setting(method, n, q, 1 / q, quick, ROUNDS, b)
            out.append(replace(one, labels={**one.labels, "minibatch": b}))
    return out


def fig2_draw(table: pd.DataFrame, path: Path) -> None:
    curves(table, path, panel=("minibatch", "Q", "n"), line="method", y_label=Y_LABEL, columns=3)


def fig2_judge(table: pd.DataFrame) -> list[Verdict]:
    floor = final(table, ("method", "n", "Q", "minibatch"))
    verdicts = []
    for n, q, b in [p for p in FIG2 if ("FedNMap", *p) in floor.index]:
        own = floor["FedNMap", n, q, b]
        others = {m: floor[m, n, q, b] for m in ("ZA1", "FedCanon")}
        said = ", ".join(f"{m} {v:.2e}" for m, v in others.items())
        verdicts.append(
            Verdict(
                f"n = {n}, Q = {q}, minibatch {b}: FedNMap ends lowest",
                "below ZA1 and FedCanon",
                f"FedNMap {own:.2e}, {said}",
                bool(own < min(others.values())),
            )
        )
    own = floor["FedNMap"].xs(8, level="minibatch")
    for name, other in (("n", "Q"), ("Q", "n")):
        for value, part in own.groupby(other):
            part = part.droplevel(other).sort_index()
            if len(part) > 1:
                verdicts.append(
                    Verdict(
                        f"FedNMap's floor falls with {name} ({other} = {value})",
                        "falls",
                        " > ".join(f"{v:.2e}" for v in part),
                        bool(part.is_monotonic_decreasing),
                    )
                )
    return verdicts


def slope_judge(over: str, paper: float, table: pd.DataFrame) -> list[Verdict]:
    measured = slope(final(table, (over,)))
    return [
        Verdict(
            f"slope of log final stationarity over log {over}",
            f"{paper} (theory -0.5)",
            f"{measured:.3f}",
            measured <= -0.5,
        )
    ]


def slope_draw(over: str, table: pd.DataFrame, path: Path) -> None:
    """Curves over rounds on the left, final values over the varied number on the right."""
    from matplotlib.figure import Figure

    from compositefl.report import COLOURS

    figure = Figure(figsize=(8, 3.4), dpi=110, layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, (value, part) in enumerate(table.groupby(over)):
        mean = part.groupby("round")["natural_residual_sq"].mean()
        colour = COLOURS[number % len(COLOURS)]
        left.plot(mean.index, mean, label=f"{over} = {value}", color=colour)
    left.set_yscale("log")
    left.set_xlabel("communication rounds")
    left.set_ylabel(Y_LABEL)
    left.legend(fontsize=8)
    floor = final(table, (over,))
    right.loglog(floor.index, floor, "o-", color=COLOURS[0])
    right.set_xticks(list(floor.index), [str(v) for v in floor.index])
    right.set_xticks([], minor=True)
    right.set_title(f"slope {slope(floor):.3f}")
    right.set_xlabel(over)
    right.set_ylabel("final value")
    for axis in (left, right):
        axis.grid(alpha=0.25)
    figure.savefig(path)


def fig3_settings(quick: bool) -> list[Setting]:
    numbers = (10, 100) if quick else (10, 20, 40, 60, 80, 100)
    return [setting("FedNMap", n, 10, 0.1, quick, ROUNDS) for n in numbers]


def fig4_settings(quick: bool) -> list[Setting]:
    numbers = (5, 20) if quick else (5, 10, 20, 30, 40)
    return [setting("FedNMap", 30, q, 1 / q, quick, ROUNDS) for q in numbers]


RULES = {"1/Q": lambda q: 1 / q, "1/sqrt(Q)": lambda q: q**-0.5, "0.05": lambda q: 0.05}


STABLE = (
    2.0  # effective steps eta_hat = Q * local step from here on do not converge on this problem
)


def fig5_settings(quick: bool) -> list[Setting]:
    numbers: Sequence[int] = (5, 20) if quick else (5, 10, 20, 40)
    out = []
    for rule, step in RULES.items():
        for q in numbers:
            one = setting("FedNMap", 30, q, step(q), quick, ROUNDS)
            out.append(replace(one, labels={"panel": f"local step {rule}", **one.labels}))
    return out


def fig5_judge(table: pd.DataFrame) -> list[Verdict]:
    verdicts = []
    tenth = table["round"].max() // 10
    early = table[(table["round"] > 0) & (table["round"] <= tenth)]
    for rule in ("1/sqrt(Q)", "0.05"):
        part = early[early["panel"] == f"local step {rule}"]
        speed = part.groupby("Q")["natural_residual_sq"].mean()
        verdicts.append(
            Verdict(
                f"local step {rule}: larger Q converges faster",
                "faster",
                "mean over the first tenth of the rounds: "
                + ", ".join(f"Q = {q}: {v:.2e}" for q, v in speed.items()),
                bool(speed.is_monotonic_decreasing),
            )
        )
    floor = final(table[table["panel"] == "local step 1/Q"], ("Q",)).sort_index()
    verdicts.append(
        Verdict(
            "local step 1/Q: larger Q gives a lower floor",
            "lower",
            ", ".join(f"Q = {q}: {v:.2e}" for q, v in floor.items()),
            bool(floor.is_monotonic_decreasing),
        )
    )
    return verdicts


EXPERIMENTS = [
    Experiment(
        "fednmap-fig2",
        "FedNMap, ZA1 and FedCanon on MNIST sorted by label",
        f"{SOURCE}, Figure 2",
        (*CHOICES, "800 rounds, 3 trials (the paper: 10 trials, rounds not stated)."),
        fig2_draw,
        fig2_judge,
        fig2_settings,
        remarks=(
            "FedNMap and ZA1 differ only on the noise floor, and the minibatch decides how soon "
            "that is reached. With minibatches of 8 and n = 100 the curves still fall at round "
            "800, and there ZA1 is ahead by a tenth. After 2,400 rounds the two are equal (n = "
            "100, Q = 10: 2.718e-05 and 2.722e-05). With minibatches of 1 the floor is reached "
            "within 800 rounds, and FedNMap is lower by 15 % (Q = 10) and 7 % (Q = 20): the two "
            "panels added.",
            "Minibatches of 1, 8 and 32 were tried with n = 20, Q = 10 and 1000 rounds before 8 "
            "was taken: FedNMap ended lowest with each.",
        ),
    ),
    Experiment(
        "fednmap-fig3",
        "speed-up in the number of clients",
        f"{SOURCE}, Figure 3",
        (*CHOICES, "n in {10, 20, 40, 60, 80, 100}; 800 rounds, 3 trials."),
        partial(slope_draw, "n"),
        partial(slope_judge, "n", -1.436),
        fig3_settings,
    ),
    Experiment(
        "fednmap-fig4",
        "speed-up in the number of local steps",
        f"{SOURCE}, Figure 4",
        (*CHOICES, "Q in {5, 10, 20, 30, 40}; 800 rounds, 3 trials."),
        partial(slope_draw, "Q"),
        partial(slope_judge, "Q", -1.181),
        fig4_settings,
    ),
    Experiment(
        "fednmap-fig5",
        "three rules for the local step",
        f"{SOURCE}, Figure 5",
        (*CHOICES, "Q in {5, 10, 20, 40}, the paper's are lost; 800 rounds, 3 trials."),
        partial(curves, panel=("panel",), line="Q", y_label=Y_LABEL),
        fig5_judge,
        fig5_settings,
        remarks=(
            "The loss decides the two claims that fail. With cross-entropy the method does not "
            "converge from an effective step Q * local step of about 2 on, and the rule 1/sqrt(Q) "
            "has 2.2 to 6.3, the rule 0.05 has 2 for Q = 40 (up to Q = 20 the claim holds). Tried: "
            "half the squared error of sigmoid outputs, which is smoother (one trial, 300 rounds, "
            "means over the first 80). There larger Q converges faster under both rules: 3.4e-03, "
            "1.6e-03, 8.3e-04, 5.2e-04 under 1/sqrt(Q) and 5.0e-02, 2.7e-02, 1.2e-02, 4.2e-03 "
            "under 0.05. The paper does not name its loss.",
            "Also tried with cross-entropy: inputs scaled by 1/2 (the same order as here), and Q = "
            "1, 2, 3 under 1/sqrt(Q) (1.4e-02, 4.1e-02, 5.2e-03; Q = 2 does not converge).",
        ),
    ),
]
