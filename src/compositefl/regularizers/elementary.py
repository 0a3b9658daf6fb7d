"""Zero, l1, squared l2 and elastic net: convex, entry by entry, in closed form.

A weight may be one number, an array shaped like the leaf, or a pytree like the parameters; every
entry then has its own.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp

from compositefl.core.component import component
from compositefl.core.types import Number
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.entries import Entries
from compositefl.regularizers.operators import cast_like, soft_threshold


@component
class Zero(Regularizer):
    """phi(x) = 0: no regularisation.

    prox_t(z) = z. rho = 0, any t.
    """

    is_separable: ClassVar[bool] = True

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return jnp.zeros((), x.dtype)

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        return z


@component
class L1(Regularizer):
    """phi(x) = weight * ||x||_1: sparse entries.

    prox_t(z) = sign(z) max(|z| - t weight, 0). rho = 0, any t.
    """

    weight: Entries
    is_separable: ClassVar[bool] = True
    per_entry = ("weight",)

    def __post_init__(self) -> None:
        self.require_nonnegative("weight")

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return jnp.sum(self.weight * jnp.abs(x))

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        return soft_threshold(z, t * self.weight)


@component
class SquaredL2(Regularizer):
    """phi(x) = weight * ||x||_2^2, without the factor 1/2: weight decay.

    prox_t(z) = z / (1 + 2 t weight). rho = 0, any t.
    """

    weight: Entries
    is_separable: ClassVar[bool] = True
    per_entry = ("weight",)

    def __post_init__(self) -> None:
        self.require_nonnegative("weight")

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return jnp.sum(self.weight * (x * x))

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        return z / cast_like(1 + 2 * t * self.weight, z)


@component
class ElasticNet(Regularizer):
    """phi(x) = l1 * ||x||_1 + l2 * ||x||_2^2, without the factor 1/2: sparse and small entries.

    prox_t(z) = sign(z) max(|z| - t l1, 0) / (1 + 2 t l2). rho = 0, any t.
    """

    l1: Entries
    l2: Entries
    is_separable: ClassVar[bool] = True
    per_entry = ("l1", "l2")

    def __post_init__(self) -> None:
        self.require_nonnegative("l1", "l2")

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return jnp.sum(self.l1 * jnp.abs(x)) + jnp.sum(self.l2 * (x * x))

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        return soft_threshold(z, t * self.l1) / cast_like(1 + 2 * t * self.l2, z)
