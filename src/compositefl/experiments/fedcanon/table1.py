"""Table I: time of one prox."""

import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax

from compositefl.experiments.declaration import Experiment, Kind, Verdict
from compositefl.experiments.fedcanon.costs import NEAR, by_how, close
from compositefl.experiments.fedcanon.images import SOURCE
from compositefl.experiments.pictures import draw_bars
from compositefl.regularizers import L1, MCP, SCAD

TURNS = 15
SIZES = {
    "MLP": 109_386,
    "CNN": 268_362,
    "ResNet-18": 11_175_370,
    "ResNet-101": 42_514_378,  # torchvision's, one input channel, 10 classes
}
# The unit of the paper's times is not in our copy; ratios are all that is used.
PAPER_PROX: dict[str, dict[str, float]] = {
    "MLP": {"l1": 0.3, "MCP": 1.0, "SCAD": 3.0},
    "CNN": {"l1": 4, "MCP": 8, "SCAD": 19},
    "ResNet-18": {"l1": 134, "MCP": 255, "SCAD": 636},
    "ResNet-101": {"l1": 672, "MCP": 1221, "SCAD": 2537},
}


Steps = Callable[[jax.Array, int], jax.Array | None]  # so many of them, from an array on


def repeated(step: Callable[[jax.Array], jax.Array]) -> Steps:
    """`count` steps in one compiled loop, so that the cost of a call does not count."""
    return jax.jit(lambda x, count: lax.fori_loop(0, count, lambda _, x: step(x), x))


def copies(x: jax.Array, count: int) -> None:
    """`count` plain copies of an array."""
    here = np.array(x)
    there = np.empty_like(here)
    for _ in range(count):
        np.copyto(there, here)
        here, there = there, here


def one_by_one(step: Callable[[jax.Array], jax.Array]) -> Steps:
    """`count` steps outside of jit: every array operation of a prox is a pass of its own."""

    def steps(x: jax.Array, count: int) -> jax.Array:
        for _ in range(count):
            x = step(x)
        return x

    return steps


def measure(quick: bool) -> pd.DataFrame:
    """Median seconds of one prox and of one copy of the array, measured in turns."""
    proxes: dict[str, Callable[[jax.Array], jax.Array]] = {
        "l1": lambda x: L1(1e-3).prox(x, 1.0),
        "MCP": lambda x: MCP(1e-3, 4.0).prox(x, 1.0),
        "SCAD": lambda x: SCAD(1e-3).prox(x, 1.0),
    }
    rows = []
    for how, wrap, numbers in (("fused", repeated, 10**8), ("eager", one_by_one, 4 * 10**7)):
        steps: dict[str, Steps] = {"copy": copies}
        steps |= {name: wrap(prox) for name, prox in proxes.items()}
        for model, size in list(SIZES.items())[: 2 if quick else None]:
            x = jnp.asarray(0.05 * np.random.default_rng(0).normal(size=size), jnp.float32)
            count = max(2, numbers // (10 if quick else 1) // size)
            times: dict[str, list[float]] = {name: [] for name in steps}
            for turn in range(4 if quick else TURNS + 1):
                for name, step in steps.items():
                    began = time.perf_counter()
                    jax.block_until_ready(step(x, count))
                    if turn:  # the first one compiles
                        times[name].append((time.perf_counter() - began) / count)
            middle = {name: float(np.median(seconds)) for name, seconds in times.items()}
            rows += [
                {
                    "how": how,
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


def judge(table: pd.DataFrame) -> list[Verdict]:
    """The paper's claims against the table."""
    groups = by_how(table).groupby("how", sort=False)
    return [verdict for how, part in groups for verdict in judge_one(str(how), part)]


def judge_one(how: str, table: pd.DataFrame) -> list[Verdict]:
    """The claims for proxes that are compiled as one, or not."""
    value = table.set_index(["model", "operation"])
    sizes = list(dict.fromkeys(table["model"]))
    verdicts = []
    for name in ("MCP", "SCAD"):
        for model in sizes:
            measured = value.loc[(model, name), "ratio_to_l1"]
            paper = PAPER_PROX[model][name] / PAPER_PROX[model]["l1"]
            verdicts.append(
                Verdict(
                    f"{how}: time of a prox of {name} over l1, size of {model}",
                    f"{paper:.1f}",
                    f"{measured:.2f}",
                    close(measured, paper),
                    f"time of a prox of {name} over l1",
                )
            )
    told = [
        " < ".join(f"{1e3 * value.loc[(m, p), 'seconds']:.3g}" for p in ("l1", "MCP", "SCAD"))
        for m in sizes
    ]
    verdicts.append(
        Verdict(
            f"{how}: a prox takes the longer the more complex it is: l1, MCP, SCAD",
            "longer",
            "ms at the sizes: " + "; ".join(told),
            all(
                value.loc[(m, "l1"), "seconds"]
                < value.loc[(m, "MCP"), "seconds"]
                < value.loc[(m, "SCAD"), "seconds"]
                for m in sizes
            ),
            "a prox takes the longer the more complex it is: l1, MCP, SCAD",
        )
    )
    for name in ("l1", "MCP", "SCAD"):
        seconds = [value.loc[(m, name), "seconds"] for m in sizes]
        over = [value.loc[(m, name), "ratio_to_copy"] for m in sizes]
        verdicts.append(
            Verdict(
                f"{how}: the time of a prox of {name} grows with the network",
                "grows",
                ", ".join(f"{1e3 * s:.3g} ms" for s in seconds)
                + "; over a plain copy: "
                + ", ".join(f"{c:.2f}" for c in over),
                bool(np.all(np.diff(seconds) > 0)),
                kind=Kind.CERTAIN,
            )
        )
    return verdicts


def draw(table: pd.DataFrame, path: Path) -> None:
    """Ratios to l1, a panel for each way to run a prox; black lines are the paper's."""
    shown = by_how(table[table["operation"] != "copy"])
    wide = shown.pivot_table("ratio_to_l1", ["model", "operation"], "how", sort=False)
    wide = wide.reset_index()
    panels = {how: f"time over l1, {how}" for how in dict.fromkeys(shown["how"])}
    for how in panels:
        wide[f"paper_{how}"] = [
            PAPER_PROX[m][p] / PAPER_PROX[m]["l1"]
            for m, p in zip(wide["model"], wide["operation"], strict=True)
        ]
    draw_bars(wide, path, panels=panels, group="model", bar="operation")


EXPERIMENT = Experiment(
    "fedcanon-table1",
    "time of one prox",
    f"{SOURCE}, Table I",
    (
        "One array of as many numbers as the network has, normals of deviation 0.05 in "
        "float32; weight 0.001, MCP with theta = 4, SCAD with a = 3.7, prox parameter 1.",
        "Fused: many proxes in one compiled loop, each one pass over the array. Eager, where the "
        "table has it: outside of jit, where every array operation of a prox is a pass of its own, "
        f"as in PyTorch. Median of {TURNS} measurements, l1, MCP, SCAD and a copy in turns. The "
        "copy is NumPy's, from one array to another and back.",
        "The paper's unit is not in our copy, so ratios are compared. Two count as agreeing if "
        f"neither is more than {NEAR} times the other. Its ResNet-102 is taken as ResNet-101.",
        "Black lines are the paper's values.",
    ),
    draw,
    judge,
    measure=measure,
    random_start=False,
)
