"""The few operations that several regularisers share."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp


def scalar_like(value: Any, z: jax.Array) -> jax.Array:
    """`value` in the floating type of z, so that a double step size does not widen a float32 z."""
    return jnp.asarray(value, z.dtype)


def soft_threshold(z: jax.Array, u: Any) -> jax.Array:
    """sign(z) * max(|z| - u, 0). Written so that z is exact for u = 0 and 0 exact for |z| <= u."""
    u = scalar_like(u, z)
    return z - jnp.clip(z, -u, u)


def safe_sqrt(square: jax.Array) -> jax.Array:
    """sqrt with derivative 0 at 0, where that of jnp.sqrt is infinite."""
    nonzero = square != 0  # and not "> 0", which would turn NaN into 0
    return jnp.where(nonzero, jnp.sqrt(jnp.where(nonzero, square, 1.0)), 0.0)


def water_level(leaves: Sequence[jax.Array], total: Any, start: Any) -> jax.Array:
    """The level h >= start with sum_j max(u_j - h, 0) = total over all entries of all leaves.

    `start` itself if the sum is below `total` there. Newton's method on a convex, decreasing,
    piecewise linear function: from the left it never overshoots and ends after a few passes, each
    O(p), where a sort would cost far more."""

    def newton(h: jax.Array, leaves: Sequence[jax.Array], total: Any) -> jax.Array:
        excess = sum(jnp.sum(jnp.maximum(u - h, 0)) for u in leaves)
        count = sum(jnp.sum(u > h) for u in leaves)
        return h + ((excess - total) / jnp.maximum(count, 1)).astype(h.dtype)

    # The search carries no derivative; the step after it does, and it is the exact one.
    fixed, goal = jax.lax.stop_gradient((leaves, total))
    h = jnp.asarray(jax.lax.stop_gradient(start), jnp.result_type(*leaves))
    h, _ = jax.lax.while_loop(
        lambda pair: pair[1] > pair[0],
        lambda pair: (pair[1], newton(pair[1], fixed, goal)),
        (h, newton(h, fixed, goal)),
    )
    return jnp.maximum(newton(h, leaves, total), start)
