"""Table VI: time of a round against the number of local steps."""

import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from compositefl import data, models
from compositefl.algorithms import (
    ZA1,
    FedCanon,
    FedDA,
    FedMiD,
    FedNMap,
)
from compositefl.algorithms.base import Algorithm
from compositefl.core.component import component
from compositefl.core.types import Array, Number
from compositefl.data import partition
from compositefl.experiments.declaration import Experiment, Verdict
from compositefl.experiments.fedcanon.costs import NEAR, by_how, close
from compositefl.experiments.fedcanon.images import CLIENTS, SOURCE
from compositefl.experiments.pictures import draw_bars
from compositefl.regularizers import L1, SCAD, Regularizer
from compositefl.solve.trajectory import Trajectory

PAPER_ROUNDS = {
    "FedCanon": {10: 230, 20: 293, 40: 417, 80: 719},
    "FedMiD": {10: 662, 20: 1132, 40: 2364, 80: 3875},
    "FedDA": {10: 804, 20: 1281, 40: 2230, 80: 4126},
    "ZA1": {10: 1106, 20: 2048, 40: 4062, 80: 7201},
}


def soft(z: np.ndarray, threshold: np.ndarray) -> np.ndarray:
    """The soft threshold in NumPy, a pass over the array for every operation."""
    return np.sign(z) * np.maximum(np.abs(z) - threshold, 0.0)


@component
class EagerL1(L1):
    """The l1 norm whose prox leaves the compiled round: NumPy, operation by operation."""

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        """The soft threshold, on the host."""
        return outside(lambda z, t, weight: soft(z, t * weight), z, t, self.weight)


@component
class EagerSCAD(SCAD):
    """SCAD whose prox leaves the compiled round: the three cases of its docstring in NumPy."""

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        """The prox, on the host."""

        def prox(z: np.ndarray, t: np.ndarray, weight: np.ndarray, a: np.ndarray) -> np.ndarray:
            size = np.abs(z)
            bent = ((a - 1) * z - np.sign(z) * a * t * weight) / (a - 1 - t)
            near = np.where(size <= weight * (1 + t), soft(z, t * weight), bent)
            return np.where(size <= a * weight, near, z)

        return outside(prox, z, t, self.weight, self.a)


def outside(prox: Callable[..., np.ndarray], z: jax.Array, *numbers: Array) -> jax.Array:
    """prox(z, *numbers) on the host; clients that are mapped over have an axis in front."""

    def call(z: Array, *numbers: Array) -> np.ndarray:
        z = np.asarray(z)
        wide = [np.asarray(x) for x in numbers]
        wide = [x.reshape(x.shape + (1,) * (z.ndim - x.ndim)) for x in wide]
        return prox(z, *wide).astype(z.dtype)

    like = jax.ShapeDtypeStruct(z.shape, z.dtype)
    given = [jnp.asarray(x, z.dtype) for x in numbers]
    return jax.pure_callback(call, like, z, *given, vmap_method="expand_dims")


PENALTIES: dict[str, tuple[Regularizer, Regularizer]] = {
    "fused": (SCAD(1e-3), L1(1e-3)),
    "eager": (EagerSCAD(1e-3), EagerL1(1e-3)),
}


def round_methods(k: int, how: str) -> dict[str, Algorithm]:
    """The methods of the table with K local steps, FedNMap added."""
    scad, l1 = PENALTIES[how]
    # The same local step for every K, small enough for the prox of SCAD: 80 * 0.01 < a - 1.
    steps: dict[str, Any] = dict(local_steps=k, local_lr=0.01)
    return {
        "FedCanon": FedCanon(regularizer=scad, **steps),
        "FedMiD": FedMiD(regularizer=scad, **steps),
        "FedDA": FedDA(regularizer=l1, **steps),
        "ZA1": ZA1(regularizer=scad, **steps),
        "FedNMap": FedNMap(gamma=1.0, regularizer=scad, **steps),
    }


def measure(quick: bool) -> pd.DataFrame:
    """Median seconds of a round, the methods measured in turns."""
    samples = data.load("fashion-mnist").train
    parts = partition.iid(samples, clients=2 if quick else CLIENTS)
    problem = models.cnn_fedcanon(1).problem(parts)
    rows = []
    for how, k in itertools.product(PENALTIES, (2, 4) if quick else (10, 20, 40, 80)):
        methods = round_methods(k, how)
        batch = 4 if quick else 32
        runs = {
            name: Trajectory(problem, a.regularizer, a, batch_size=batch)
            for name, a in methods.items()
        }
        times: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(3 if quick else 8):
            for name, run in runs.items():
                began = time.perf_counter()
                run.advance(run.round + 1)
                if turn:  # the first one compiles
                    times[name].append(time.perf_counter() - began)
        middle = {name: float(np.median(seconds)) for name, seconds in times.items()}
        rows += [
            {"how": how, "K": k, "method": name, "seconds": s, "ratio": s / middle["FedCanon"]}
            for name, s in middle.items()
        ]
    return pd.DataFrame(rows)


def judge(table: pd.DataFrame) -> list[Verdict]:
    """The paper's claims against the table."""
    groups = by_how(table).groupby("how", sort=False)
    return [verdict for how, part in groups for verdict in judge_one(str(how), part)]


def judge_one(how: str, table: pd.DataFrame) -> list[Verdict]:
    """The claims for proxes that are compiled with the step, or not."""
    steps = list(dict.fromkeys(table["K"]))
    ratio = table.pivot(index="K", columns="method", values="ratio")
    seconds = table.pivot(index="K", columns="method", values="seconds")

    def listed(values: Sequence[float]) -> str:
        return ", ".join(f"{v:.2f}" for v in values)

    told = "K = " + ", ".join(map(str, steps)) + ": "
    verdicts = []
    for method in ("FedMiD", "FedDA", "ZA1"):
        paper = [PAPER_ROUNDS[method][k] / PAPER_ROUNDS["FedCanon"][k] for k in (10, 20, 40, 80)]
        measured = [float(v) for v in ratio[method]]
        verdicts.append(
            Verdict(
                f"{how}: time of {method} over FedCanon",
                f"K = 10, 20, 40, 80: {listed(paper)}",
                told + listed(measured),
                len(paper) == len(measured) and all(map(close, measured, paper)),
                f"time of {method} over FedCanon",
            )
        )
    verdicts.append(
        Verdict(
            f"{how}: FedCanon takes the least time",
            "less than FedMiD, FedDA and ZA1",
            told + "; ".join(f"{m} {listed(seconds[m])} s" for m in seconds.columns),
            bool((ratio.drop(columns="FedNMap").min(axis=1) >= 1).all()),
            "FedCanon takes the least time",
        )
    )
    if len(steps) == 4:
        for method, of in PAPER_ROUNDS.items():
            paper = [of[2 * k] / of[k] for k in (10, 20, 40)]
            measured = [
                float(seconds.loc[2 * k, method] / seconds.loc[k, method]) for k in (10, 20, 40)
            ]
            verdicts.append(
                Verdict(
                    f"{how}: time of {method} when K doubles",
                    f"from K = 10, 20, 40: {listed(paper)}",
                    listed(measured),
                    all(map(close, measured, paper)),
                    "how the time grows when K doubles",
                )
            )
    return verdicts


def draw(table: pd.DataFrame, path: Path) -> None:
    """Time over FedCanon, a panel for each way to run a prox; black lines are the paper's."""
    table = by_how(table)
    wide = table.pivot_table("ratio", ["K", "method"], "how", sort=False).reset_index()
    panels = {how: f"time over FedCanon, {how}" for how in dict.fromkeys(table["how"])}
    for how in panels:
        wide[f"paper_{how}"] = [
            PAPER_ROUNDS[m][k] / PAPER_ROUNDS["FedCanon"][k]
            if k in PAPER_ROUNDS.get(m, {})
            else np.nan
            for k, m in zip(wide["K"], wide["method"], strict=True)
        ]
    draw_bars(wide, path, panels=panels, group="K", bar="method")


EXPERIMENT = Experiment(
    "fedcanon-table6",
    "time of a round against the number of local steps",
    f"{SOURCE}, Table VI",
    (
        f"Fashion-MNIST spread evenly over {CLIENTS} clients, the convolutional network of "
        "268,362 parameters, SCAD with weight 0.001 and a = 3.7, minibatch 32, local step "
        "0.01, FedNMap's gamma 1.",
        "FedDA's prox parameter grows past 1/rho of SCAD, where its prox is not defined; it "
        "runs with l1 of the same weight.",
        "Fused: a prox is compiled with the local step around it. Eager: every prox leaves the "
        "compiled round and runs in NumPy, an array operation after the other, as in PyTorch; the "
        "gradients stay compiled.",
        "Median over 7 rounds of each method, the methods in turns; the paper has the time of "
        "a whole training. Two ratios count as agreeing if neither is more than "
        f"{NEAR} times the other.",
        "Black lines are the paper's values.",
    ),
    draw,
    judge,
    measure=measure,
    random_start=False,
)
