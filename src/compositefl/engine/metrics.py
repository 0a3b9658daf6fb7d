"""How stationary and how sparse a point is. Pure functions on pytrees."""

import math

import jax
import jax.numpy as jnp

from compositefl.core.types import Number, Params
from compositefl.core.vector import Vector, squared_norm
from compositefl.regularizers.base import Regularizer


def natural_residual(
    regularizer: Regularizer, gamma: Number, x: Vector, gradient: Vector
) -> Vector:
    """F_nat(x) = (x - prox_gamma(x - gamma grad f(x))) / gamma; zero at stationary points only."""
    return (x - Vector(regularizer.prox((x - gamma * gradient).tree, gamma))) / gamma


def normal_map(gamma: Number, z: Vector, x: Vector, gradient: Vector) -> Vector:
    """F_nor(z) = grad f(x) + (z - x)/gamma with x = prox_gamma(z), an element of dpsi(x)."""
    return gradient + (z - x) / gamma


def zero_fraction(x: Params) -> jax.Array:
    """Share of the entries that are exactly zero."""
    leaves = jax.tree.leaves(x)
    zeros = sum(jnp.sum(leaf == 0) for leaf in leaves)
    return zeros / sum(leaf.size for leaf in leaves)


def hoyer_sparsity(x: Params) -> jax.Array:
    """(sqrt(p) - ||x||_1/||x||_2) / (sqrt(p) - 1): 0 for equal entries, 1 for a single one.

    The zero vector counts as 1.
    """
    leaves = jax.tree.leaves(x)
    root = math.sqrt(sum(leaf.size for leaf in leaves))
    if root == 1:
        return jnp.ones(())
    l1 = jnp.sum(jnp.stack([jnp.sum(jnp.abs(leaf)) for leaf in leaves]))
    l2 = jnp.sqrt(squared_norm(Vector(x)))
    ratio = jnp.where(l2 > 0, l1 / jnp.where(l2 > 0, l2, 1.0), 1.0)
    return (root - ratio) / (root - 1)
