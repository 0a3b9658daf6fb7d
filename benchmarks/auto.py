"""Rounds that self-setting steps need beside the best of a sweep of sixty.

Usage: python benchmarks/auto.py WHAT FOLDER [--held-out] [--only N ...] [--seed N] [--seconds S]
       python benchmarks/auto.py table FOLDER

WHAT is what is run on every problem and kept in FOLDER, where it is not there yet:

    sweep   sixty settings of FedNMap: five steps around 1/L, four Q, three gamma
    auto    FedNMap() over twice the rounds
    theory  FedNMap(local_lr="theory", local_steps=10) over twice the rounds
    tune    cfl.tune of FedNMap()

The goal is psi at the end of the best of the sixty, and 1e-4 of its fall from the start. A ratio is
the rounds to the goal beside those that this best run itself needed. The shortfall of `tune` is how
far the mean psi of its last tenth of the rounds lies above the least such mean of the sixty, as a
share of the fall. Rounds are counted, not seconds: a busy machine changes nothing.

--seed: of minibatches and sampled clients, in all that is run; a folder for each seed.
--seconds: begin nothing new after so many, so that long work can be done in pieces.
"""

import argparse
import itertools
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from auto_problems import CASES, HELD_OUT, problem_of

import compositefl as cfl
from compositefl.solve._sweep import run_all
from compositefl.solve.options import Options
from compositefl.theory.probe import Probe

FACTORS = (0.1, 0.3, 1.0, 2.0, 5.0)  # local_lr times L, L the largest curvature at the start
STEPS = (1, 5, 25, 100)
FEW_STEPS = (1, 3, 10, 30)  # for the convolutional networks, whose steps take long
GAMMAS = (1.0, 2.0, 5.0)  # gamma in units of eta_hat, kept below 1/rho
CLOSE = 1e-4  # of the fall from the start, what counts as reached
LATE = 0.9  # share of the rounds after which tune scores
SEED = 0


def options_of(case):
    return {
        "rounds": case.rounds,
        "eval_every": max(1, case.rounds // 100),
        "batch_size": case.batch_size,
        "participation": case.participation,
        "weights": "uniform",
        "progress": False,
        "seed": SEED,
    }


def smoothness(problem):
    from compositefl.core.vector import Vector

    curvature, _ = Probe(problem, "float32", 0).curvature(Vector(problem.start("float32")), 20)
    return float(np.max(curvature))


def steps_of(case):
    return FEW_STEPS if case.model.startswith("cnn") else STEPS


def candidates(scale, steps, phi):
    """The points of one Q: runs side by side wait for the slowest. scale: 1/L."""
    limit, found = 0.9 * float(phi.max_prox), []
    for factor, ratio in itertools.product(FACTORS, GAMMAS):
        lr = min(factor * scale, limit / steps)
        gamma = min(ratio * lr * steps, limit)
        algorithm = cfl.FedNMap(local_steps=steps, local_lr=lr, gamma=gamma)
        found.append(cfl.core.component.replace(algorithm, regularizer=phi))
    return found


def sweep(case, path):
    """All sixty; those of one Q are kept as soon as they are there."""
    problem, phi = problem_of(case)
    scale, parts = 1 / smoothness(problem), []
    options = Options(**options_of(case), eval_gamma=min(1.0, float(phi.max_prox) / 2))
    for steps in steps_of(case):
        part = path.with_name(f"part-{path.stem}-{steps}.npz")
        if not part.exists():
            some = candidates(scale, steps, phi)
            table, *_ = run_all(problem, some, 1, options)
            table.loc[table["diverged"] > 0, "psi"] = np.nan
            wide = table.pivot(index="round", columns="point", values="psi")
            numbers = [(a.local_lr, a.local_steps, a.gamma) for a in some]
            np.savez(part, rounds=wide.index.to_numpy(), psi=wide.to_numpy().T, numbers=numbers)
        parts.append(dict(np.load(part)))
    joined = {name: np.concatenate([p[name] for p in parts]) for name in ("psi", "numbers")}
    return {"rounds": parts[0]["rounds"]} | joined


def one_run(case, algorithm):
    problem, phi = problem_of(case)
    options = options_of(case) | {"rounds": 2 * case.rounds}
    began = time.perf_counter()
    result = cfl.minimize(problem, phi, algorithm, **options)
    return {name: result.history[name].to_numpy() for name in ("round", "psi", "gradients")} | {
        "diverged": max(result.diverged),
        "ending": result.summary(),
        "seconds": time.perf_counter() - began,
    }


def auto(case, path):
    return one_run(case, cfl.FedNMap())


def theory(case, path):
    return one_run(case, cfl.FedNMap(local_lr="theory", local_steps=10))


def tune(case, path):
    problem, phi = problem_of(case)
    best = cfl.tune(problem, phi, {"fednmap": cfl.FedNMap()}, **options_of(case)).iloc[0]
    return {name: best[name] for name in ("psi", "local_lr", "local_steps", "gamma")}


RUNS = {"sweep": sweep, "auto": auto, "theory": theory, "tune": tune}


def first(rounds, psi, goal):
    """The round in which psi first is at most the goal; infinity if it never is."""
    below = np.flatnonzero(psi <= goal)
    return float(rounds[below[0]]) if below.size else np.inf


def file_of(folder, what, number):
    return folder / f"{what}-{number:02}.npz"


def row(number, folder):
    """What the table says of a problem, as a dict; None where runs are missing."""
    there = {w: np.load(p) for w in RUNS if (p := file_of(folder, w, number)).exists()}
    if not {"sweep", "auto"} <= set(there):
        return None
    swept = there["sweep"]
    psi = np.where(np.isfinite(swept["psi"]), swept["psi"], np.inf)
    best = int(np.argmin(psi[:, -1]))
    fall = psi[best, 0] - psi[best, -1]
    goal = psi[best, -1] + CLOSE * fall
    hits = [first(swept["rounds"], p, goal) for p in psi]
    found = {"best": hits[best], "short": np.nan, "theory": np.nan, "diverged": 0}
    for what in ("auto", "theory"):
        if what in there:
            found[what] = first(there[what]["round"], there[what]["psi"], goal)
    found["left"] = (there["auto"]["psi"][-1] - goal) / fall
    found["ratio"], found["fastest"] = found["auto"] / hits[best], found["auto"] / min(hits)
    found["diverged"] = int(there["auto"]["diverged"])
    if "tune" in there:
        late = psi[:, swept["rounds"] >= LATE * swept["rounds"][-1]].mean(1)
        found["short"] = (float(there["tune"]["psi"]) - late.min()) / fall
    return found


def shown(value, form, missing="-"):
    return format(value, form) if np.isfinite(value) else missing


def table(folder):
    for title, cases in {"developed with": CASES, "held out": HELD_OUT}.items():
        numbers = [CASES.index(c) for c in cases if (c in HELD_OUT) == (title == "held out")]
        rows = {n: found for n in numbers if (found := row(n, folder))}
        print(f"\n{title}: {len(rows)} of {len(numbers)} problems\n")
        heads = ("problem", "auto", "best of sixty", "ratio", "to the fastest", "theory", "tune")
        print(f"| {' | '.join(heads)} |")
        print("|---|---|---|---|---|---|---|")
        for n, r in rows.items():
            never = f"not in {2 * CASES[n].rounds}"
            tuned = f"{100 * r['short']:.1f} %" if np.isfinite(r["short"]) else ""
            theory = "" if np.isnan(r["theory"]) else shown(r["theory"], ".0f", never)
            print(
                f"| {CASES[n].name} | {shown(r['auto'], '.0f', never)} | {r['best']:.0f} "
                f"| {shown(r['ratio'], '.2f')} | {shown(r['fastest'], '.2f')} | {theory} "
                f"| {tuned} |"
            )
        if rows:
            ratios = np.array([r["ratio"] for r in rows.values()])
            short = np.array([r["short"] for r in rows.values()])
            short = short[np.isfinite(short)]
            diverged = sum(r["diverged"] > 0 for r in rows.values())
            print(f"\nmedian {np.median(ratios):.2f}, worst {max(ratios):.2f}", end=", ")
            print(f"above 4: {np.sum(ratios > 4)}, diverged: {diverged}")
            print(f"tune within 10 %: {np.sum(short <= 0.1)} of {short.size}")


def main():
    global SEED
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=(*RUNS, "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--held-out", action="store_true")
    parser.add_argument("--only", type=int, nargs="*")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=np.inf)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    SEED = given.seed
    if given.what == "table":
        return table(given.folder)
    began = time.monotonic()
    for number in given.only or range(len(CASES)):
        case, path = CASES[number], file_of(given.folder, given.what, number)
        if (case in HELD_OUT) != given.held_out or path.exists():
            continue
        if time.monotonic() - began > given.seconds:
            break
        start = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.savez(path, **RUNS[given.what](case, path))
        print(f"{given.what} {number} {case.name}: {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
