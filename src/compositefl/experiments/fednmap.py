"""Huang, Pu, Johansson (2026): Figures 2 to 5, a sigmoid network on MNIST sorted by label."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from compositefl import data, models
from compositefl.algorithms import ZA1, FedCanon, FedNMap
from compositefl.data import partition
from compositefl.experiments.declaration import Experiment, Setting, Verdict
from compositefl.experiments.pictures import curves, final, save, slope
from compositefl.problem import Problem
from compositefl.regularizers import ElasticNet

SOURCE = "Huang, Pu, Johansson (2026)"
GAMMA = 4.0
ROUNDS, TRIALS = 800, 10
Y_LABEL = r"$\|F_{nat}^{\gamma}(x_t)\|^2$"
CHOICES = (
    "Network 784-32-10; inputs in [0, 1]; minibatch 8; the elastic net covers all parameters, "
    "biases too.",
    "The paper does not name its loss. Cross-entropy was run first; several claims did not hold. "
    "With half the squared error of sigmoid outputs, which is smoother, more of them hold and the "
    "slopes are closer to the paper's, so both are shown. But the penalty outweighs the squared "
    "error: its solution has 98.6 % zeros and is a constant (11 % test accuracy). With "
    "cross-entropy there are 79 % zeros and 82 % test accuracy.",
    "Training samples sorted by label and cut into n consecutive parts whose sizes differ by at "
    "most one.",
    "Glorot start, taken as the point before the prox; stationarity is measured at gamma = 4, on "
    "the full training set.",
    "Final value: mean over the last quarter of the rounds and over the trials.",
    f"{ROUNDS} rounds; the paper does not say how many.",
)
AVERAGED = f"{TRIALS} trials, as in the paper."
COMPARED = (
    AVERAGED,
    "The start is the same for all methods: for FedCanon it is x_0. FedCanon's alpha is eta_hat = "
    "1 and its beta the local step.",
)


@dataclass(frozen=True)
class MnistNetwork:
    """The problem of section 5.1 for n clients."""

    clients: int
    loss: ClassVar[str] = "cross-entropy"

    def __call__(self) -> Problem:
        mnist = data.load("mnist")
        parts = partition.by_label(mnist.train, clients=self.clients)
        model = models.mlp((784, 32, 10), activation="sigmoid", loss=self.loss)
        return model.problem(parts, test=mnist.test)


@dataclass(frozen=True)
class MnistSquared(MnistNetwork):
    """The same with half the squared error."""

    loss: ClassVar[str] = "squared"


NETWORKS = {"squared error": MnistSquared, "cross-entropy": MnistNetwork}


def each_objective(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    for name in NETWORKS:
        part = table[table["objective"] == name]
        if len(part):
            yield name, part


def setting(
    objective: str,
    method: str,
    n: int,
    q: int,
    local_lr: float,
    quick: bool,
    batch: int = 8,
) -> Setting:
    steps: dict[str, Any] = dict(local_steps=q, local_lr=local_lr, server_lr=1.0)
    algorithm = {
        "FedNMap": lambda: FedNMap(gamma=GAMMA, **steps),
        "ZA1": lambda: ZA1(**steps),
        "FedCanon": lambda: FedCanon(**steps),
    }[method]()
    options = dict(
        rounds=ROUNDS // 10 if quick else ROUNDS,
        trials=1 if quick else TRIALS,
        batch_size=batch,
        eval_gamma=GAMMA,
        eval_every=ROUNDS // (100 if quick else 40),
    )
    return Setting(
        {"objective": objective, "method": method, "n": n, "Q": q, "local_lr": local_lr},
        NETWORKS[objective](n),
        ElasticNet(1e-3, 1e-2),
        algorithm,
        options,
    )


# (objective, n, Q, minibatch). The last two, because with cross-entropy and minibatches of 8 the
# curves of n = 100 still fall in the last round.
FIG2 = [
    *((name, n, q, 8) for name in NETWORKS for q in (10, 20) for n in (20, 50, 100)),
    ("cross-entropy", 100, 10, 1),
    ("cross-entropy", 100, 20, 1),
]
METHODS = ("FedNMap", "ZA1", "FedCanon")


def fig2_settings(quick: bool) -> list[Setting]:
    out = []
    for name, n, q, b in FIG2[::6] if quick else FIG2:
        for method in METHODS:
            one = setting(name, method, n, q, 1 / q, quick, b)
            out.append(replace(one, labels={**one.labels, "minibatch": b}))
    return out


def fig2_draw(table: pd.DataFrame, path: Path) -> None:
    """One panel for each objective, minibatch, Q and n."""
    keys = zip(*(table[c] for c in ("objective", "n", "Q", "minibatch")), strict=True)
    panel = [
        name + (f", minibatch {b},\n" if b != 8 else ", ") + f"n = {n}, Q = {q}"
        for name, n, q, b in keys
    ]
    shown = table.assign(panel=panel)
    curves(shown, path, panel=("panel",), line="method", y_label=Y_LABEL, columns=3)


def fig2_judge(table: pd.DataFrame) -> list[Verdict]:
    by = ("objective", "n", "Q", "minibatch")
    end = final(table, (*by, "method")).unstack()
    single = final(table, (*by, "trial", "method")).unstack()
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
        own = final(part[part["method"] == "FedNMap"], ("n", "Q"))
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


def slope_judge(over: str, paper: float, table: pd.DataFrame) -> list[Verdict]:
    verdicts = []
    for name, part in each_objective(table):
        end = final(part, (over,)).sort_index()
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

    from compositefl.report.curves import COLOURS

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
        end = final(of, (over,)).sort_index()
        right.loglog(end.index, end, "o-", color=COLOURS[0])
        right.set_xticks(list(end.index), [str(v) for v in end.index])
        right.set_xticks([], minor=True)
        right.set_title(f"slope {slope(end):.3f}")
        right.set_xlabel(over)
        right.set_ylabel("final value")
        for axis in (left, right):
            axis.grid(alpha=0.25)
    save(figure, path, table)


def fig3_settings(quick: bool) -> list[Setting]:
    numbers = (10, 100) if quick else (10, 20, 40, 60, 80, 100)
    return [setting(f, "FedNMap", n, 10, 0.1, quick) for f in NETWORKS for n in numbers]


def fig4_settings(quick: bool) -> list[Setting]:
    numbers = (5, 20) if quick else (5, 10, 20, 30, 40)
    return [setting(f, "FedNMap", 30, q, 1 / q, quick) for f in NETWORKS for q in numbers]


RULES = {"1/Q": lambda q: 1 / q, "1/sqrt(Q)": lambda q: q**-0.5, "0.05": lambda q: 0.05}
COMPARABLE = 3.0


def fig5_settings(quick: bool) -> list[Setting]:
    numbers: Sequence[int] = (5, 20) if quick else (5, 10, 20, 40)
    out = []
    for objective in NETWORKS:
        for rule, step in RULES.items():
            for q in numbers:
                one = setting(objective, "FedNMap", 30, q, step(q), quick)
                panel = f"{objective}, local step {rule}"
                out.append(replace(one, labels={"panel": panel, **one.labels}))
    return out


def fig5_judge(table: pd.DataFrame) -> list[Verdict]:
    verdicts = []
    tenth = table["round"].max() // 10
    early = table[(table["round"] > 0) & (table["round"] <= tenth)]
    end = final(table, ("panel", "Q"))

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


EXPERIMENTS = [
    Experiment(
        "fednmap-fig2",
        "FedNMap, ZA1 and FedCanon on MNIST sorted by label",
        f"{SOURCE}, Figure 2",
        (*CHOICES, *COMPARED),
        fig2_draw,
        fig2_judge,
        fig2_settings,
        remarks=(
            "FedNMap and ZA1 differ only on the noise floor, and loss and minibatch decide how "
            "soon that is reached. With squared error it is reached after 300 to 400 rounds, and "
            "FedNMap is lower in every trial of every panel, by 7 to 11 %. With cross-entropy and "
            "n = 20 it is lower by 15 % (Q = 10) and 8 % (Q = 20).",
            "With cross-entropy, minibatches of 8 and larger n the curves still fall at round "
            "800. With n = 50 the two cannot be told apart: the difference is -2.6 % (Q = 10) and "
            "+1.7 % (Q = 20), with standard errors of 1.4 and 1.8 % over the trials. With n = 100 "
            "ZA1 is ahead by a tenth (13 and 10 %); continued to 2,400 rounds the two are equal "
            "(Q = 10: 2.718e-05 and 2.722e-05). With minibatches of 1, the two panels "
            "added, the noise is larger: FedNMap is lower by 14 % for Q = 10, and for Q = 20 the "
            "two are equal (-0.6 %, standard error 2.4 %).",
            "With 3 of the 10 trials FedNMap seemed lower with n = 50, Q = 20 and by 7 % with "
            "minibatches of 1, Q = 20. Ten trials do not confirm either.",
            "Minibatches of 1, 8 and 32 were tried with n = 20, Q = 10 and 1000 rounds before 8 "
            "was taken: FedNMap ended lowest with each.",
        ),
    ),
    Experiment(
        "fednmap-fig3",
        "speed-up in the number of clients",
        f"{SOURCE}, Figure 3",
        (*CHOICES, AVERAGED, "n in {10, 20, 40, 60, 80, 100}; the paper's are lost."),
        partial(slope_draw, "n"),
        partial(slope_judge, "n", -1.436),
        fig3_settings,
        remarks=(
            "Before the floor all curves coincide, and on the floor neighbouring ones cross in "
            "single evaluations: the order holds for means over the last rounds, not throughout.",
        ),
    ),
    Experiment(
        "fednmap-fig4",
        "speed-up in the number of local steps",
        f"{SOURCE}, Figure 4",
        (*CHOICES, AVERAGED, "Q in {5, 10, 20, 30, 40}; the paper's are lost."),
        partial(slope_draw, "Q"),
        partial(slope_judge, "Q", -1.181),
        fig4_settings,
    ),
    Experiment(
        "fednmap-fig5",
        "three rules for the local step",
        f"{SOURCE}, Figure 5",
        (*CHOICES, AVERAGED, "Q in {5, 10, 20, 40}; the paper's are lost."),
        partial(curves, panel=("panel",), line="Q", y_label=Y_LABEL),
        fig5_judge,
        fig5_settings,
        remarks=(
            "What fails depends on the effective step Q * local step, which is sqrt(Q) under the "
            "second rule and Q/20 under the third. With squared error it may be about 3: the third "
            "rule does what the paper says, and the second does up to Q = 10, where the final "
            "value is 1.9 times that of Q = 5; from Q = 20 on it stays above 2e-04. With "
            "cross-entropy the method does not converge from about 2 on, which is all of the "
            "second rule and Q = 40 of the third. Since the paper's Q are lost, smaller ones may "
            "have been behind its figure.",
            "With the third rule and Q = 5 the steps are so small that 800 rounds do not reach the "
            "floor; hence the comparison with the lowest value and not with that of the smallest "
            "Q.",
            "Also tried with cross-entropy: inputs scaled by 1/2 (the same order as here), and Q = "
            "1, 2, 3 under 1/sqrt(Q) (1.4e-02, 4.1e-02, 5.2e-03; Q = 2 does not converge).",
        ),
    ),
]
