"""Total variation of a sequence: piecewise constant solutions."""

import jax
import jax.numpy as jnp
from jax import lax

from compositefl.core.component import component
from compositefl.core.types import Number, PyTree
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.operators import cast_like


@component
class TotalVariation1D(Regularizer):
    """phi(x) = weight * sum_j |x_{j+1} - x_j|, each leaf raveled to one sequence.

    prox_t(z) has no closed form and is computed exactly, in time O(p), by dynamic programming.
    rho = 0, any t.
    """

    weight: Number

    def __post_init__(self) -> None:
        self.require_nonnegative("weight")

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return self.weight * jnp.sum(jnp.abs(jnp.diff(x.ravel())))

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        if z.size < 2:
            return z
        bound = cast_like(t * self.weight, z)
        smooth: jax.Array = taut_sequence(z.ravel(), bound).reshape(z.shape)
        return jnp.where(bound > 0, smooth, z)  # exactly z for t = 0


# A batch of scalar loops must stay a loop over instances.
@jax.custom_batching.sequential_vmap  # type: ignore[untyped-decorator]
def taut_sequence(y: jax.Array, bound: jax.Array) -> jax.Array:
    """argmin_x 1/2 ||x - y||^2 + bound * sum_k |x_{k+1} - x_k|, by Johnson's dynamic programming.

    Let D_k(b) be the derivative of the optimal cost of x_0..x_k given x_k = b. Then

        D_k(b) = clip(D_{k-1}(b), -bound, bound) + b - y_k,    D_{-1} = 0,

    is increasing and piecewise linear. Where it leaves [-bound, bound] are the two ends of step k:
    given x_{k+1}, the best x_k is x_{k+1} clipped to them. The last x is the zero of its D.

    The knots of D lie in a deque, each with the jumps of slope and intercept there. An end is
    found by walking in from one side over the knots it removes; it then becomes the outermost
    knot. A knot enters and leaves once, hence O(p). The mirror image of the walk from the left
    (side = 1) is the walk from the right (side = -1); the loop does one knot per pass.
    """
    p = y.shape[0]
    spare = 2 * p  # rows that nobody reads take the writes of passes that have none

    def put(array: jax.Array, index: jax.Array, row: jax.Array) -> jax.Array:
        return lax.dynamic_update_slice_in_dim(array, row[None], index, 0)

    def level_of(k: jax.Array, side: jax.Array) -> jax.Array:
        return jnp.where(k == p - 1, 0, -side.astype(y.dtype) * bound)

    def passes(walk: tuple[jax.Array, ...], x: jax.Array) -> jax.Array:
        """Whether the walk goes on over the knot at x.

        Part of the state, so that it is decided once. XLA computes a value anew in every kernel
        that uses it, rounded in more than one way: at a tie its kernels would disagree.
        """
        k, side, i, left, right, slope, intercept = walk
        inside = side.astype(y.dtype) * (slope * x + intercept - level_of(k, side)) <= 0
        # The walk from the right stops at the left end, which lies at `left`: with a bound lost in
        # rounding it would go over it, and on with a slope of zero.
        on: jax.Array = jnp.where(side > 0, left <= i, left < i) & (i <= right) & inside
        return on

    def iterate(state: PyTree) -> PyTree:
        k, side, i, left, right, slope, intercept, (_, slope_jump, jump), pass_knot = state[:9]
        knots, ends = state[9:]
        sign = side.astype(y.dtype)
        level = level_of(k, side)

        end = (level - intercept) / slope
        knot = jnp.stack([end, sign * slope, sign * (intercept - level)])
        knots = put(knots, jnp.where(pass_knot, spare, i - side), knot)
        ends = put(ends, jnp.where(pass_knot, spare, 2 * k + (side < 0)), end)

        from_left = side > 0
        next_k = jnp.where(from_left, k, k + 1)
        clipped = jnp.where(next_k == 0, 0, sign * bound)  # D_{-1} = 0 has nothing to clip
        on = (k, side, i + side, left, right, slope + sign * slope_jump, intercept + sign * jump)
        found = (
            next_k,
            -side,
            jnp.where(from_left, right, left),
            jnp.where(from_left, i - 1, left),
            jnp.where(from_left, right, i + 1),
            jnp.ones_like(slope),
            clipped - y[jnp.minimum(next_k, p - 1)],
        )
        walk = jax.tree.map(lambda a, b: jnp.where(pass_knot, a, b), on, found)
        # The knot of the next pass is read after the write, never before it: XLA then updates
        # the arrays in place. Otherwise it copies them every pass and the loop costs O(p^2).
        knot = knots[walk[2]]
        return (*walk, knot, passes(walk, knot[0]), knots, ends)

    def index(i: int) -> jax.Array:
        return jnp.asarray(i, jnp.int32)

    knots = jnp.zeros((2 * p + 1, 3), y.dtype)
    ends = jnp.zeros(2 * p + 1, y.dtype)
    start = (index(0), index(1), index(p), index(p), index(p - 1), jnp.ones_like(bound), -y[0])
    first = (*start, knots[0], jnp.asarray(False), knots, ends)
    state = lax.while_loop(lambda s: s[0] < p, iterate, first)
    ends = state[-1][: 2 * p].reshape(p, 2)

    def back(x: jax.Array, ends: jax.Array) -> tuple[jax.Array, jax.Array]:
        x = jnp.clip(x, ends[0], ends[1])
        return x, x

    last = ends[-1, 0]
    return jnp.append(lax.scan(back, last, ends[:-1], reverse=True)[1], last)
