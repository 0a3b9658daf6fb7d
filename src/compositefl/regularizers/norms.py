"""The l-infinity norm of the whole model."""

from typing import Any

import jax
import jax.numpy as jnp

from compositefl.core.component import component
from compositefl.core.errors import require_nonnegative
from compositefl.regularizers.base import Number, Regularizer, as_float
from compositefl.regularizers.operators import scalar_like, water_level


@component
class LInf(Regularizer):
    """phi(x) = weight * max_j |x_j|, j over all entries of all leaves: equal large entries.

    prox_t(z) = z - P(z), P the projection on {||y||_1 <= t weight}; that is clip(z, -h, h) with
    the level h >= 0 at which sum_j max(|z_j| - h, 0) = t weight. rho = 0, any t.
    """

    weight: Number

    def __post_init__(self) -> None:
        require_nonnegative(weight=self.weight)

    def value(self, x: Any) -> Any:
        largest = [jnp.max(jnp.abs(as_float(leaf)), initial=0.0) for leaf in jax.tree.leaves(x)]
        return self.weight * jnp.max(jnp.stack(largest)) if largest else 0.0

    def prox(self, z: Any, t: Any) -> Any:
        leaves, structure = jax.tree.flatten(jax.tree.map(as_float, z))
        if not leaves:
            return z
        level = water_level([jnp.abs(leaf) for leaf in leaves], t * self.weight, 0.0)
        clipped = [
            jnp.clip(leaf, -scalar_like(level, leaf), scalar_like(level, leaf)) for leaf in leaves
        ]
        return jax.tree.unflatten(structure, clipped)
