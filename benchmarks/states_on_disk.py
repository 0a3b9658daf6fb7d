"""Client states beyond memory, and in bfloat16. Usage: python benchmarks/states_on_disk.py

First: 10,000 clients of a network with 1.5 million parameters, 20 a round; states in a file (60 GB
if all clients had taken part), samples made on demand. Figures: the process's largest memory, what
the file takes on the disk, seconds a round. Then (--trajectory): what keeping states in bfloat16
does to a run, beside what another seed does to it.
"""

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

SAMPLES, FEATURES, CLASSES = 40, 784, 10


def client(i):
    """Samples of client i: two of ten classes, around means that all clients share."""
    rng = np.random.default_rng([1, i])
    y = rng.choice(CLASSES, 2, replace=False)[rng.integers(0, 2, SAMPLES)].astype(np.int32)
    means = np.random.default_rng(0).normal(size=(CLASSES, FEATURES)).astype(np.float32)
    return means[y] + 3 * rng.normal(size=(SAMPLES, FEATURES)).astype(np.float32), y


def beyond_memory(folder, clients, rounds, states_dtype):
    import compositefl as cfl

    sizes = np.full(clients, SAMPLES)
    model = cfl.models.mlp((FEATURES, 1152, 512, CLASSES), activation="relu")
    problem = model.problem(cfl.OnDemand(client, sizes), eval_clients=50)
    print(f"{clients} clients x {model.parameter_count():,} parameters, 20 a round", flush=True)
    with tempfile.TemporaryDirectory(dir=folder) as here:
        began = time.perf_counter()
        result = cfl.minimize(
            problem,
            cfl.L1(1e-5),
            cfl.FedNMap(gamma=1.0, local_steps=5, local_lr=0.05),
            rounds=rounds,
            batch_size=20,
            participation=20,
            eval_every=rounds,
            states="disk",
            states_dtype=states_dtype,
            checkpoint=Path(here) / "run",
        )
        wall, about = time.perf_counter() - began, os.stat(Path(here) / "run.states")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    psi, seconds = result.history.psi.tolist(), float(result.history.seconds.iloc[-1])
    print(f"psi {psi[0]:.4f} -> {psi[-1]:.4f} in {rounds} rounds")
    print(f"largest memory {peak / 1e9:.2f} GB, on the disk {about.st_blocks * 512 / 1e9:.2f} GB")
    print(f"{seconds / rounds:.2f} s a round; {wall:.0f} s with compiling and evaluating")


def trajectory(rounds):
    import compositefl as cfl

    digits = cfl.data.load("digits")
    clients = cfl.partition.by_label(digits.train, clients=50)
    problem = cfl.models.mlp((64, 32, 10)).problem(clients, test=digits.test)
    steps = dict(local_steps=10, local_lr=0.1)
    phi = cfl.ElasticNet(1e-3, 1e-3)
    methods = {
        "FedNMap": (phi, cfl.FedNMap(gamma=4.0, **steps)),
        "Scaffold": (cfl.Zero(), cfl.Scaffold(**steps)),
        "FedDyn": (cfl.Zero(), cfl.FedDyn(mu=0.1, **steps)),
    }
    print(f"10 of 50 clients, {rounds} rounds: distance to the run in float32, over its norm")
    print(f"{'':10} {'bfloat16':>10} {'seed':>10} {'psi':>9} {'bfloat16':>9} {'seed':>9}")
    for name, (regularizer, method) in methods.items():
        runs = [
            cfl.minimize(
                problem,
                regularizer,
                method,
                rounds=rounds,
                batch_size=16,
                participation=10,
                progress=False,
                **changed,
            )
            for changed in ({}, {"states_dtype": "bfloat16"}, {"seed": 1})
        ]
        flat = [np.concatenate([np.ravel(a) for a in _leaves(run.params)]) for run in runs]
        far = [np.linalg.norm(x - flat[0]) / np.linalg.norm(flat[0]) for x in flat[1:]]
        psi = [float(run.history.psi.iloc[-1]) for run in runs]
        print(f"{name:10} {far[0]:10.2e} {far[1]:10.2e}", *(f"{p:9.5f}" for p in psi), flush=True)


def _leaves(tree):
    import jax

    return jax.tree.leaves(tree)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--folder", help="for the file; default that of temporary files")
    parser.add_argument("--states-dtype")
    parser.add_argument("--trajectory", action="store_true")
    args = parser.parse_args()
    if args.trajectory:
        trajectory(args.rounds or 300)
    else:
        beyond_memory(args.folder, args.clients, args.rounds or 40, args.states_dtype)


if __name__ == "__main__":
    main()
