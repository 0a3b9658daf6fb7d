"""The demo: five hospitals' tables, then a network on clients with one or two digits each.

All methods of the second half have the same numbers, found by trying (docs/decisions.md).
"""

import time
from dataclasses import replace
from pathlib import Path
from textwrap import fill
from typing import Any

from compositefl.cli.hospitals import show_hospitals
from compositefl.cli.runs import RunPlan, carry_out, histories, make_plan
from compositefl.cli.settings import Settings
from compositefl.cli.tables import TERMINAL
from compositefl.report.curves import final

METHODS = ("fednmap", "za1", "fedcanon", "fedmid")
SETTINGS = Settings(
    dataset="digits",
    model="mlp",
    hidden="32",
    partition="label",
    clients=20,
    regularizer="elastic-net:0.001,0.001",
    gamma=10.0,  # twice the step of a round, 10 * 0.5
    local_steps=10,
    local_lr=0.5,
    server_lr=1.0,
    batch_size=32,
    rounds=300,
    trials=3,
)


def run_demo(out: Path, rounds: int, trials: int, seed: int, overwrite: bool) -> int:
    """Compare the methods, show a table, say what one sees and draw the picture."""
    began = time.perf_counter()
    show_hospitals()
    changes: dict[str, Any] = {"rounds": rounds, "trials": trials, "seed": seed}
    settings = replace(SETTINGS, **changes)
    title = f"Digits sorted by label over 20 clients: mean and range of {trials} trials"
    plan = replace(make_plan(settings, METHODS, out, overwrite), title=title)
    samples, clients = plan.problem.sizes.sum(), len(plan.problem.sizes)
    print(
        fill(
            f"Any model. {samples:,} pictures of digits, sorted by label over {clients} clients: "
            "each client sees one or two digits only. Four methods train the same small network, "
            "with the same numbers and an elastic net.",
            TERMINAL,
        )
        + "\n"
    )
    results, code = carry_out(plan, f"compositefl compare --algorithms {','.join(METHODS)}")
    if len(results) == len(METHODS):
        finals = {label: final(h) for label, h in histories(plan, results).items()}
        lines = observations(finals, plan)
        print("\n" + "\n".join(fill(line, TERMINAL, subsequent_indent="  ") for line in lines))
    print(f"\nThe picture: {out / 'plot.png'}   ({time.perf_counter() - began:.0f} seconds in all)")
    return code


def observations(finals: dict[str, dict[str, float]], plan: RunPlan) -> list[str]:
    """What the numbers say, in words; nothing is claimed that they do not show."""
    drift, others = finals["FedMiD"], {k: v for k, v in finals.items() if k != "FedMiD"}
    residuals = [row["natural_residual_sq"] for row in others.values()]
    accuracies = [row["accuracy"] for row in others.values()]
    lines = [
        f"- FedNMap, ZA1 and FedCanon correct for the differences between the clients. They end at "
        f"an objective of {_range([row['psi'] for row in others.values()], '.3f')}, a natural "
        f"residual² of {_range(residuals, '.1e')} and a test accuracy of "
        f"{_range(accuracies, '.0%')}."
    ]
    canon = others["FedCanon"]["natural_residual_sq"]
    if canon > 2 * max(others[m]["natural_residual_sq"] for m in ("FedNMap", "ZA1")):
        lines.append(
            f"  FedCanon, whose clients know nothing of the elastic net, is behind: {canon:.1e}."
        )
    lines.append(
        f"- FedMiD does not correct. It ends at an objective of {drift['psi']:.3f} and an accuracy "
        f"of {drift['accuracy']:.0%}."
    )
    if drift["zeros"] > 0.9 and drift["natural_residual_sq"] < min(residuals):
        lines.append(
            "  Its residual is small because nearly all of its parameters are zero, where the loss "
            "is almost flat: a stationary point that no one wants."
        )
    if drift["accuracy"] < min(accuracies) - 0.05:
        lines.append("  Averaging clients that each drift towards their own digits costs accuracy.")
    mine = finals["FedNMap"]
    size = plan.problem.parameter_count
    lines.append(
        f"- {mine['zeros']:.0%} of FedNMap's {size:,} parameters are exactly zero, with no "
        "threshold applied afterwards: the model is what the proximal step returns."
    )
    return lines


def _range(values: list[float], form: str) -> str:
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"
