"""Constraints x in C, as indicators: phi(x) = 0 inside C and infinity outside.

The prox is the Euclidean projection, for any t; rho = 0. The value forgives violations of the size
of rounding errors.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from compositefl.core.component import component
from compositefl.core.errors import CompositeFLError, is_concrete, require_positive
from compositefl.regularizers.base import Number, Regularizer, as_float
from compositefl.regularizers.operators import (
    safe_sqrt,
    scalar_like,
    soft_threshold,
    water_level,
)


def tolerance(*leaves: jax.Array) -> Any:
    """Relative violation that still counts as feasible: 1e-5 in float32, 2e-14 in float64."""
    return 100 * jnp.finfo(jnp.result_type(*leaves)).eps


class _Indicator(Regularizer):
    """0 if `contains(leaves)`, else infinity; the prox is `project(leaves)`, the leaves jointly."""

    indicator: ClassVar[bool] = True
    constrains: ClassVar[bool] = True

    def contains(self, leaves: list[jax.Array]) -> jax.Array:
        raise NotImplementedError

    def project(self, leaves: list[jax.Array]) -> list[jax.Array]:
        raise NotImplementedError

    def value(self, x: Any) -> Any:
        leaves = [as_float(leaf) for leaf in jax.tree.leaves(x)]
        return jnp.where(self.contains(leaves), 0.0, jnp.inf) if leaves else 0.0

    def prox(self, z: Any, t: Any) -> Any:
        leaves, structure = jax.tree.flatten(jax.tree.map(as_float, z))
        return jax.tree.unflatten(structure, self.project(leaves) if leaves else [])


@component
class Box(_Indicator):
    """lower <= x_j <= upper for every entry; a bound may be infinite.

    prox_t(z) = clip(z, lower, upper). rho = 0, any t.
    """

    lower: Number
    upper: Number
    is_separable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        both = is_concrete(self.lower) and is_concrete(self.upper)
        if both and not self.lower <= self.upper:
            raise CompositeFLError(f"lower={self.lower} must be <= upper={self.upper}")

    def contains(self, leaves: list[jax.Array]) -> jax.Array:
        def inside(x: jax.Array) -> jax.Array:
            low, high = scalar_like(self.lower, x), scalar_like(self.upper, x)
            slack = tolerance(x)
            low, high = low - slack * jnp.abs(low), high + slack * jnp.abs(high)
            return jnp.all((low <= x) & (x <= high))

        return jnp.all(jnp.stack([inside(x) for x in leaves]))

    def project(self, leaves: list[jax.Array]) -> list[jax.Array]:
        return [jnp.clip(z, scalar_like(self.lower, z), scalar_like(self.upper, z)) for z in leaves]


@component
class NonNegative(_Indicator):
    """x_j >= 0 for every entry.

    prox_t(z) = max(z, 0). rho = 0, any t.
    """

    is_separable: ClassVar[bool] = True

    def contains(self, leaves: list[jax.Array]) -> jax.Array:
        return jnp.all(jnp.stack([jnp.all(x >= 0) for x in leaves]))

    def project(self, leaves: list[jax.Array]) -> list[jax.Array]:
        return [jnp.maximum(z, 0) for z in leaves]


@component
class L2Ball(_Indicator):
    """||x||_2 <= radius, over all entries of all leaves.

    prox_t(z) = z min(1, radius / ||z||_2). rho = 0, any t.
    """

    radius: Number

    def __post_init__(self) -> None:
        require_positive(radius=self.radius)

    def _norm(self, leaves: list[jax.Array]) -> jax.Array:
        return safe_sqrt(jnp.asarray(sum(jnp.sum(x * x) for x in leaves)))

    def contains(self, leaves: list[jax.Array]) -> jax.Array:
        return self._norm(leaves) <= self.radius * (1 + tolerance(*leaves))

    def project(self, leaves: list[jax.Array]) -> list[jax.Array]:
        factor = self.radius / jnp.maximum(self._norm(leaves), self.radius)
        return [z * scalar_like(factor, z) for z in leaves]


@component
class L1Ball(_Indicator):
    """||x||_1 <= radius, over all entries of all leaves: sparse, with a budget.

    prox_t(z) = sign(z) max(|z| - h, 0), h = 0 inside the ball, else the level at which
    sum_j max(|z_j| - h, 0) = radius. rho = 0, any t.
    """

    radius: Number

    def __post_init__(self) -> None:
        require_positive(radius=self.radius)

    def contains(self, leaves: list[jax.Array]) -> jax.Array:
        norm = sum(jnp.sum(jnp.abs(x)) for x in leaves)
        return norm <= self.radius * (1 + tolerance(*leaves))

    def project(self, leaves: list[jax.Array]) -> list[jax.Array]:
        level = water_level([jnp.abs(z) for z in leaves], self.radius, 0.0)
        shrunk = [soft_threshold(z, level) for z in leaves]
        norm = sum(jnp.sum(jnp.abs(x)) for x in shrunk)
        factor = self.radius / jnp.maximum(norm, self.radius)  # takes off what rounding added
        return [x * scalar_like(factor, x) for x in shrunk]


@component
class Simplex(_Indicator):
    """x_j >= 0 and sum_j x_j = total, over all entries of all leaves.

    prox_t(z) = max(z - h, 0) with the level h at which sum_j max(z_j - h, 0) = total.
    rho = 0, any t.
    """

    total: Number = 1.0

    def __post_init__(self) -> None:
        require_positive(total=self.total)

    def contains(self, leaves: list[jax.Array]) -> jax.Array:
        gap = jnp.abs(sum(jnp.sum(x) for x in leaves) - self.total)
        nonnegative = jnp.all(jnp.stack([jnp.all(x >= 0) for x in leaves]))
        return nonnegative & (gap <= self.total * tolerance(*leaves))

    def project(self, leaves: list[jax.Array]) -> list[jax.Array]:
        # Adding a constant to z changes nothing; near 0 the level has its digits where they count.
        top = jnp.max(jnp.stack([jnp.max(z) for z in leaves]))
        leaves = [z - scalar_like(top, z) for z in leaves]
        all_active = (sum(jnp.sum(z) for z in leaves) - self.total) / sum(z.size for z in leaves)
        level = water_level(leaves, self.total, all_active)
        shifted = [jnp.maximum(z - scalar_like(level, z), 0) for z in leaves]
        factor = self.total / sum(jnp.sum(x) for x in shifted)  # takes off what rounding added
        return [x * scalar_like(factor, x) for x in shifted]
