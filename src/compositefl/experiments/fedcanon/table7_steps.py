"""The steps of Table VII: as many pairs for FedDR and FedADMM as for FedCanon."""

from functools import partial

import pandas as pd

from compositefl.algorithms.base import Algorithm
from compositefl.experiments.declaration import Experiment, Kind, PlannedRun, Verdict
from compositefl.experiments.fedcanon.images import SHARED, SOME, SOURCE, Images
from compositefl.experiments.fedcanon.table7 import RIVALS, ROUNDS, K, canon, split
from compositefl.experiments.pictures import accuracy_curves
from compositefl.experiments.statistics import difference
from compositefl.regularizers import L1

LOCAL = (0.01, 0.05)
ALPHAS, ETAS = (0.1, 0.5, 1.0), (0.1, 1.0, 10.0)


def tried() -> dict[tuple[str, str], Algorithm]:
    """(method, steps) and the method with these steps: six each."""
    out = {
        ("FedCanon", f"alpha = {alpha:g}, local step {local:g}"): canon(alpha, local)
        for alpha in ALPHAS
        for local in LOCAL
    }
    for name in RIVALS:
        for eta in ETAS:
            for local in LOCAL:
                out[name, f"eta = {eta:g}, local step {local:g}"] = split(name, eta, local)
    return out


def runs(quick: bool) -> list[PlannedRun]:
    """One trial of each."""
    options = dict(
        rounds=6 if quick else ROUNDS, batch_size=32, eval_every=2 if quick else ROUNDS // 20
    )
    return [
        PlannedRun(
            {"method": name, "steps": steps},
            Images("mnist", "MLP", "strong skew"),
            L1(1e-4),
            algorithm,
            options,
        )
        for (name, steps), algorithm in tried().items()
    ]


def judge(table: pd.DataFrame) -> list[Verdict]:
    """Which steps are best, and the methods compared there."""
    top = table.groupby(["method", "steps", "trial"], sort=False)["accuracy"].max()
    best = {name: top[name].groupby("steps").mean().idxmax() for name in ("FedCanon", *RIVALS)}
    return [
        Verdict(
            f"FedCanon at its best steps is above {rival} at its best",
            "not in the paper, which has no steps in our copy",
            "; ".join(
                f"{name} {top[name, best[name]].mean():.4f} with {best[name]}"
                for name in ("FedCanon", rival)
            ),
            difference(top[rival, best[rival]], top["FedCanon", best["FedCanon"]]).below(0.0),
            kind=Kind.OURS,
        )
        for rival in RIVALS
    ]


EXPERIMENT = Experiment(
    "fedcanon-table7-steps",
    "the steps of Table VII",
    f"{SOURCE}, Table VII; its steps are not in our copy",
    (
        *SHARED,
        f"MNIST under the strong skew, MLP 784-128-64-10, l1 with weight 0.0001, K = {K}. Six "
        "pairs of steps for each method, one trial; the pair with the highest accuracy in 600 "
        "rounds goes into fedcanon-table7, for all its rows.",
        SOME,
    ),
    partial(accuracy_curves, panel=("method",), line="steps", bottom=0.7),
    judge,
    runs,
    compares=("method", "steps"),
)
