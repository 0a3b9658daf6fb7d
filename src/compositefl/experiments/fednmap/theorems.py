"""Theorems 5 and 8: the speed-up in n and in Q with the theorems' steps, next to their bounds.

Half of the clients hold one table and half another, so that f is the same for every n.
"""

import dataclasses
import math
from collections.abc import Iterator
from functools import cache, partial
from typing import Any

import numpy as np
import pandas as pd

from compositefl.algorithms import PGD, FedNMap
from compositefl.experiments.declaration import Experiment, Kind, TableRow, Verdict
from compositefl.experiments.fednmap.network import SOURCE
from compositefl.experiments.fednmap.table1 import BATCH, FEATURES, NONCONVEX, PL, QUIET, Class
from compositefl.experiments.rates import draw, panels
from compositefl.experiments.statistics import Estimate, estimate, slope_error
from compositefl.problem import Problem
from compositefl.solve._minimize import minimize
from compositefl.theory import Constants, stepsizes
from compositefl.theory import estimate as estimated

CLIENTS, STEPS = (2, 4, 8, 16), (1, 2, 4, 8)
LOOKS = 100
SLACK = 0.15  # the rates hide logarithms
THEOREMS = {  # name: class of problems, rounds, trials, theory's slope, what is measured
    "5": (NONCONVEX, 64_000, 4, -0.5, "mean over t of ||F_nat(x_t)||^2"),
    "8": (PL, 20_000, 8, -1.0, "psi(x_T) - psi*"),
}


def problem(kind: Class, clients: int) -> Problem:
    """Two tables, each at half of the clients; the start is 0."""
    return Problem(kind.loss, np.zeros(FEATURES), kind.data()[:2] * (clients // 2))


@cache
def known(kind: Class) -> tuple[float, Constants]:
    """(psi*, constants) of the problem, the same for every number of clients."""
    here = problem(kind, 2)
    hessians = [x.T @ x / len(x) for x, _ in kind.data()[:2]]
    L = max(float(np.linalg.eigvalsh(h)[-1]) for h in hessians)
    rho = float(kind.regularizer.rho)
    options: dict[str, Any] = dict(rounds=20_000, eval_every=20_000, **QUIET)
    psi = minimize(here, kind.regularizer, PGD(lr=1 / (L + rho)), **options).history["psi"]
    mu = float(np.linalg.eigvalsh(sum(hessians) / 2)[0]) - rho if kind is PL else None
    measured = estimated(here, kind.regularizer, batch_size=BATCH, dtype="float64")
    constants = measured.constants(L=L, delta=float(psi.iloc[0] - psi.iloc[-1]), mu=mu)
    return float(psi.iloc[-1]), constants


def run(theorem: str, clients: int, steps: int, quick: bool) -> TableRow:
    """The measured quantity with its error over the trials, and the theorem's bound."""
    kind, rounds, trials, _, _ = THEOREMS[theorem]
    rounds, trials = (rounds // 50, 2) if quick else (rounds, trials)
    best, constants = known(kind)
    constants = dataclasses.replace(constants, clients=clients)
    numbers: dict[str, Any] = dict(rounds=rounds, local_steps=steps, batch_size=BATCH)
    rule = stepsizes("fednmap", constants, theorem=theorem, **numbers)
    assert rule.local_lr and rule.server_lr and rule.gamma
    algorithm = FedNMap(
        local_steps=steps, local_lr=rule.local_lr, server_lr=rule.server_lr, gamma=rule.gamma
    )
    history = minimize(
        problem(kind, clients),
        kind.regularizer,
        algorithm,
        rounds=rounds,
        trials=trials,
        batch_size=BATCH,
        eval_every=max(1, rounds // LOOKS),
        eval_gamma=rule.gamma,
        **QUIET,
    ).history
    if theorem == "8":
        late = history[history["round"] > 0.9 * rounds]
        value = estimate(late.groupby("trial")["psi"].mean() - best)
    else:
        value = estimate(history.groupby("trial")["natural_residual_sq"].mean())
    return {"measured": value.mean, "error": value.error, "bound": rule.bound(), "T": rounds}


def rows(quick: bool) -> Iterator[TableRow]:
    """A row for each run; n varies with Q = 4, and Q with n = 8."""
    for theorem, (*_, slope, measures) in THEOREMS.items():
        for varies, values in (("n", CLIENTS), ("Q", STEPS)):
            for value in values[::3] if quick else values:
                n, q = (value, 4) if varies == "n" else (8, value)
                row: TableRow = {
                    "panel": f"Theorem {theorem}, {varies} varies",
                    "varies": varies,
                    "theory": slope,
                    "n": n,
                    "Q": q,
                    "measures": measures,
                }
                yield row | run(theorem, n, q, quick)


def measure(quick: bool) -> pd.DataFrame:
    """The measured values."""
    return pd.DataFrame(rows(quick))


def judge(table: pd.DataFrame) -> list[Verdict]:
    """The paper's claims against the table."""
    verdicts = []
    for title, varies, theory, values, measured in panels(table):
        part = table[table["panel"] == title]
        found = Estimate(measured, slope_error(values, part.set_index(varies)["error"]))
        verdicts.append(
            Verdict(
                f"{title.split(',')[0]}: {part['measures'].iloc[0]} falls with {varies}",
                f"as {varies}^{theory:g}, up to logarithms (here: at most {SLACK} above)",
                f"slope {found}, from {values.iloc[0]:.2e} to {values.iloc[-1]:.2e}",
                found.below(theory + SLACK),
                # Theorem 5's eta_hat grows as sqrt(nQ), and a mean over t follows it.
                kind=Kind.PAPER if "8" in title else Kind.CERTAIN,
            )
        )
    for theorem, part in table.groupby(table["panel"].str.split(",").str[0], sort=False):
        ratio = part["measured"] / part["bound"]
        verdicts.append(
            Verdict(
                f"{theorem}: below the bound",
                "below",
                f"measured / bound between {ratio.min():.1e} and {ratio.max():.1e}",
                bool(math.isfinite(ratio.max()) and ratio.max() <= 1),
                kind=Kind.CERTAIN,
            )
        )
    return verdicts


EXPERIMENT = Experiment(
    "fednmap-theorems",
    "speed-up in clients and local steps with the theorems' steps",
    f"{SOURCE}, Theorems 5 and 8; the paper has no experiment with these steps",
    (
        "Two tables of 200 samples of 6 normal features, each with a linear model of its own, held "
        "by half of the clients each: f is the same for every n, and the clients differ. "
        "Minibatches of 10, start at 0, float64.",
        "Theorem 5: Geman and McClure's loss + MCP (f and phi not convex). Theorem 8: least "
        "squares + MCP with rho below the strong convexity (psi PL, phi not convex). They are "
        "problems of fednmap-table1.",
        "Steps and bounds are those of the theory module, with L and mu exact and sigma measured. "
        "n varies with Q = 4, Q with n = 8; T = 64,000 with 4 trials (Theorem 5) and 20,000 with 8 "
        "(Theorem 8), whose last tenth of the rounds is averaged.",
    ),
    partial(draw, y_label="measured"),
    judge,
    measure=measure,
    random_start=False,
    seed=0,
)
