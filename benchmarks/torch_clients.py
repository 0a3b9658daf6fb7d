"""Clients of a PyTorch module side by side and one after the other, in one run.

Usage: python benchmarks/torch_clients.py

784-32-10 network, 60 clients, FedAvg with 3 local steps, minibatch 32, one thread of PyTorch: the
least of five turns, and how far the models are apart.
"""

import time

import numpy as np
import torch
from torch import nn

import compositefl as cfl
from compositefl.solve.trajectory import Trajectory

CLIENTS, TURNS, ROUNDS = 60, 5, 2


def alone(loss):
    """The same loss, which says that it takes its clients one after the other."""
    kind = type(loss)
    loss.__class__ = type(kind.__name__, (kind,), {"side_by_side": lambda *_: "as it was told"})


def main():
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    x = rng.random((CLIENTS, 200, 784), dtype=np.float32)
    y = rng.integers(0, 10, (CLIENTS, 200)).astype(np.int32)
    module = nn.Sequential(nn.Linear(784, 32), nn.Sigmoid(), nn.Linear(32, 10))
    runs = {}
    for name in ("side by side", "one after the other"):
        clients = [cfl.data.Samples(*one) for one in zip(x, y, strict=True)]
        problem = cfl.models.from_torch(module, classes=10).problem(clients)
        if name == "one after the other":
            alone(problem.loss)
        algorithm = cfl.FedAvg(local_steps=3, local_lr=0.1)
        runs[name] = Trajectory(problem, None, algorithm, batch_size=32)
        runs[name].advance(1)
    least = dict.fromkeys(runs, (np.inf, np.inf))
    for _ in range(TURNS):
        for name, run in runs.items():
            wall, processor = time.perf_counter(), time.process_time()
            run.advance(run.round + ROUNDS)
            spent = time.perf_counter() - wall, time.process_time() - processor
            least[name] = tuple(min(a, b / ROUNDS) for a, b in zip(least[name], spent, strict=True))
    for name, (wall, processor) in least.items():
        print(f"{name:20} {wall * 1e3:.0f} ms a round, processor {processor * 1e3:.0f} ms")
    side, other = (least[name][1] for name in runs)
    print(f"side by side is {other / side:.2f} times as fast, in processor time")
    first, last = (run.models() for run in runs.values())
    apart = max(np.abs(np.asarray(first[k]) - np.asarray(last[k])).max() for k in first)
    print(f"the models are {apart:.1e} apart")


if __name__ == "__main__":
    main()
