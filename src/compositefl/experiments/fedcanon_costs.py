"""Zhou et al. (2025): what a prox and a round cost (Tables I, III and VI)."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax

from compositefl import data, models
from compositefl.algorithms import (
    ZA1,
    FastFedDA,
    FedCanon,
    FedCanonII,
    FedDA,
    FedMiD,
    FedNMap,
    Scaffnew,
    Scaffold,
)
from compositefl.algorithms.base import Algorithm
from compositefl.data import partition
from compositefl.engine.accounting import round_cost
from compositefl.experiments.declaration import Experiment, Verdict
from compositefl.problem import Problem
from compositefl.regularizers import L1, MCP, SCAD
from compositefl.report.curves import COLOURS
from compositefl.simulation.simulation import Simulation

SOURCE = "Zhou et al. (2025)"
SIZES = {
    "MLP": 109_386,
    "CNN": 268_362,
    "ResNet-18": 11_175_370,
    "ResNet-101": 42_514_378,  # torchvision's, one input channel, 10 classes
}
# The unit of the paper's times is lost; ratios are all that is used.
PAPER_PROX: dict[str, dict[str, float]] = {
    "MLP": {"l1": 0.3, "MCP": 1.0, "SCAD": 3.0},
    "CNN": {"l1": 4, "MCP": 8, "SCAD": 19},
    "ResNet-18": {"l1": 134, "MCP": 255, "SCAD": 636},
    "ResNet-101": {"l1": 672, "MCP": 1221, "SCAD": 2537},
}
PAPER_ROUNDS = {
    "FedCanon": {10: 230, 20: 293, 40: 417, 80: 719},
    "FedMiD": {10: 662, 20: 1132, 40: 2364, 80: 3875},
    "FedDA": {10: 804, 20: 1281, 40: 2230, 80: 4126},
    "ZA1": {10: 1106, 20: 2048, 40: 4062, 80: 7201},
}
NEAR = 1.5  # a ratio agrees with the paper's if neither exceeds the other by more than this factor


def close(measured: float, paper: float) -> bool:
    return 1 / NEAR <= measured / paper <= NEAR


def repeated(step: Callable[[jax.Array], jax.Array]) -> Any:
    """`count` steps in one compiled loop, so that the cost of a call does not count."""
    return jax.jit(lambda x, count: lax.fori_loop(0, count, lambda _, x: step(x), x))


def copies(x: jax.Array, count: int) -> None:
    """`count` plain copies of an array."""
    here = np.array(x)
    there = np.empty_like(here)
    for _ in range(count):
        np.copyto(there, here)
        here, there = there, here


def prox_times(quick: bool) -> pd.DataFrame:
    """Median seconds of one prox and of one copy of the array, measured in turns."""
    steps: dict[str, Callable[[jax.Array, int], Any]] = {
        "copy": copies,
        "l1": repeated(lambda x: L1(1e-3).prox(x, 1.0)),
        "MCP": repeated(lambda x: MCP(1e-3, 4.0).prox(x, 1.0)),
        "SCAD": repeated(lambda x: SCAD(1e-3).prox(x, 1.0)),
    }
    rows = []
    for model, size in list(SIZES.items())[: 2 if quick else None]:
        x = jnp.asarray(0.05 * np.random.default_rng(0).normal(size=size), jnp.float32)
        count = max(2, (10**7 if quick else 10**8) // size)
        times: dict[str, list[float]] = {name: [] for name in steps}
        for turn in range(4 if quick else 16):
            for name, step in steps.items():
                began = time.perf_counter()
                jax.block_until_ready(step(x, count))
                if turn:  # the first one compiles
                    times[name].append((time.perf_counter() - began) / count)
        middle = {name: float(np.median(seconds)) for name, seconds in times.items()}
        rows += [
            {
                "model": model,
                "parameters": size,
                "operation": name,
                "seconds": seconds,
                "ratio_to_l1": seconds / middle["l1"],
                "ratio_to_copy": seconds / middle["copy"],
            }
            for name, seconds in middle.items()
        ]
    return pd.DataFrame(rows)


def judge_prox(table: pd.DataFrame) -> list[Verdict]:
    value = table.set_index(["model", "operation"])
    sizes = list(dict.fromkeys(table["model"]))
    verdicts = []
    for name in ("MCP", "SCAD"):
        for model in sizes:
            measured = value.loc[(model, name), "ratio_to_l1"]
            paper = PAPER_PROX[model][name] / PAPER_PROX[model]["l1"]
            verdicts.append(
                Verdict(
                    f"time of a prox of {name} over l1, size of {model}",
                    f"{paper:.1f}",
                    f"{measured:.2f}",
                    close(measured, paper),
                )
            )
    if len(sizes) > 2:
        told = [
            " < ".join(f"{1e3 * value.loc[(m, p), 'seconds']:.3g}" for p in ("l1", "MCP", "SCAD"))
            for m in sizes
        ]
        verdicts.append(
            Verdict(
                "a prox takes the longer the more complex it is: l1, MCP, SCAD",
                "longer",
                "ms at the four sizes: " + "; ".join(told),
                all(
                    value.loc[(m, "l1"), "seconds"]
                    < value.loc[(m, "MCP"), "seconds"]
                    < value.loc[(m, "SCAD"), "seconds"]
                    for m in sizes
                ),
            )
        )
    for name in ("l1", "MCP", "SCAD"):
        seconds = [value.loc[(m, name), "seconds"] for m in sizes]
        copies = [value.loc[(m, name), "ratio_to_copy"] for m in sizes]
        verdicts.append(
            Verdict(
                f"the time of a prox of {name} grows with the network",
                "grows",
                ", ".join(f"{1e3 * s:.3g} ms" for s in seconds)
                + "; over a plain copy: "
                + ", ".join(f"{c:.2f}" for c in copies),
                bool(np.all(np.diff(seconds) > 0)),
            )
        )
    return verdicts


def draw_bars(
    table: pd.DataFrame, path: Path, *, panels: dict[str, str], group: str, bar: str
) -> None:
    """One panel of bars for each column in `panels`: groups of bars with labels below."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.4 * len(panels), 3.4), dpi=110, layout="constrained")
    axes = np.atleast_1d(figure.subplots(1, len(panels)))
    groups, bars = (list(dict.fromkeys(table[c])) for c in (group, bar))
    width = 0.8 / len(bars)
    for axis, (column, title) in zip(axes, panels.items(), strict=True):
        for number, name in enumerate(bars):
            values = table[table[bar] == name].set_index(group)[column].reindex(groups)
            at = np.arange(len(groups)) + (number - (len(bars) - 1) / 2) * width
            colour = COLOURS[number % len(COLOURS)]
            axis.bar(at, values, width, label=str(name), color=colour)
        axis.set_xticks(range(len(groups)), [str(g) for g in groups], fontsize=8)
        axis.set_title(title, fontsize=10)
        axis.grid(axis="y", alpha=0.25)
    if len(bars) > 1:
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6))
    else:
        for axis in axes:
            axis.tick_params("x", rotation=60)
    figure.savefig(path)


CLIENTS, STEPS = 10, 10


def counted_methods() -> dict[str, Algorithm]:
    steps: dict[str, Any] = dict(local_steps=STEPS, local_lr=0.01, regularizer=L1(1e-3))
    return {
        "FedCanon": FedCanon(**steps),
        "FedCanon II": FedCanonII(**steps),
        "FedMiD": FedMiD(**steps),
        "FedDA": FedDA(**steps),
        "Fast-FedDA": FastFedDA(
            local_steps=STEPS, strong_convexity=0.1, proximity=10.0, regularizer=L1(1e-3)
        ),
        "ZA1": ZA1(**steps),
        "FedNMap": FedNMap(gamma=1.0, **steps),
        "SCAFFOLD": Scaffold(local_steps=STEPS, local_lr=0.01),
        "Scaffnew": Scaffnew(local_steps=STEPS, local_lr=0.01),
    }


def counts(quick: bool) -> pd.DataFrame:
    """Prox evaluations and vectors of one round, from a trace of the algorithms themselves."""
    model = models.cnn_fedcanon(1)
    start = jax.tree.map(
        lambda a: np.zeros(a.shape, np.float32), jax.eval_shape(model.init, jax.random.key(0))
    )
    vector = 4 * model.parameter_count()
    rows = []
    for name, algorithm in counted_methods().items():
        cost = round_cost(algorithm, start)
        down, up = cost.bytes_down / vector, cost.bytes_up / vector
        rows.append(
            {
                "method": name,
                "what": "one round",
                "prox_client": cost.prox_client,
                "prox_server": cost.prox_server,
                "prox_total": CLIENTS * cost.prox_client + cost.prox_server,
                "vectors_down": down,
                "vectors_up": up,
                "vectors": down + up,
                "floats": CLIENTS * (cost.bytes_down + cost.bytes_up) // 4,
            }
        )
    return pd.DataFrame(rows)


def judge_counts(table: pd.DataFrame) -> list[Verdict]:
    row = table.set_index("method")

    def told(method: str) -> str:
        r = row.loc[method]
        return (
            f"{r.prox_client:.0f} on a client, {r.prox_server:.0f} on the server, "
            f"{r.prox_total:.0f} in all; {r.vectors:.2f} vectors"
        )

    canon, second = row.loc["FedCanon"], row.loc["FedCanon II"]
    verdicts = [
        Verdict(
            "FedCanon: one prox a round, three vectors a client",
            "1 prox on the server; 3 vectors",
            told("FedCanon"),
            bool(canon.prox_total == 1 and round(canon.vectors, 2) == 3),
        ),
        Verdict(
            "FedCanon II: n proxes a round, two vectors a client",
            f"1 prox on each of the {CLIENTS} clients; 2 vectors",
            told("FedCanon II") + " (the server's prox is only for handing out the model)",
            bool(second.prox_client == 1 and round(second.vectors, 2) == 2),
        ),
        Verdict(
            "SCAFFOLD exchanges four vectors a client",
            "4 vectors",
            told("SCAFFOLD"),
            round(float(row.loc["SCAFFOLD"].vectors), 2) == 4,
        ),
        Verdict(
            "Scaffnew exchanges fewer vectors than FedCanon",
            "the server of FedCanon broadcasts more",
            told("Scaffnew"),
            bool(row.loc["Scaffnew"].vectors_down < canon.vectors_down),
        ),
    ]
    for method in ("FedMiD", "FedDA", "Fast-FedDA", "ZA1"):
        verdicts.append(
            Verdict(
                f"{method} takes a prox in every local step",
                f"K = {STEPS} on a client, 1 on the server",
                told(method),
                bool(row.loc[method].prox_client >= STEPS),
            )
        )
    return verdicts


def round_methods(k: int) -> dict[str, Algorithm]:
    # The same local step for every K, small enough for the prox of SCAD: 80 * 0.01 < a - 1.
    steps: dict[str, Any] = dict(local_steps=k, local_lr=0.01)
    return {
        "FedCanon": FedCanon(regularizer=SCAD(1e-3), **steps),
        "FedMiD": FedMiD(regularizer=SCAD(1e-3), **steps),
        "FedDA": FedDA(regularizer=L1(1e-3), **steps),
        "ZA1": ZA1(regularizer=SCAD(1e-3), **steps),
        "FedNMap": FedNMap(gamma=1.0, regularizer=SCAD(1e-3), **steps),
    }


def simulated(problem: Problem, algorithm: Algorithm, quick: bool) -> Simulation:
    algorithm.check()
    count = len(problem.sizes)
    return Simulation(
        problem,
        [algorithm],
        [0],
        seed=0,
        batch_size=4 if quick else 32,
        count=count,
        weights=np.ones(count),
        dtype="float32",
    )


def round_times(quick: bool) -> pd.DataFrame:
    """Median seconds of a round, the methods measured in turns."""
    samples = data.load("fashion-mnist").train
    parts = partition.iid(samples, clients=2 if quick else CLIENTS)
    problem = models.cnn_fedcanon(1).problem(parts)
    rows = []
    for k in (2, 4) if quick else (10, 20, 40, 80):
        methods = round_methods(k)
        runs = {name: simulated(problem, a, quick) for name, a in methods.items()}
        times: dict[str, list[float]] = {name: [] for name in runs}
        for turn in range(3 if quick else 8):
            for name, run in runs.items():
                began = time.perf_counter()
                run.advance(run.round + 1)
                run.block_until_ready()
                if turn:  # the first one compiles
                    times[name].append(time.perf_counter() - began)
        middle = {name: float(np.median(seconds)) for name, seconds in times.items()}
        rows += [
            {"K": k, "method": name, "seconds": s, "ratio": s / middle["FedCanon"]}
            for name, s in middle.items()
        ]
    return pd.DataFrame(rows)


def judge_rounds(table: pd.DataFrame) -> list[Verdict]:
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
                f"time of {method} over FedCanon",
                f"K = 10, 20, 40, 80: {listed(paper)}",
                told + listed(measured),
                len(paper) == len(measured) and all(map(close, measured, paper)),
            )
        )
    verdicts.append(
        Verdict(
            "FedCanon takes the least time",
            "less than FedMiD, FedDA and ZA1",
            told + "; ".join(f"{m} {listed(seconds[m])} s" for m in seconds.columns),
            bool((ratio.drop(columns="FedNMap").min(axis=1) >= 1).all()),
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
                    f"time of {method} when K doubles",
                    f"from K = 10, 20, 40: {listed(paper)}",
                    listed(measured),
                    all(map(close, measured, paper)),
                )
            )
    return verdicts


EXPERIMENTS = [
    Experiment(
        "fedcanon-table1",
        "time of one prox",
        f"{SOURCE}, Table I",
        (
            "One array of as many numbers as the network has, normals of deviation 0.05 in "
            "float32; weight 0.001, MCP with theta = 4, SCAD with a = 3.7, prox parameter 1.",
            "Many proxes in one compiled loop; median of 15 such loops, l1, MCP, SCAD and the "
            "copy in turns. The copy is NumPy's, from one array to another and back.",
            "The paper's unit is lost, so ratios are compared. Two count as agreeing if neither "
            f"is more than {NEAR} times the other. Its ResNet-102 is taken as ResNet-101.",
        ),
        partial(
            draw_bars,
            panels={"ratio_to_l1": "time over l1", "ratio_to_copy": "time over a copy"},
            group="model",
            bar="operation",
        ),
        judge_prox,
        measure=prox_times,
        remarks=(
            "Here a prox is one fused pass over the array, so it costs about what reading and "
            "writing costs, whatever the penalty. Ratios like the paper's would come out of "
            "proxes that are chains of array operations, each with its own pass; its program is "
            "not public.",
            "For large arrays a prox takes less time than the copy: it works in place, on one "
            "array instead of two.",
        ),
    ),
    Experiment(
        "fedcanon-table3",
        "prox evaluations and numbers sent in a round",
        f"{SOURCE}, Table III",
        (
            f"{CLIENTS} clients, K = {STEPS} local steps, the convolutional network of 268,362 "
            "parameters. Counted from a trace of each algorithm; vectors are floats over the "
            "number of parameters, so a scalar shows as a fraction.",
            "The numbers of the paper's table are lost; 'paper says' is from its text.",
        ),
        partial(
            draw_bars,
            panels={"prox_total": "prox evaluations of a round", "vectors": "vectors a client"},
            group="method",
            bar="what",
        ),
        judge_counts,
        measure=counts,
        remarks=(
            "ZA1 counts K + 1 on a client: the first of its local proxes has parameter 0 and "
            "returns its argument. A method counts as taking a prox in every step with K or more.",
        ),
    ),
    Experiment(
        "fedcanon-table6",
        "time of a round against the number of local steps",
        f"{SOURCE}, Table VI",
        (
            f"Fashion-MNIST spread evenly over {CLIENTS} clients, the convolutional network of "
            "268,362 parameters, SCAD with weight 0.001 and a = 3.7, minibatch 32, local step "
            "0.01, FedNMap's gamma 1.",
            "FedDA's prox parameter grows past 1/rho of SCAD, where its prox is not defined; it "
            "runs with l1 of the same weight.",
            "Median over 7 rounds of each method, the methods in turns; the paper has the time of "
            "a whole training. Two ratios count as agreeing if neither is more than "
            f"{NEAR} times the other.",
        ),
        partial(
            draw_bars,
            panels={"seconds": "seconds a round", "ratio": "time over FedCanon"},
            group="K",
            bar="method",
        ),
        judge_rounds,
        measure=round_times,
        remarks=(
            "The prox of a local step is fused with the update around it. What a round costs is "
            "its gradients, and those are the same for all methods.",
            "FedCanon and FedMiD even take up to a tenth longer than the others here. They "
            "evaluate gradients at the model as it is carried from step to step, the others at "
            "the output of a prox; why the compiler makes more of that was not looked into.",
        ),
    ),
]
