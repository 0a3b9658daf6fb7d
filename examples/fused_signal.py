"""A signal of few jumps, seen in pieces and with noise by many sensors: total variation.

No sensor sees the whole signal, and none sends what it has seen.

Usage: python examples/fused_signal.py
"""

# %%
import sys

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import compositefl as cfl
from compositefl.report.curves import describe, save
from compositefl.report.style import COLOURS

ROUNDS = 60 if "--small" in sys.argv else 400
LENGTH, SENSORS = 120, 12

# %%
rng = np.random.default_rng(0)
truth = np.repeat([0.0, 2.0, 1.0, -1.0, 0.5], LENGTH // 5)
sensors = []
for number in range(SENSORS):
    begin = number * LENGTH // SENSORS - 20
    places = np.arange(begin, begin + 50) % LENGTH  # sensors see neighbouring stretches
    sensors.append((places, truth[places] + 0.8 * rng.normal(size=len(places))))


def loss(signal, batch):
    """Half the mean squared error at the places that were seen."""
    places, values = batch
    return 0.5 * jnp.mean((signal[places] - values) ** 2)


# %%
problem = cfl.Problem(loss, np.zeros(LENGTH), sensors)
result = cfl.minimize(
    problem,
    cfl.TotalVariation1D(0.025),
    cfl.FedNMap(gamma=20.0, local_steps=5, local_lr=2.0),
    rounds=ROUNDS,
    dtype="float64",
    progress=False,
)
print(result.summary())
found = np.asarray(result.params)
places, values = (np.concatenate(parts) for parts in zip(*sensors, strict=True))
mean = np.bincount(places, values, LENGTH) / np.bincount(places, minlength=LENGTH)
print(f"jumps: {np.sum(np.diff(found) != 0)} found, {np.sum(np.diff(truth) != 0)} true")
for name, signal in {"mean of the sensors": mean, "total variation": found}.items():
    print(f"{name:20} error {np.sqrt(np.mean((signal - truth) ** 2)):.3f}")

# %%
figure = Figure(figsize=(9, 3.4), dpi=110, layout="constrained", facecolor="white")
axis = figure.subplots()
axis.plot(places, values, ".", ms=3, color="#c8c8c8", label="what the sensors saw")
axis.step(np.arange(LENGTH), truth, where="mid", color="#555555", linewidth=1, label="truth")
axis.plot(mean, color=COLOURS[1], linewidth=1.2, label="mean of the sensors")
axis.step(np.arange(LENGTH), found, where="mid", color=COLOURS[0], linewidth=2, label="found")
axis.legend(frameon=False, fontsize=9, ncols=2)
describe(axis, "A signal of few jumps, found together", "place")
save(figure, "fused_signal.png")
print("wrote fused_signal.png")
