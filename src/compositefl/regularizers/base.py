"""The contract of a regulariser phi: value, prox, weak-convexity modulus.

Every regulariser works on any pytree of arrays, in float32 and float64, under jit and vmap, and
its weights are pytree leaves.
"""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from compositefl.errors import CompositeFLError, is_concrete


class Regularizer:
    """phi in psi(x) = f(x) + phi(x), with prox_t(z) = argmin_u phi(u) + ||u - z||^2 / (2 t).

    A separable or leaf-wise regulariser defines `leaf_value` and `leaf_prox`; one that couples all
    entries overrides `value` and `prox`. `prox(z, 0)` is z (for an indicator: the projection).
    """

    convex: ClassVar[bool] = True
    indicator: ClassVar[bool] = False  # phi takes the values 0 and infinity only

    @property
    def rho(self) -> Any:
        """Weak-convexity modulus: phi + (rho/2)||x||^2 is convex. 0 for a convex phi."""
        return 0.0

    @property
    def max_prox(self) -> Any:
        """prox_t is single-valued for t below this (1/rho)."""
        rho = self.rho
        return jnp.where(rho > 0, 1.0 / jnp.where(rho > 0, rho, 1.0), jnp.inf)

    def value(self, x: Any) -> Any:
        """phi(x), a scalar."""
        return sum(self.leaf_value(leaf) for leaf in jax.tree.leaves(x))

    def prox(self, z: Any, t: Any) -> Any:
        """prox_t(z), a pytree like z."""
        return jax.tree.map(lambda leaf: self.leaf_prox(leaf, t), z)

    def leaf_value(self, x: jax.Array) -> jax.Array:
        raise NotImplementedError

    def leaf_prox(self, z: jax.Array, t: Any) -> jax.Array:
        raise NotImplementedError

    def check_tree(self, x: Any) -> None:
        """Refuse, with a clear error, a pytree whose shapes this regulariser cannot take."""

    def check_prox(self, name: str, t: Any) -> None:
        """Refuse a prox parameter outside (0, 1/rho)."""
        if not is_concrete(t):
            return
        limit = float(self.max_prox)
        if not 0 < t < limit:
            allowed = "> 0" if limit == float("inf") else f"in (0, 1/rho) = (0, {limit:.6g})"
            raise CompositeFLError(f"{name}={t} must be {allowed} for {self!r}")
