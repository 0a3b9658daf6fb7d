"""The few operations that several regularisers share."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from compositefl.core.types import Array, Number


def cast_like(value: Array, z: jax.Array) -> jax.Array:
    """`value` in the floating type of z, so that a double step size does not widen a float32 z."""
    return jnp.asarray(value, z.dtype)


def soft_threshold(z: jax.Array, u: Array) -> jax.Array:
    """sign(z) * max(|z| - u, 0). Written so that z is exact for u = 0 and 0 exact for |z| <= u."""
    u = cast_like(u, z)
    return z - jnp.clip(z, -u, u)


def safe_sqrt(square: jax.Array) -> jax.Array:
    """sqrt with derivative 0 at 0, where that of jnp.sqrt is infinite."""
    nonzero = square != 0  # and not "> 0", which would turn NaN into 0
    return jnp.where(nonzero, jnp.sqrt(jnp.where(nonzero, square, 1.0)), 0.0)


def square_scale(largest: jax.Array) -> jax.Array:
    """By what to divide numbers up to `largest` so that their squares neither overflow nor vanish.

    1 for ordinary numbers: nothing is rounded then. The result carries no derivative; a norm does
    not depend on it.
    """
    largest = jax.lax.stop_gradient(largest)
    limit = jnp.finfo(largest.dtype).max ** 0.25
    small = (largest > 0) & (largest < 1 / limit)
    large = (limit < largest) & jnp.isfinite(largest)
    # Well below the largest: XLA multiplies by the reciprocal, which must not be subnormal.
    return jnp.where(small, largest, jnp.where(large, largest * 1e-6, jnp.ones_like(largest)))


def largest_entry(leaves: Sequence[jax.Array]) -> jax.Array:
    """max_j |u_j| over all entries of all leaves."""
    return jnp.max(jnp.stack([jnp.max(jnp.abs(u), initial=0) for u in leaves]))


def water_level(leaves: Sequence[jax.Array], total: Number, start: Number) -> jax.Array:
    """The level h >= start with sum_j max(u_j - h, 0) = total over all entries of all leaves.

    `start` itself if the sum is below `total` there. Newton's method on a convex, decreasing,
    piecewise linear function: from the left it never overshoots and ends after a few passes, each
    O(p), where a sort would cost far more. Give leaves whose largest entry is 0: the level is then
    at least -total, and has its digits where they count.
    """

    def newton(h: jax.Array, leaves: Sequence[jax.Array], total: Number) -> jax.Array:
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
    level = newton(h, leaves, total)
    return jnp.where(level < start, start, level)  # not maximum: at a tie the derivative is level's


def level_from_top(leaves: Sequence[jax.Array], total: Number) -> tuple[jax.Array, jax.Array]:
    """(top, h): the level h + top >= 0 with sum_j max(|u_j| - top - h, 0) = total.

    top is the largest |u_j|, without a derivative. h + top = 0 if the sum of all |u_j| is below
    `total`. Only entries within `total` of the top count, so the level is sought there: above it
    one large entry would take the digits of all others.
    """
    top = jax.lax.stop_gradient(largest_entry(leaves))
    start = -jnp.minimum(cast_like(jax.lax.stop_gradient(total), top), top)
    return top, water_level([jnp.abs(u) - cast_like(top, u) for u in leaves], total, start)
