"""What the runner and the adapters of all libraries share; needs NumPy only.

An adapter is a script that is given a folder with `task.json`, `data.npz` and `start.npz`. It
trains, calls `Clock.tick` after the rounds that it wants timed, writes the model after
`task["rounds"]` rounds to `model.npz` and prints one line of JSON.
"""

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

ENOUGH = 2.0  # seconds of rounds after the first that are timed, where a library is that fast


class Task:
    """What is to be done: a workload, a method, where."""

    def __init__(self, folder):
        self.folder = Path(folder)
        values = json.loads((self.folder / "task.json").read_text())
        self.workload = values["workload"]  # softmax, mlp or cnn
        self.method = values["method"]  # fedavg or scaffold
        self.device = values["device"]  # cpu or cuda
        self.rounds = values["rounds"]
        self.steps = values["steps"]  # local steps of a client in a round
        self.batch = values["batch"]  # 0: all samples of the client in every step
        self.lr = values["lr"]
        self.seed = values["seed"]
        with np.load(self.folder / "data.npz") as data:
            self.x, self.y = data["x"], data["y"]  # (clients, samples, ...)
        with np.load(self.folder / "start.npz") as start:
            self.start = dict(start)
        self.clients = len(self.x)

    @property
    def epochs(self):
        """Passes over a client's samples that make up the steps of a round."""
        return self.steps if not self.batch else self.steps * self.batch // self.x.shape[1]

    @property
    def batch_size(self):
        """Samples of a step."""
        return self.batch or self.x.shape[1]


def processes():
    """This process and all that it has started, and what they have started."""
    parent = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/stat") as file:
                    parent[int(entry.name)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has just ended
    found, new = set(), {os.getpid()}
    while new:
        found |= new
        new = {child for child, above in parent.items() if above in new} - found
    return found


def processor_seconds():
    """Processor time of all `processes`, in user and system mode."""
    ticks = 0
    for pid in processes():
        try:
            with open(f"/proc/{pid}/stat") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(int(field) for field in fields[11:13])
        if pid == os.getpid():
            ticks += sum(int(field) for field in fields[13:15])  # of those that have ended
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_megabytes():
    """The sum over `processes` of the most memory that each has had."""
    total = 0
    for pid in processes():
        try:
            with open(f"/proc/{pid}/status") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        except OSError:
            continue
    return total / 1024


class Clock:
    """Wall and processor time of rounds, in the blocks in which they were ticked."""

    def __init__(self, task):
        self.task, self.rounds, self.memory = task, 0, 0.0
        self.blocks = []  # (rounds, seconds, processor seconds)
        self.at, self.used = time.perf_counter(), processor_seconds()

    def tick(self, rounds=1):
        """`rounds` more rounds are done."""
        now, used = time.perf_counter(), processor_seconds()
        self.blocks.append((rounds, now - self.at, used - self.used))
        self.rounds += rounds
        self.memory = max(self.memory, peak_megabytes())
        self.at, self.used = time.perf_counter(), processor_seconds()

    def drive(self, advance, model):
        """Time `advance(rounds)`, which returns when the rounds are done.

        The first round alone, then up to the task's rounds, where `model()` is kept; a library that
        is faster than the clock's resolution goes on in blocks of as many rounds.
        """
        advance(1)
        self.tick()
        rest = self.task.rounds - 1
        advance(rest)
        self.tick(rest)
        save_model(self.task, model())
        self.at, self.used = time.perf_counter(), processor_seconds()
        # Only with minibatches: what uses all samples is there for its loss.
        while self.task.batch and sum(seconds for _, seconds, _ in self.blocks[1:]) < ENOUGH:
            # short blocks cost more to time than to do
            rest *= 1 + (self.blocks[-1][1] < ENOUGH / 20)
            advance(rest)
            self.tick(rest)

    def report(self, **more):
        """Print what was found: the line that the runner reads."""
        first, *others = self.blocks
        rounds = sum(n for n, _, _ in others)
        sys.stdout.flush()
        print(
            json.dumps(
                {
                    "first_seconds": first[1],
                    # the median over rounds of the blocks' seconds a round
                    "ms": 1e3 * _median([(s / n, n) for n, s, _ in others]),
                    "processor_ms": 1e3 * sum(used for _, _, used in others) / rounds,
                    "timed_rounds": rounds,
                    "peak_megabytes": self.memory,
                    **more,
                }
            )
        )


def _median(weighted):
    half = sum(weight for _, weight in weighted) / 2
    for value, weight in sorted(weighted):
        half -= weight
        if half <= 0:
            return value
    raise ValueError("no rounds after the first")


def save_model(task, params):
    """Keep the model after the task's rounds, as arrays named like those of the start."""
    np.savez(task.folder / "model.npz", **{k: np.asarray(v) for k, v in params.items()})
