"""The l-infinity norm of the whole model."""

import jax
import jax.numpy as jnp

from compositefl.core.component import component
from compositefl.core.types import Number, Params
from compositefl.regularizers.base import Regularizer, as_float
from compositefl.regularizers.operators import cast_like, largest_entry, level_from_top


@component
class LInf(Regularizer):
    """phi(x) = weight * max_j |x_j|, j over all entries of all leaves: equal large entries.

    prox_t(z) = z - P(z), P the projection on {||y||_1 <= t weight}; that is clip(z, -h, h) with
    the level h >= 0 at which sum_j max(|z_j| - h, 0) = t weight. rho = 0, any t.
    """

    weight: Number

    def __post_init__(self) -> None:
        self.require_nonnegative("weight")

    def value(self, x: Params) -> Number:
        leaves = [as_float(leaf) for leaf in jax.tree.leaves(x)]
        return self.weight * largest_entry(leaves) if leaves else 0.0

    def prox(self, z: Params, t: Number) -> Params:
        leaves, structure = jax.tree.flatten(jax.tree.map(as_float, z))
        if not leaves:
            return z
        top, below = level_from_top(leaves, t * self.weight)
        level = top + below
        clipped = [
            jnp.clip(leaf, -cast_like(level, leaf), cast_like(level, leaf)) for leaf in leaves
        ]
        return jax.tree.unflatten(structure, clipped)
