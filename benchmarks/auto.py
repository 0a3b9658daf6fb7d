"""Rounds that self-setting steps need beside the best of a sweep of sixty.

Usage: python benchmarks/auto.py sweep FOLDER [--held-out] [--only NUMBER ...]
       python benchmarks/auto.py auto FOLDER [--held-out] [--only NUMBER ...]
       python benchmarks/auto.py table FOLDER

`sweep` keeps every problem's sixty histories in FOLDER, `auto` those of FedNMap() and of FedNMap
with local_lr="theory", over twice the rounds; `table` prints the ratios. The goal is psi at
the end of the best of the sixty, and 1e-4 of its fall from the start. A ratio is the rounds to the
goal beside those that this best run itself needed. Rounds are counted, not seconds: a busy machine
changes nothing.
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


def auto(case):
    problem, phi = problem_of(case)
    options = options_of(case) | {"rounds": 2 * case.rounds}
    found = {}
    for name, steps in {"auto": {}, "theory": {"local_lr": "theory", "local_steps": 10}}.items():
        result = cfl.minimize(problem, phi, cfl.FedNMap(**steps), **options)
        found |= {name: result.history["psi"].to_numpy(), "diverged": max(result.diverged)}
        found["rounds"] = result.history["round"].to_numpy()
    return found


def first(rounds, psi, goal):
    """The round in which psi first is at most the goal; infinity if it never is."""
    below = np.flatnonzero(psi <= goal)
    return float(rounds[below[0]]) if below.size else np.inf


def row(number, folder):
    """(ratio, ratio to the fastest of the sixty, ratio of theory) of a problem."""
    swept, ran = (np.load(folder / f"{what}-{number:02}.npz") for what in ("sweep", "auto"))
    psi = np.where(np.isfinite(swept["psi"]), swept["psi"], np.inf)
    best = int(np.argmin(psi[:, -1]))
    goal = psi[best, -1] + CLOSE * (psi[best, 0] - psi[best, -1])
    hits = [first(swept["rounds"], p, goal) for p in psi]
    mine, theory = (first(ran["rounds"], ran[name], goal) for name in ("auto", "theory"))
    return mine / hits[best], mine / min(hits), theory / hits[best], mine, hits[best]


def table(folder):
    for title, cases in {"developed with": CASES, "held out": HELD_OUT}.items():
        chosen = [c for c in cases if (c in HELD_OUT) == (title == "held out")]
        numbers = [CASES.index(case) for case in chosen]
        there = [
            n
            for n in numbers
            if all((folder / f"{what}-{n:02}.npz").exists() for what in ("sweep", "auto"))
        ]
        print(f"\n{title}: {len(there)} of {len(numbers)} problems measured")
        print("| problem | rounds | best of sixty | ratio | to the fastest | theory |")
        print("|---|---|---|---|---|---|")
        rows = [row(n, folder) for n in there]
        for n, (ratio, fastest, theory, mine, own) in zip(there, rows, strict=True):
            print(
                f"| {CASES[n].name} | {mine:.0f} | {own:.0f} | {ratio:.2f} | {fastest:.2f} "
                f"| {theory:.3g} |"
            )
        ratios = [r[0] for r in rows]
        if ratios:
            print(f"median {np.median(ratios):.2f}, worst {max(ratios):.2f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("sweep", "auto", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--only", type=int, nargs="*")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.what == "table":
        return table(given.folder)
    for number, case in enumerate(CASES):
        if (case in HELD_OUT) != given.held_out or (given.only and number not in given.only):
            continue
        path = given.folder / f"{given.what}-{number:02}.npz"
        if path.exists():
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.savez(path, **(sweep if given.what == "sweep" else auto)(case))
        print(number, case.name, flush=True)


if __name__ == "__main__":
    sys.exit(main())
