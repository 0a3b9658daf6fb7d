"""Nuclear norm: low rank."""

import jax
import jax.numpy as jnp

from compositefl.core.component import component
from compositefl.core.types import Number
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.operators import cast_like


@component
class NuclearNorm(Regularizer):
    """phi(x) = weight * (sum of the singular values of each leaf): low rank.

    prox_t(z) = U diag(max(s - t weight, 0)) V^T with z = U diag(s) V^T. rho = 0, any t.
    A leaf with more than two axes counts as the matrix of shape (-1, last axis).
    """

    weight: Number

    def __post_init__(self) -> None:
        self.require_nonnegative("weight")

    def leaf_problem(self, shape: tuple[int, ...]) -> str | None:
        return None if len(shape) >= 2 else "is not a matrix"

    def leaf_value(self, x: jax.Array) -> jax.Array:
        matrix = x.reshape(-1, x.shape[-1])
        return self.weight * jnp.sum(jnp.linalg.svd(matrix, compute_uv=False))

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        cut = cast_like(t * self.weight, z)
        u, s, vt = jnp.linalg.svd(z.reshape(-1, z.shape[-1]), full_matrices=False)
        low_rank = (u * jnp.maximum(s - cut, 0)) @ vt
        return jnp.where(cut > 0, low_rank.reshape(z.shape), z)  # exactly z for t = 0
