"""Zero, l1, squared l2 and elastic net: convex, entry by entry, in closed form."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from compositefl.core.component import component
from compositefl.core.errors import require_nonnegative
from compositefl.regularizers.base import Number, Regularizer
from compositefl.regularizers.operators import scalar_like, soft_threshold


@component
class Zero(Regularizer):
    """phi(x) = 0: no regularisation.

    prox_t(z) = z. rho = 0, any t.
    """

    is_separable: ClassVar[bool] = True

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return jnp.zeros((), x.dtype)

    def leaf_prox(self, z: jax.Array, t: Any) -> jax.Array:
        return z


@component
class L1(Regularizer):
    """phi(x) = weight * ||x||_1: sparse entries.

    prox_t(z) = sign(z) max(|z| - t weight, 0). rho = 0, any t.
    """

    weight: Number
    is_separable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_nonnegative(weight=self.weight)

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return self.weight * jnp.sum(jnp.abs(x))

    def leaf_prox(self, z: jax.Array, t: Any) -> jax.Array:
        return soft_threshold(z, t * self.weight)


@component
class SquaredL2(Regularizer):
    """phi(x) = weight * ||x||_2^2, without the factor 1/2: weight decay.

    prox_t(z) = z / (1 + 2 t weight). rho = 0, any t.
    """

    weight: Number
    is_separable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_nonnegative(weight=self.weight)

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return self.weight * jnp.sum(x * x)

    def leaf_prox(self, z: jax.Array, t: Any) -> jax.Array:
        return z / scalar_like(1 + 2 * t * self.weight, z)


@component
class ElasticNet(Regularizer):
    """phi(x) = l1 * ||x||_1 + l2 * ||x||_2^2, without the factor 1/2: sparse and small entries.

    prox_t(z) = sign(z) max(|z| - t l1, 0) / (1 + 2 t l2). rho = 0, any t.
    """

    l1: Number
    l2: Number
    is_separable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_nonnegative(l1=self.l1, l2=self.l2)

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return self.l1 * jnp.sum(jnp.abs(x)) + self.l2 * jnp.sum(x * x)

    def leaf_prox(self, z: jax.Array, t: Any) -> jax.Array:
        return soft_threshold(z, t * self.l1) / scalar_like(1 + 2 * t * self.l2, z)
