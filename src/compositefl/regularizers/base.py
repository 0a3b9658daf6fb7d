"""The contract of a regulariser phi: value, prox, weak-convexity modulus.

Every regulariser works on any pytree of arrays, in float32 and float64, under jit and vmap, and
its weights are pytree leaves.
"""

from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp

from compositefl.core.errors import CompositeFLError, is_concrete
from compositefl.core.trees import named_leaves

Number: TypeAlias = float | jax.Array


def as_float(leaf: Any) -> jax.Array:
    """The leaf as an array of its own floating type (whole numbers become floats)."""
    return jnp.asarray(leaf, jnp.result_type(leaf, float))


class Regularizer:
    """phi in psi(x) = f(x) + phi(x), with prox_t(z) = argmin_u phi(u) + ||u - z||^2 / (2 t).

    A separable or leaf-wise regulariser defines `leaf_value` and `leaf_prox`; one that couples all
    entries overrides `value` and `prox`. `prox(z, 0)` is z (for an indicator: the projection).
    """

    convex: ClassVar[bool] = True
    indicator: ClassVar[bool] = False  # phi takes the values 0 and infinity only
    constrains: ClassVar[bool] = False  # phi is infinite somewhere
    is_separable: ClassVar[bool] = False  # phi is a sum over single entries

    @property
    def rho(self) -> Any:
        """Weak-convexity modulus: phi + (rho/2)||x||^2 is convex. 0 for a convex phi."""
        return 0.0

    @property
    def max_prox(self) -> Any:
        """prox_t is single-valued for t below this (1/rho)."""
        rho = self.rho
        if is_concrete(rho):  # in Python's precision: float32 would let t = 1/rho through
            return 1.0 / rho if rho > 0 else float("inf")
        return jnp.where(rho > 0, 1.0 / jnp.where(rho > 0, rho, 1.0), jnp.inf)

    def value(self, x: Any) -> Any:
        """phi(x), a scalar."""
        self.check_tree(x)
        return sum((self.leaf_value(as_float(leaf)) for leaf in jax.tree.leaves(x)), 0.0)

    def prox(self, z: Any, t: Any) -> Any:
        """prox_t(z), a pytree like z."""
        self.check_tree(z)
        return jax.tree.map(lambda leaf: self.leaf_prox(as_float(leaf), t), z)

    def support(self, x: Any) -> Any:
        """Where x is not zero, a pytree of booleans."""
        return jax.tree.map(lambda leaf: as_float(leaf) != 0, x)

    def leaf_value(self, x: jax.Array) -> jax.Array:
        raise NotImplementedError

    def leaf_prox(self, z: jax.Array, t: Any) -> jax.Array:
        raise NotImplementedError

    def leaf_problem(self, shape: tuple[int, ...]) -> str | None:
        """What is wrong with a leaf of this shape, or None."""
        return None

    def check_tree(self, x: Any) -> None:
        """Refuse, with a clear error, a pytree whose shapes this regulariser cannot take."""
        for name, leaf in named_leaves(x):
            problem = self.leaf_problem(jnp.shape(leaf))
            if problem:
                where = f"leaf '{name}'" if name else "the array"
                raise CompositeFLError(
                    f"{type(self).__name__}: {where} of shape {jnp.shape(leaf)} {problem}; "
                    "use ByName to give leaves different regularizers"
                )

    def check_prox(self, name: str, t: Any) -> None:
        """Refuse a prox parameter outside (0, 1/rho)."""
        limit = self.max_prox
        if not is_concrete(t) or isinstance(limit, jax.core.Tracer):
            return
        limit = float(jnp.min(limit)) if isinstance(limit, jax.Array) else float(limit)
        if not 0 < t < limit:
            allowed = "> 0" if limit == float("inf") else f"in (0, 1/rho) = (0, {limit:.6g})"
            raise CompositeFLError(f"{name}={t} must be {allowed} for {self!r}")
