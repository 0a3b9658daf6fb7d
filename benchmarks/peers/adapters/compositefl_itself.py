"""compositefl: its compiled rounds, as `minimize` runs them between two evaluations."""

import sys

import jax
import numpy as np
from protocol import Clock, Task

import compositefl as cfl
from compositefl.simulation.simulation import Simulation

task = Task(sys.argv[1])
model = {
    "softmax": lambda: cfl.models.multinomial(64, 10),
    "mlp": lambda: cfl.models.mlp((784, 32, 10), activation="sigmoid"),
    "cnn": cfl.models.cnn_zhang,
}[task.workload]()
start: dict = {}
for name, array in task.start.items():
    layer, kind = name.split("/")
    start.setdefault(layer, {})[kind] = array
clients = [cfl.data.Samples(x, y) for x, y in zip(task.x, task.y, strict=True)]
steps = dict(local_steps=task.steps, local_lr=task.lr)
algorithm = {"fedavg": cfl.FedAvg, "scaffold": cfl.Scaffold, "fednmap": cfl.FedNMap}[task.method]

clock = Clock(task)
simulation = Simulation(
    model.problem(clients).with_params(start),
    [algorithm(**steps, **({"gamma": 4.0} if task.method == "fednmap" else {}))],
    [0],
    seed=task.seed,
    batch_size=task.batch or None,
    count=task.clients,
    weights=np.ones(task.clients),
    dtype="float32",
)


def advance(rounds):
    simulation.advance(simulation.round + rounds)
    simulation.block_until_ready()


def found():
    params = jax.tree.map(lambda a: a[0], simulation.models().tree)
    return {f"{layer}/{kind}": a for layer, own in params.items() for kind, a in own.items()}


clock.drive(advance, found)
clock.report(version=cfl.__version__)
