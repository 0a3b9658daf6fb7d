"""Your own loss and regulariser: robust regression whose weights are sparse and not negative.

A loss is a function of (params, batch), the mean over the batch. A regulariser has a value and a
prox, here for each array of the parameters; `cfl.Regularizer` says what else it may tell.

Usage: python examples/own_loss_and_regularizer.py
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import compositefl as cfl
from compositefl.core.component import component


def huber(w: Any, batch: Any) -> jax.Array:
    """Quadratic for small residuals, linear for large ones."""
    x, y = batch
    r = jnp.abs(x @ w - y)
    return jnp.mean(jnp.where(r < 1.0, r**2 / 2, r - 0.5))


@component
class NonNegativeL1(cfl.Regularizer):
    """weight * sum(x) for x >= 0, infinity elsewhere: the prox is max(z - t * weight, 0)."""

    weight: float
    constrains = True  # infinite somewhere

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return jnp.where(jnp.all(x >= 0), self.weight * jnp.sum(x), jnp.inf)

    def leaf_prox(self, z: jax.Array, t: Any) -> jax.Array:
        return jnp.maximum(z - t * self.weight, 0.0)


rng = np.random.default_rng(0)
truth = np.array([2.0, 0.0, 1.0, 0.0, 0.0, 0.5, 0.0, 0.0])
clients = []
for _ in range(8):
    x = rng.normal(size=(60, truth.size))
    y = x @ truth + 0.2 * rng.standard_t(1.5, 60)  # outliers
    clients.append((x, y))

problem = cfl.Problem(huber, np.zeros(truth.size), clients)
algorithm = cfl.FedNMap(gamma=0.5, local_steps=5, local_lr=0.05)
result = cfl.minimize(
    problem, NonNegativeL1(0.05), algorithm, rounds=300, batch_size=20, progress=False
)

print("true weights ", truth)
print("found weights", np.round(result.params, 3))
print(result.history[["round", "psi", "natural_residual_sq", "zeros"]].iloc[::10].to_string())
