"""Losses of linear models, whose Hessian is X'DX: known weights, no differentiation."""

import dataclasses
from collections.abc import Callable
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from compositefl.core.types import Array, Batch, Params
from compositefl.models.base import NetworkLoss, cross_entropy, logistic, squared, unpack
from compositefl.models.layers import Dense


def _squared_curvature(outputs: jax.Array) -> jax.Array:
    return jnp.ones_like(outputs)[:, None, None]


def _logistic_curvature(logits: jax.Array) -> jax.Array:
    return (jax.nn.sigmoid(logits) * jax.nn.sigmoid(-logits))[:, None, None]


def _cross_entropy_curvature(logits: jax.Array) -> jax.Array:
    chance = jax.nn.softmax(logits)
    return chance[:, :, None] * (jnp.eye(chance.shape[1]) - chance[:, None, :])


# Second derivatives of a sample's loss in its k outputs, (samples, k, k). None depends on y.
CURVATURES: dict[Callable[..., jax.Array], Callable[[jax.Array], jax.Array]] = {
    squared: _squared_curvature,
    logistic: _logistic_curvature,
    cross_entropy: _cross_entropy_curvature,
}


@dataclasses.dataclass(frozen=True)
class LinearLoss(NetworkLoss):
    """The loss of a network that is one `Dense` layer."""

    convex: ClassVar[bool] = True  # in the parameters

    def hessian(self, params: Params, batch: Batch, weight: Array = None) -> jax.Array:
        """sum_i weight_i (Hessian of sample i's loss); weight None: the mean over the batch.

        Entry ((f, c), (g, d)) is sum_i weight_i x_if x_ig C_icd, with C_i the curvature in the
        outputs and x_i0 = 1 for the bias: k^2 products X'DX. Ordered as `ravel_pytree(params)`.
        """
        x, y = unpack(batch)
        outputs = self.network.apply_to(params, x, np.shape(y))
        curvature = CURVATURES[self.function](outputs)
        x = jnp.reshape(x, (len(y), -1)).astype(outputs.dtype)
        first = self.network.layers[0]
        if isinstance(first, Dense) and first.bias:
            x = jnp.concatenate([jnp.ones_like(x[:, :1]), x], axis=1)
        weight = jnp.full(len(y), 1.0 / len(y), x.dtype) if weight is None else weight
        D = curvature.astype(x.dtype) * weight.astype(x.dtype)[:, None, None]
        k, features = D.shape[1], x.shape[1]
        blocks = lax.map(lambda d: (x * d[:, None]).T @ x, D.reshape(len(y), k * k).T)
        blocks = blocks.reshape(k, k, features, features).transpose(2, 0, 3, 1)
        return blocks.reshape(features * k, features * k)
