"""Your own loss and regulariser: robust regression whose weights are sparse and not negative.

A loss is a function of (params, batch), the mean over the batch. A regulariser has a value and a
prox, here for each array of the parameters; `cfl.Regularizer` says what else it may tell.

Usage: python examples/own_loss_and_regularizer.py
"""

# %%
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import compositefl as cfl
from compositefl.report.curves import describe, save
from compositefl.report.style import COLOURS

ROUNDS = 100 if "--small" in sys.argv else 300


# %%


def huber(w: Any, batch: Any) -> jax.Array:
    """Quadratic for small residuals, linear for large ones."""
    x, y = batch
    r = jnp.abs(x @ w - y)
    return jnp.mean(jnp.where(r < 1.0, r**2 / 2, r - 0.5))


@cfl.component
class NonNegativeL1(cfl.Regularizer):
    """weight * sum(x) for x >= 0, infinity elsewhere: the prox is max(z - t * weight, 0)."""

    weight: float
    constrains = True  # infinite somewhere

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return jnp.where(jnp.all(x >= 0), self.weight * jnp.sum(x), jnp.inf)

    def leaf_prox(self, z: jax.Array, t: Any) -> jax.Array:
        return jnp.maximum(z - t * self.weight, 0.0)


# %%
rng = np.random.default_rng(0)
truth = np.array([2.0, 0.0, 1.0, 0.0, 0.0, 0.5, 0.0, 0.0])
clients = []
for _ in range(8):
    x = rng.normal(size=(60, truth.size))
    y = x @ truth + 0.2 * rng.standard_t(1.5, 60)  # outliers
    clients.append((x, y))

# %%
problem = cfl.Problem(huber, np.zeros(truth.size), clients)
algorithm = cfl.FedNMap(gamma=0.5, local_steps=5, local_lr=0.05)
result = cfl.minimize(
    problem, NonNegativeL1(0.05), algorithm, rounds=ROUNDS, batch_size=20, progress=False
)

# %%
print("true weights ", truth)
print("found weights", np.round(result.params, 3))
print(result.history[["round", "psi", "natural_residual_sq", "zeros"]].iloc[::10].to_string())
figure = Figure(figsize=(6, 3.4), dpi=110, layout="constrained", facecolor="white")
axis = figure.subplots()
at = np.arange(truth.size)
axis.bar(at, truth, 0.9, color="#dddddd", label="truth")
axis.bar(at, result.params, 0.4, color=COLOURS[0], label="found")
axis.legend(frameon=False, fontsize=9)
describe(axis, "Weights that are sparse and not negative, despite outliers", "feature")
save(figure, "own_loss_and_regularizer.png")
print("wrote own_loss_and_regularizer.png")
