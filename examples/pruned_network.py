"""A network pruned to half its neurons by group lasso, made smaller, and exported.

A group is what one neuron tells the next layer: when all of it is zero, the neuron is not needed.

Usage: python examples/pruned_network.py
"""

# %%
import sys

import numpy as np
from matplotlib.figure import Figure
from rich import print

import compositefl as cfl
from compositefl.export import to_onnx
from compositefl.report.curves import describe, save
from compositefl.report.style import COLOURS

ROUNDS, WEIGHT = (10, 0.1) if "--small" in sys.argv else (300, 0.015)
HIDDEN = 64

# %%
digits = cfl.data.load("digits")
clients = cfl.partition.dirichlet(digits.train, clients=10, alpha=0.3)
model = cfl.models.mlp((64, HIDDEN, 10), activation="relu")
problem = model.problem(clients, test=digits.test)
prune = cfl.ByName({"dense1/kernel": cfl.GroupLasso(WEIGHT), "*": cfl.SquaredL2(1e-4)})
result = cfl.minimize(
    problem,
    prune,
    cfl.FedNMap(gamma=1.0, local_steps=5, local_lr=0.1),
    rounds=ROUNDS,
    batch_size=32,
    weights="size",
    progress=False,
)

# %% [markdown]
# `compress` leaves the neurons out. The outputs stay.

# %%
small = cfl.compress(result, model)
x = digits.test.x
before, after = (
    np.asarray(m.apply(p, x)) for m, p in ((model, result.params), (small.model, small.params))
)
left = small.params["dense0"]["kernel"].shape[1]
print(f"{left} of {HIDDEN} neurons are left; {small.summary()}")
print(f"largest change of an output: {np.abs(before - after).max():.1e}")
print(small.table(np.tile(x, (20, 1))))
to_onnx(small, "pruned.onnx")

# %%
figure = Figure(figsize=(9, 3.4), dpi=110, layout="constrained", facecolor="white")
one, two = figure.subplots(1, 2)
norms = np.sort(np.linalg.norm(result.params["dense1"]["kernel"], axis=1))[::-1]
one.bar(np.arange(HIDDEN), norms, 0.9, color=COLOURS[0])
describe(one, f"What a neuron tells (norm): {left} of {HIDDEN} are not zero", "neuron, sorted")
history = result.history
two.plot(history["round"], 100 * history["accuracy"], color=COLOURS[0], linewidth=2)
describe(two, "Test accuracy, %", "round")
save(figure, "pruned_network.png")
print("wrote pruned.onnx and pruned_network.png")
