"""Rounds that self-setting steps need beside the best of a sweep of sixty.

Usage: python benchmarks/auto.py sweep FOLDER [--held-out] [--only NUMBER ...]
       python benchmarks/auto.py auto FOLDER [--held-out] [--only NUMBER ...]
       python benchmarks/auto.py table FOLDER

`sweep` keeps every problem's sixty histories in FOLDER, `auto` the histories of FedNMap("auto"),
of local_lr="theory" and of what `tune` finds; `table` prints the ratios. Rounds are counted, not
seconds: a busy machine changes nothing.
"""

import argparse
import itertools
import sys
import warnings
from pathlib import Path

import numpy as np
from auto_problems import CASES, HELD_OUT, problem_of

import compositefl as cfl
from compositefl.solve._sweep import run_all
from compositefl.solve.options import Options
from compositefl.theory.probe import Probe

FACTORS = (
    0.1,
    0.3,
    1.0,
    2.0,
    5.0,
)  # local_lr in units of 1/L, L the largest curvature at the start
STEPS = (1, 5, 25, 100)
FEW_STEPS = (1, 3, 10, 30)  # for the convolutional networks, whose steps take long
GAMMAS = (1.0, 2.0, 5.0)  # gamma in units of eta_hat, kept below 1/rho
CLOSE = 1e-4  # of the fall from the start, what counts as reached


def options_of(case):
    return {
        "rounds": case.rounds,
        "eval_every": max(1, case.rounds // 100),
        "batch_size": case.batch_size,
        "participation": case.participation,
        "weights": "uniform",
        "progress": False,
    }


def smoothness(problem):
    from compositefl.core.vector import Vector

    curvature, _ = Probe(problem, "float32", 0).curvature(Vector(problem.start("float32")), 20)
    return float(np.max(curvature))


def candidates(case, problem, phi):
    """The sixty points, those of equal Q together: runs side by side wait for the slowest."""
    scale, limit = 1 / smoothness(problem), 0.9 * float(phi.max_prox)
    for steps in FEW_STEPS if case.model.startswith("cnn") else STEPS:
        found = []
        for factor, ratio in itertools.product(FACTORS, GAMMAS):
            lr = min(factor * scale, limit / steps)
            gamma = min(ratio * lr * steps, limit)
            algorithm = cfl.FedNMap(local_steps=steps, local_lr=lr, gamma=gamma)
            found.append(cfl.core.component.replace(algorithm, regularizer=phi))
        yield found


def sweep(case):
    problem, phi = problem_of(case)
    gamma = min(1.0, float(phi.max_prox) / 2)
    options = Options(**options_of(case), eval_gamma=gamma)
    psi, numbers = [], []
    for some in candidates(case, problem, phi):
        table, _ = run_all(problem, some, 1, options)
        table.loc[table["diverged"] > 0, "psi"] = np.nan
        wide = table.pivot(index="round", columns="point", values="psi")
        psi.append(wide.to_numpy().T)
        numbers += [(a.local_lr, a.local_steps, a.gamma) for a in some]
    return {"rounds": wide.index.to_numpy(), "psi": np.concatenate(psi), "numbers": numbers}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("sweep", "auto", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--only", type=int, nargs="*")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    for number, case in enumerate(CASES):
        if (case in HELD_OUT) != given.held_out or (given.only and number not in given.only):
            continue
        path = given.folder / f"{given.what}-{number:02}.npz"
        if path.exists():
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.savez(path, **sweep(case))
        print(number, case.name, flush=True)


if __name__ == "__main__":
    sys.exit(main())
