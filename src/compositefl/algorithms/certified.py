"""A proximal point of a nonsmooth, weakly convex loss, with a proof of its accuracy.

    h(u) = loss(u) + ||u - x||^2/(2 eta) = c(u) + (m/2)||u - x||^2,
    c(u) = loss(u) + (nu/2)||u - x||^2,    m = 1/eta - nu > 0.

If the loss is nu-weakly convex then c is convex, and each evaluation gives an affine minorant, a
cut c(u_k) + <s_k, u - u_k> with s_k = g_k + nu (u_k - x). One convex combination of them is kept,

    a0 + <a, u - x> <= c(u)    for all u,

so h is bounded from below by a0 - ||a||^2/(2m), and the next point u = x - a/m is where this bound
is attained. The best value of h seen bounds it from above; their difference is the certified gap.
The weight of a new cut maximises the lower bound (the conditional gradient method on the dual
problem, with exact line search): the gap falls as O(G^2/(m k)) for a G-Lipschitz c.
Only values and subgradients are needed.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from compositefl.core.types import Array, Number
from compositefl.core.vector import Vector, squared_norm


class Solve(NamedTuple):
    """Where a solve stands. Everything is relative to the centre x."""

    centre: Vector
    u: Vector  # the next point to evaluate
    a0: jax.Array  # the aggregated cut
    a: Vector
    best: Vector
    upper: jax.Array  # h(best)
    lower: jax.Array  # a lower bound of min h

    @property
    def gap(self) -> jax.Array:
        """h(best) - min h is at most this, up to rounding."""
        return self.upper - self.lower


def begin_solve(x: Vector) -> Solve:
    """Before the first evaluation, which is at x itself."""
    number = jnp.zeros_like(squared_norm(x))
    return Solve(x, x, number, x.zeros(), x, number + jnp.inf, number - jnp.inf)


def improve(
    solve: Solve, loss: Array, gradient: Vector, nu: Number, m: Number, first: Array
) -> Solve:
    """Take up loss and subgradient at `solve.u`; `first` marks the first evaluation."""
    x, u = solve.centre, solve.u
    d = u - x
    s = gradient + nu * d
    value = loss + nu / 2 * squared_norm(d)  # c(u)
    h = value + m / 2 * squared_norm(d)
    better = h < solve.upper
    best = solve.best.map(lambda old, new: jnp.where(better, new, old), u)

    # The lower bound along (1 - w)(a0, a) + w (cut) is a parabola; h(u) - (bound) is its slope.
    change = s - solve.a
    length = squared_norm(change)
    slope = h - (solve.a0 - squared_norm(solve.a) / (2 * m))
    w = jnp.clip(m * slope / jnp.where(length > 0, length, 1.0), 0.0, 1.0)
    w = jnp.where(first, 1.0, w)
    a0 = (1 - w) * solve.a0 + w * (value - inner(s, d))
    a = solve.a + w * change
    lower = jnp.maximum(solve.lower, a0 - squared_norm(a) / (2 * m))
    return Solve(x, x - a / m, a0, a, best, jnp.minimum(h, solve.upper), lower)


def inner(x: Vector, y: Vector) -> jax.Array:
    """<x, y>."""
    products = jax.tree.map(jnp.vdot, x, y)
    return jnp.sum(jnp.stack(jax.tree.leaves(products)))
