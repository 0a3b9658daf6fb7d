"""Constraints x in C, as indicators: phi(x) = 0 inside C and infinity outside.

The prox is the Euclidean projection, for any t; rho = 0. The value forgives violations of the size
of rounding errors.
"""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from compositefl.core.component import component
from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Number, Params
from compositefl.regularizers.base import Regularizer, as_float
from compositefl.regularizers.entries import Entries, is_scalar, is_traced, largest
from compositefl.regularizers.operators import (
    cast_like,
    largest_entry,
    level_from_top,
    safe_sqrt,
    square_scale,
    water_level,
)


def tolerance(*leaves: jax.Array) -> jax.Array:
    """Relative violation that still counts as feasible: 1e-5 in float32, 2e-14 in float64."""
    return 100 * jnp.asarray(jnp.finfo(jnp.result_type(*leaves)).eps)


class _Indicator(Regularizer):
    """0 if `contains(leaves)`, else infinity; the prox is `project(leaves)`, the leaves jointly."""

    indicator: ClassVar[bool] = True
    constrains: ClassVar[bool] = True

    def contains(self, leaves: list[jax.Array]) -> jax.Array:
        raise NotImplementedError

    def project(self, leaves: list[jax.Array]) -> list[jax.Array]:
        raise NotImplementedError

    def value(self, x: Params) -> Number:
        leaves = [as_float(leaf) for leaf in jax.tree.leaves(x)]
        return jnp.where(self.contains(leaves), 0.0, jnp.inf) if leaves else 0.0

    def prox(self, z: Params, t: Number) -> Params:
        leaves, structure = jax.tree.flatten(jax.tree.map(as_float, z))
        return jax.tree.unflatten(structure, self.project(leaves) if leaves else [])


class _EntrywiseIndicator(Regularizer):
    """0 if every entry of a leaf is `inside`, else infinity."""

    indicator: ClassVar[bool] = True
    constrains: ClassVar[bool] = True
    is_separable: ClassVar[bool] = True

    def inside(self, x: jax.Array) -> jax.Array:
        raise NotImplementedError

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return jnp.where(jnp.all(self.inside(x)), jnp.zeros((), x.dtype), jnp.inf)


def _nothing_between(low: Number, high: Number) -> Number:
    """1 where bounds leave no number: crossed, or infinite on the same side."""
    return 1 - (low <= high) * (low < math.inf) * (high > -math.inf)


@component
class Box(_EntrywiseIndicator):
    """lower <= x_j <= upper for every entry; a bound may be infinite.

    prox_t(z) = clip(z, lower, upper). rho = 0, any t. A bound may be one number, an array shaped
    like the leaf, or a pytree like the parameters.
    """

    lower: Entries
    upper: Entries
    per_entry = ("lower", "upper")

    def __post_init__(self) -> None:
        both = self.lower, self.upper
        if is_traced(*both) or not largest(_nothing_between, *both):
            return
        if all(map(is_scalar, both)):
            raise CompositeFLError(
                f"lower={self.lower} must be <= upper={self.upper}, with numbers between them",
                parameter="lower",
                value=self.lower,
                also={"upper": self.upper},
            )
        raise CompositeFLError("lower must be <= upper in every entry")

    def inside(self, x: jax.Array) -> jax.Array:
        low, high = cast_like(self.lower, x), cast_like(self.upper, x)
        slack = tolerance(x)
        return (low - slack * jnp.abs(low) <= x) & (x <= high + slack * jnp.abs(high))

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        return jnp.clip(z, cast_like(self.lower, z), cast_like(self.upper, z))


@component
class NonNegative(_EntrywiseIndicator):
    """x_j >= 0 for every entry.

    prox_t(z) = max(z, 0). rho = 0, any t.
    """

    def inside(self, x: jax.Array) -> jax.Array:
        return x >= 0

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        return jnp.maximum(z, 0)


@component
class L2Ball(_Indicator):
    """||x||_2 <= radius, over all entries of all leaves.

    prox_t(z) = z min(1, radius / ||z||_2). rho = 0, any t.
    """

    radius: Number

    def __post_init__(self) -> None:
        self.require_positive("radius")

    def contains(self, leaves: list[jax.Array]) -> jax.Array:
        scale, norm = self._norm(leaves)
        return scale * norm <= self.radius * (1 + tolerance(*leaves))

    def project(self, leaves: list[jax.Array]) -> list[jax.Array]:
        scale, norm = self._norm(leaves)
        inside = scale * norm <= self.radius
        factor = self.radius / jnp.where(inside, 1, norm)
        return [
            jnp.where(inside, z, z / cast_like(scale, z) * cast_like(factor, z)) for z in leaves
        ]

    def _norm(self, leaves: list[jax.Array]) -> tuple[jax.Array, jax.Array]:
        """(s, n) with ||x|| = s n, so that neither overflows where the norm itself would."""
        scale = square_scale(largest_entry(leaves))
        scaled = [x / cast_like(scale, x) for x in leaves]
        return scale, safe_sqrt(jnp.asarray(sum(jnp.sum(x * x) for x in scaled)))


@component
class L1Ball(_Indicator):
    """||x||_1 <= radius, over all entries of all leaves: sparse, with a budget.

    prox_t(z) = sign(z) max(|z| - h, 0), h = 0 inside the ball, else the level at which
    sum_j max(|z_j| - h, 0) = radius. rho = 0, any t.
    """

    radius: Number

    def __post_init__(self) -> None:
        self.require_positive("radius")

    def contains(self, leaves: list[jax.Array]) -> jax.Array:
        norm = jnp.asarray(sum(jnp.sum(jnp.abs(x)) for x in leaves))
        return norm <= self.radius * (1 + tolerance(*leaves))

    def project(self, leaves: list[jax.Array]) -> list[jax.Array]:
        inside = sum(jnp.sum(jnp.abs(z)) for z in leaves) <= self.radius
        top, level = level_from_top(leaves, self.radius)

        def shrink(z: jax.Array) -> jax.Array:
            return jnp.maximum(jnp.abs(z) - cast_like(top, z) - cast_like(level, z), 0)

        norm = sum(jnp.sum(shrink(z)) for z in leaves)
        # The factor takes off what rounding added; in exact numbers it is 1.
        factor = jax.lax.stop_gradient(self.radius / jnp.maximum(norm, self.radius))

        def signed(z: jax.Array) -> jax.Array:
            y = shrink(z) * cast_like(factor, z)
            return jnp.where(z < 0, 0 - y, y)  # and no negative zeros

        return [jnp.where(inside, z, signed(z)) for z in leaves]


@component
class Simplex(_Indicator):
    """x_j >= 0 and sum_j x_j = total, over all entries of all leaves.

    prox_t(z) = max(z - h, 0) with the level h at which sum_j max(z_j - h, 0) = total.
    rho = 0, any t.
    """

    total: Number = 1.0

    def __post_init__(self) -> None:
        self.require_positive("total")

    def contains(self, leaves: list[jax.Array]) -> jax.Array:
        gap = jnp.abs(sum(jnp.sum(x) for x in leaves) - self.total)
        nonnegative = jnp.all(jnp.stack([jnp.all(x >= 0) for x in leaves]))
        return nonnegative & (gap <= self.total * tolerance(*leaves))

    def project(self, leaves: list[jax.Array]) -> list[jax.Array]:
        # Adding a constant to z changes nothing; near 0 the level has its digits where they count.
        top = jnp.max(jnp.stack([jnp.max(z, initial=-jnp.inf) for z in leaves]))
        leaves = [z - cast_like(top, z) for z in leaves]
        all_active = (sum(jnp.sum(z) for z in leaves) - self.total) / sum(z.size for z in leaves)
        level = water_level(leaves, self.total, jnp.maximum(all_active, -self.total))
        shifted = [jnp.maximum(z - cast_like(level, z), 0) for z in leaves]
        factor = self.total / sum(jnp.sum(x) for x in shifted)  # takes off what rounding added
        return [x * cast_like(factor, x) for x in shifted]
