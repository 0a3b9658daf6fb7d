"""MCP, SCAD, log-sum and transformed l1: sparse like l1, with little or no bias on large entries.

All four are phi(x) = sum_j penalty(|x_j|) and weakly convex. For t < 1/rho the prox of each is a
soft threshold, z - clip(z, -u, u), whose u shrinks as |z| grows; they differ in u alone. Beyond
1/rho the prox is not single-valued and the result is NaN, so that a bad t cannot pass unseen where
`check_prox` does not see it (inside jit). Numbers may be given for every entry, as for `L1`; rho is
then the largest over the entries.
"""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.core.component import component
from compositefl.core.errors import require_that
from compositefl.core.types import Array, Number
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.entries import Entries, is_traced, largest
from compositefl.regularizers.operators import cast_like, soft_threshold


def _require_above_two(a: Entries) -> None:
    if not is_traced(a):
        require_that("a", a, (np.asarray(a) > 2) & np.isfinite(a), "a finite number > 2")


class _FoldedConcave(Regularizer):
    """sum_j penalty(|x_j|), with the prox given by its threshold u = shrinkage(|z|, t)."""

    convex: ClassVar[bool] = False
    is_separable: ClassVar[bool] = True

    def penalty(self, m: jax.Array) -> Array:
        raise NotImplementedError

    def shrinkage(self, m: jax.Array, t: Number) -> Array:
        raise NotImplementedError

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return jnp.sum(self.penalty(jnp.abs(x)).astype(x.dtype))

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        t = cast_like(jnp.where(t < self.max_prox, t, jnp.nan), z)
        return soft_threshold(z, self.shrinkage(jnp.abs(z), t))


@component
class MCP(_FoldedConcave):
    """Minimax concave penalty: with l = weight, m = |x_j|,

        penalty(m) = l m - m^2 / (2 theta)  if m <= theta l,  else theta l^2 / 2.

    prox_t(z) = 0 if |z| <= t l; sign(z) (|z| - t l) / (1 - t/theta) if |z| <= theta l; else z.
    rho = 1/theta, t < theta.
    """

    weight: Entries
    theta: Entries
    per_entry = ("weight", "theta")

    def __post_init__(self) -> None:
        self.require_nonnegative("weight")
        self.require_positive("theta")

    @property
    def rho(self) -> Number:
        return largest(lambda theta: 1.0 / theta, self.theta)

    def penalty(self, m: jax.Array) -> Array:
        m = jnp.minimum(m, self.theta * self.weight)
        return self.weight * m - m * m / (2 * self.theta)

    def shrinkage(self, m: jax.Array, t: Number) -> Array:
        return t / (1 - t / self.theta) * jnp.maximum(self.weight - m / self.theta, 0)


@component
class SCAD(_FoldedConcave):
    """Smoothly clipped absolute deviation, a > 2: with l = weight, m = |x_j|,

        penalty(m) = l m if m <= l;  (2 a l m - m^2 - l^2) / (2 (a-1)) if m <= a l;
                     else l^2 (a+1) / 2.

    prox_t(z) = sign(z) max(|z| - t l, 0) if |z| <= l (1+t);
                ((a-1) z - sign(z) a t l) / (a-1-t) if |z| <= a l; else z.
    rho = 1/(a-1), t < a-1.
    """

    weight: Entries
    a: Entries = 3.7
    per_entry = ("weight", "a")

    def __post_init__(self) -> None:
        self.require_nonnegative("weight")
        self._require(_require_above_two, "a")

    @property
    def rho(self) -> Number:
        return largest(lambda a: 1.0 / (a - 1), self.a)

    def penalty(self, m: jax.Array) -> Array:
        m = jnp.minimum(m, self.a * self.weight)
        bend = jnp.maximum(m - self.weight, 0)
        return self.weight * m - bend * bend / (2 * (self.a - 1))

    def shrinkage(self, m: jax.Array, t: Number) -> Array:
        bent = t / (self.a - 1 - t) * (self.a * self.weight - m)
        return jnp.clip(bent, 0, t * self.weight)


@component
class LogSum(_FoldedConcave):
    """phi(x) = weight * sum_j log(1 + |x_j| / theta).

    prox_t(z) = 0 if m = |z| <= t weight/theta,
    else sign(z) (m - theta + sqrt((m + theta)^2 - 4 t weight)) / 2.
    rho = weight/theta^2, t < theta^2/weight.
    """

    weight: Entries
    theta: Entries
    per_entry = ("weight", "theta")

    def __post_init__(self) -> None:
        self.require_nonnegative("weight")
        self.require_positive("theta")

    @property
    def rho(self) -> Number:
        return largest(lambda weight, theta: weight / (theta * theta), self.weight, self.theta)

    def penalty(self, m: jax.Array) -> Array:
        return self.weight * jnp.log1p(m / self.theta)

    def shrinkage(self, m: jax.Array, t: Number) -> Array:
        # m minus the root, rationalised: no cancellation, and 0 for t = 0.
        s, c = m + self.theta, t * self.weight
        return 2 * c / (s + jnp.sqrt(jnp.maximum(s * s - 4 * c, 0)))


@component
class TransformedL1(_FoldedConcave):
    """phi(x) = weight * sum_j (a+1) |x_j| / (a + |x_j|), a > 0: between l0 (a -> 0) and l1.

    prox_t(z) = 0 if m = |z| <= t weight (a+1)/a, else
    sign(z) [(2/3)(a+m) cos(q/3) - 2a/3 + m/3],
    q = arccos(1 - 27 t weight a (a+1) / (2 (a+m)^3)).
    rho = 2 weight (a+1)/a^2, t < 1/rho.
    """

    weight: Entries
    a: Entries
    per_entry = ("weight", "a")

    def __post_init__(self) -> None:
        self.require_nonnegative("weight")
        self.require_positive("a")

    @property
    def rho(self) -> Number:
        return largest(lambda weight, a: 2.0 * weight * (a + 1) / (a * a), self.weight, self.a)

    def penalty(self, m: jax.Array) -> Array:
        return self.weight * (self.a + 1) * m / (self.a + m)

    def shrinkage(self, m: jax.Array, t: Number) -> Array:
        # With 1 - cos q = 2 sin^2(q/2), m minus the root is (4/3)(a+m) sin^2(q/6): exact for
        # small t, where arccos near 1 loses half the digits.
        s = self.a + m
        half = 27 * t * self.weight * self.a * (self.a + 1) / (4 * s * s * s)
        sine = jnp.sin(jnp.arcsin(jnp.sqrt(jnp.minimum(half, 1))) / 3)
        return 4 / 3 * (s * sine * sine)  # not (4/3 s), which may overflow
