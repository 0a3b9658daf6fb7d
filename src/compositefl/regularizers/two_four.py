"""2:4 sparsity: at most two nonzeros in every four, the pattern that sparse tensor cores run."""

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.core.component import component
from compositefl.core.types import Number
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.operators import cast_like

State: TypeAlias = tuple[list[jax.Array], jax.Array, jax.Array]  # w, whether it moved, sweeps
MAX_SWEEPS = 500  # below 1/rho fifty are enough; far above it a few groups crawl


def pairs(w: Sequence[jax.Array]) -> jax.Array:
    """The sum of the products of two different entries of w (three arrays)."""
    return w[0] * (w[1] + w[2]) + w[1] * w[2]


def triples(w: Sequence[jax.Array]) -> jax.Array:
    """The sum of the products of three different entries of w (four arrays)."""
    return w[0] * pairs(w[1:]) + w[1] * w[2] * w[3]


def descend(u: list[jax.Array], s: jax.Array, free: int) -> list[jax.Array]:
    """Minimise 1/2 ||w - u||^2 + s triples(w) over w >= 0, only the first `free` entries not 0.

    Cyclic coordinate descent, all groups at once, until no entry moves. It starts where all free
    entries are equal and their mean is stationary: from w = 0 the first entries would grow so
    large that the others can never leave 0, and a lower minimum is missed when s is large.
    """
    eps = jnp.finfo(u[0].dtype).eps
    mean = sum(u[:free]) / free
    equal = 2 * mean / (1 + jnp.sqrt(1 + 4 * (1 if free == 3 else 3) * s * mean))

    def sweep(state: State) -> State:
        w, _, count = state
        old = list(w)
        for j in range(free):
            w[j] = jnp.maximum(u[j] - s * pairs(w[:j] + w[j + 1 :]), 0)
        moved = [jnp.any(jnp.abs(w[j] - old[j]) > 2 * eps * u[0]) for j in range(free)]
        return w, jnp.any(jnp.stack(moved)), count + 1

    w = [equal] * free + [jnp.zeros_like(equal)] * (4 - free)
    start = (w, jnp.asarray(True), jnp.asarray(0))
    return jax.lax.while_loop(lambda s: s[1] & (s[2] < MAX_SWEEPS), sweep, start)[0]


@component
class TwoFour(Regularizer):
    """phi(x) = weight * sum over groups of |w1 w2 w3| + |w2 w3 w4| + |w3 w4 w1| + |w4 w1 w2|.

    A group is four consecutive entries along the last axis; phi is 0 iff each has at most two
    nonzeros. prox_t(z), per group, with u = |z| in falling order, is the best of three candidates:
    the minimiser over all four entries, that over the three largest, and (u1, u2, 0, 0); the first
    two by coordinate descent w_j <- max(u_j - t weight e2(w without j), 0), e2 the sum of products
    of pairs. Not weakly convex on the whole space; where |x_j| <= bound,
    rho = (sqrt(13) - 1) weight bound, t < 1/rho. For larger t the result is still a minimiser, but
    it jumps as z moves.
    """

    weight: Number
    bound: Number = 1.0
    convex: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self.require_nonnegative("weight")
        self.require_positive("bound")

    @property
    def rho(self) -> Number:
        return (13**0.5 - 1) * self.weight * self.bound

    def leaf_problem(self, shape: tuple[int, ...]) -> str | None:
        good = len(shape) > 0 and shape[-1] % 4 == 0
        return None if good else "does not split into groups of 4 along its last axis"

    def leaf_value(self, x: jax.Array) -> jax.Array:
        groups = jnp.abs(x).reshape(-1, 4)
        return self.weight * jnp.sum(triples([groups[:, j] for j in range(4)]))

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        s = cast_like(t * self.weight, z)
        m = jnp.abs(z).reshape(-1, 4)
        # place[g, j, k]: entry j of group g is its k-th largest. Ranks come from comparisons and
        # not from a sort, which XLA could not fuse.
        larger = (m[:, None, :] > m[:, :, None]) | (
            (m[:, None, :] == m[:, :, None]) & np.tri(4, k=-1, dtype=bool)
        )
        place = jnp.sum(larger, axis=2)[:, :, None] == np.arange(4)
        u = list(jnp.sum(jnp.where(place, m[:, :, None], 0), axis=1).T)
        # Products of three large entries overflow. The minimiser of u/c with the weight c s is w/c,
        # exactly for a power of two c; beyond `most` a weight leaves two entries, whatever it is.
        bits = jnp.finfo(z.dtype).maxexp // 4
        exponent = jnp.where(jnp.isfinite(u[0]), jnp.maximum(jnp.frexp(u[0])[1] - bits, 0), 0)
        c, most = jnp.ldexp(jnp.ones_like(u[0]), exponent), 2.0 ** (bits - 6)
        u = [entry / c for entry in u]
        s = jnp.where(exponent > 0, jnp.minimum(s * c, most), s)

        def cost(w: list[jax.Array]) -> jax.Array:
            distance: jax.Array = sum((w[j] - u[j]) ** 2 for j in range(4)) / 2
            return distance + s * triples(w)

        # Below 1/rho the first candidate is the solution; another must be lower by more than
        # rounding, or it would replace small entries by 0.
        margin = 8 * jnp.finfo(z.dtype).eps * u[0] * u[0]
        best = descend(u, s, free=4)
        for w in (descend(u, s, free=3), [u[0], u[1], jnp.zeros_like(u[2]), jnp.zeros_like(u[3])]):
            lower = cost(w) < cost(best) - margin
            best = [jnp.where(lower, w[j], best[j]) for j in range(4)]

        best = [c * entry for entry in best]
        back = jnp.sum(jnp.where(place, jnp.stack(best, axis=1)[:, None, :], 0), axis=2)
        return jnp.sign(z) * back.reshape(z.shape)
