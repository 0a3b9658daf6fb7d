"""The subproblem of the proximal Newton method: a quadratic plus phi, to high accuracy.

    minimise over y   g.(y - x) + 1/2 (y - x)'B(y - x) + phi(y),    B positive definite,

which is the prox of phi in the metric of B, at x - B^-1 g. Where phi is a sum over single entries:
coordinate descent and semismooth Newton steps in turn. Any other phi: accelerated proximal gradient
steps with restarts. Both start at x and never let the objective rise, so what they find is better
than x also where a weakly convex phi leaves several stationary points.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from compositefl.core.types import Number, Params, PyTree
from compositefl.core.vector import Vector
from compositefl.regularizers.base import Regularizer

SWEEPS = 100  # of coordinate descent, each with a Newton step
CROSSINGS, HALVINGS = 64, 16  # points of a search along a Newton step
STEPS = 20_000  # accelerated


class Quadratic(NamedTuple):
    """The model around x, in flat coordinates."""

    phi: Regularizer
    unravel: Callable[[jax.Array], Params]  # flat coordinates -> what phi is a function of
    x: jax.Array
    g: jax.Array
    B: jax.Array

    def gradient(self, y: jax.Array) -> jax.Array:
        """Of the quadratic part."""
        return self.g + self.B @ (y - self.x)

    def value(self, y: jax.Array) -> jax.Array:
        d = y - self.x
        return jnp.vdot(self.g + 0.5 * (self.B @ d), d) + self.phi.value(self.unravel(y))

    def rounding(self, y: jax.Array) -> jax.Array:
        """How far off `value` may be: its terms may be far larger than their sum."""
        d = jnp.abs(y - self.x)
        size = jnp.vdot(jnp.abs(self.g) + 0.5 * (jnp.abs(self.B) @ d), d)
        return 10.0 * jnp.finfo(y.dtype).eps * (size + jnp.abs(self.phi.value(self.unravel(y))))

    def prox(self, z: jax.Array, t: Number) -> jax.Array:
        return ravel_pytree(self.phi.prox(self.unravel(z), t))[0]

    def tolerance(self, t: Number, y: jax.Array) -> jax.Array:
        """The residual that counts as zero: rounding leaves about eps of these sizes."""
        d = jnp.abs(y - self.x)
        size = jnp.abs(y) + t * (jnp.abs(self.g) + jnp.abs(self.B) @ d)
        return jnp.finfo(y.dtype).eps ** 0.8 * jnp.max(size / jnp.sqrt(t))


def minimize_model(phi: Regularizer, x: Vector, g: Vector, B: jax.Array) -> Vector:
    """The minimiser of the quadratic with gradient g and Hessian B at x, plus phi."""
    flat, unravel = ravel_pytree(x)
    model = Quadratic(phi, lambda y: unravel(y).tree, flat, ravel_pytree(g)[0], B)
    found: Vector = unravel(by_coordinates(model) if phi.is_separable else accelerated(model))
    return found


def by_coordinates(model: Quadratic) -> jax.Array:
    """Sweeps of coordinate descent and semismooth Newton steps, while the normal map is not zero.

    A sweep moves entry j to y_j = prox_{t_j}(z_j), z_j = y_j - t_j q_j, q the gradient and
    t_j = 1/B_jj, or 1/(2 rho) if that is less: the objective falls also where phi is weakly convex.
    Then F(z) = q(y) + (z - y)/t is in the subdifferential at y, and with P the derivatives of the
    proxes (0 at kinks, where entries stay) the Newton step is P dz, (B P + (I - P)/t) dz = -F.
    """
    B = model.B
    entries = jnp.arange(model.x.size, dtype=jnp.int32)
    t = 1.0 / jnp.maximum(jnp.diagonal(B), 2.0 * model.phi.rho)
    root = jnp.sqrt(t)

    def prox_one(j: jax.Array, z: jax.Array) -> jax.Array:
        return model.prox(jnp.full_like(model.x, z), t[j])[j]

    def sweep(y: jax.Array) -> tuple[jax.Array, jax.Array]:
        def move(
            j: jax.Array, carry: tuple[jax.Array, jax.Array, jax.Array]
        ) -> tuple[jax.Array, jax.Array, jax.Array]:
            y, z, q = carry
            new_z = y[j] - t[j] * q[j]
            new = prox_one(j, new_z)
            return y.at[j].set(new), z.at[j].set(new_z), q + B[j] * (new - y[j])

        y, z, _ = lax.fori_loop(0, y.size, move, (y, y, model.gradient(y)))
        return y, z

    def iterate(
        state: tuple[jax.Array, jax.Array, jax.Array],
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        y, count, _ = state
        y, z = sweep(y)
        F = model.gradient(y) + (z - y) / t
        P = jax.vmap(jax.grad(prox_one, argnums=1))(entries, z)
        P = jnp.where(jnp.isfinite(P), P, 0.0)
        # In units in which B has ones on its diagonal: features may come in any.
        jacobian = root[:, None] * B * (root * P) + jnp.diag(1.0 - P)
        ahead = search(model, y, -P * root * jnp.linalg.solve(jacobian, root * F))
        count, go_on = count + 1, jnp.max(root * jnp.abs(F)) > model.tolerance(t, y)
        go_on &= count < SWEEPS
        return jnp.where(go_on, ahead, y), count, go_on  # the last point is out of the proxes

    start = (model.x, jnp.int32(0), jnp.asarray(True))
    return lax.while_loop(lambda state: state[2], iterate, start)[0]


def search(model: Quadratic, y: jax.Array, s: jax.Array) -> jax.Array:
    """The best point on the way from y to y + s: where entries pass zero, at 1, 1/2, ..., or y.

    An entry that changes its sign on the way is where a full step is wrong. The prox with t = 0
    brings points back into a constraint.
    """
    s = jnp.where(jnp.isfinite(s), s, 0.0)  # of a singular system
    crossing = -y / jnp.where(s == 0, 1.0, s)
    crossing = jnp.where((crossing > 0) & (crossing < 1), crossing, 1.0)
    first = jnp.sort(crossing)[: min(y.size, CROSSINGS)]
    halves = 0.5 ** jnp.arange(HALVINGS, dtype=y.dtype)
    shares = jnp.concatenate([first, halves, jnp.zeros(1, y.dtype)])
    points = jax.vmap(lambda share: model.prox(y + share * s, 0.0))(shares)
    values = jax.vmap(model.value)(points)
    return points[jnp.argmin(jnp.where(jnp.isnan(values), jnp.inf, values))]


def accelerated(model: Quadratic) -> jax.Array:
    """Nesterov's proximal gradient steps, with restarts, while a step moves anything.

    y+ = prox_t(w - t q(w)), w = y + (momentum) (y - y before), t = 1/L with L the largest
    eigenvalue of B, or 1/(2 rho) if that is less. Where y+ is worse than y it is not taken; where
    y+ - y points against the last step (O'Donoghue and Candes 2015) only the momentum ends. Values
    alone cannot tell the last digits: they see the square root of their rounding errors.
    """
    x = model.x
    largest = jnp.linalg.eigvalsh(model.B)[-1]
    t = 1.0 / jnp.maximum(largest, 2.0 * model.phi.rho)

    def step(w: jax.Array) -> jax.Array:
        return model.prox(w - t * model.gradient(w), t)

    def iterate(state: PyTree) -> PyTree:
        y, w, k, value, count, _ = state
        new = step(w)
        new_value = model.value(new)
        worse = new_value > value + model.rounding(new)
        against = jnp.vdot(w - new, new - y) > 0
        left = jnp.max(jnp.abs(new - w)) / jnp.sqrt(t)
        ahead = new + jnp.where(against, 0.0, k / (k + 3.0)) * (new - y)
        return (
            jnp.where(worse, y, new),
            jnp.where(worse, y, ahead),
            jnp.where(worse | against, jnp.zeros_like(k), k + 1.0),
            jnp.where(worse, value, new_value),
            count + 1,
            # A plain step, from y itself, cannot be worse: what is left is out of reach.
            jnp.where(worse, k > 0, left > model.tolerance(t, new)),
        )

    y = step(x)
    zero = jnp.zeros((), x.dtype)
    start = (y, y, zero, model.value(y), jnp.int32(0), jnp.asarray(True))
    return lax.while_loop(lambda s: s[5] & (s[4] < STEPS), iterate, start)[0]


def positive_definite(H: jax.Array, damping: Number) -> tuple[jax.Array, jax.Array]:
    """H + damping D, and the damping, at least eps^(2/3): with few samples H is singular.

    D = |diag(H)|, so that units of the parameters do not matter. Where that has no Cholesky factor,
    H gets the absolute values of its eigenvalues, in the units of D.
    """
    eps = jnp.finfo(H.dtype).eps
    size = jnp.abs(jnp.diagonal(H))
    top = jnp.max(size)
    D = jnp.maximum(size, jnp.where(top > 0, eps * top, 1.0))
    damping = jnp.maximum(damping, eps ** (2 / 3)).astype(H.dtype)
    root = jnp.sqrt(D)

    def fails(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        H, fixed = state
        return jnp.any(jnp.isnan(jnp.linalg.cholesky(H + damping * jnp.diag(D)))) & ~fixed

    def fix(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        values, vectors = jnp.linalg.eigh(state[0] / root[:, None] / root)
        absolute = (vectors * jnp.abs(values)) @ vectors.T
        return root[:, None] * absolute * root, jnp.asarray(True)

    # A loop of at most one pass: under vmap a condition would compute both its branches.
    H, _ = lax.while_loop(fails, fix, (H, jnp.asarray(False)))
    return H + damping * jnp.diag(D), damping
