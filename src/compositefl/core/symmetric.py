"""Symmetric matrices as what they hold: the lower triangle, row after row."""

import math

import jax
import jax.numpy as jnp


def triangle_size(p: int) -> int:
    """Numbers in the lower triangle of a p x p matrix, the diagonal included."""
    return p * (p + 1) // 2


def to_triangle(matrix: jax.Array) -> jax.Array:
    """The lower triangle of a symmetric matrix: entries (0,0), (1,0), (1,1), (2,0), ..."""
    p = matrix.shape[-1]
    # Computed, not written out: two lists of p^2/2 indices would sit in every compiled program.
    at = jnp.arange(triangle_size(p), dtype=jnp.int32)
    starts = jnp.cumsum(jnp.arange(p, dtype=jnp.int32), dtype=jnp.int32)
    row = jnp.searchsorted(starts, at, side="right").astype(jnp.int32) - 1
    return matrix[row, at - starts[row]]


def from_triangle(triangle: jax.Array) -> jax.Array:
    """The symmetric matrix with this lower triangle."""
    p = (math.isqrt(8 * triangle.size + 1) - 1) // 2
    i = jnp.arange(p, dtype=jnp.int32)
    low, high = jnp.minimum(i[:, None], i), jnp.maximum(i[:, None], i)
    return triangle[high * (high + 1) // 2 + low]
