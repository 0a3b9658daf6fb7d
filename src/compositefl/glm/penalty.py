"""What a fit pays for its coefficients, in the units in which it is solved.

Parameters are one flat vector: the intercepts, the coefficients feature by feature, and the scale
of y where the family has one. Intercepts and scale are never penalised.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Protocol

import numpy as np

from compositefl.core.types import Params
from compositefl.glm import subproblem

if TYPE_CHECKING:
    import jax

    from compositefl.regularizers.base import Regularizer

Array = np.ndarray


class Penalty(Protocol):
    """phi of a proximal Newton method."""

    def value(self, x: Array) -> float:
        """phi(x)."""
        ...

    def residual(self, x: Array, gradient: Array) -> Array:
        """How far each entry is from being stationary for f + phi, in units of the gradient."""
        ...

    def solve(self, x: Array, gradient: Array, B: Array, index: Array) -> Array:
        """argmin of g.(y - x) + 1/2 (y - x)'B(y - x) + phi(y) over y, equal to x outside index."""
        ...

    def candidates(self, x: Array, gradient: Array, share: float, most: int) -> Array:
        """Entries that may change: not zero, or with a gradient above a share of their weight.

        At most so many at zero, the strongest.
        """
        ...


@dataclass(frozen=True)
class ElasticNet:
    """sum_j l1_j |x_j| + l2_j x_j^2 / 2, lower <= x <= upper."""

    l1: Array
    l2: Array
    lower: Array
    upper: Array

    def value(self, x: Array) -> float:
        return float(self.l1 @ np.abs(x) + 0.5 * self.l2 @ x**2)

    def residual(self, x: Array, gradient: Array) -> Array:
        q = gradient + self.l2 * x
        return np.abs(subproblem.downhill(q, x, self.l1, self.lower, self.upper))

    def solve(self, x: Array, gradient: Array, B: Array, index: Array) -> Array:
        A, l2 = B, self.l2[index]
        if l2.any():
            A = B.copy()
            A[np.diag_indices_from(A)] += l2
        c = gradient[index] - B @ x[index]
        bounds = (self.lower[index], self.upper[index])
        y = x.copy()
        y[index] = subproblem.solve(A, c, self.l1[index], *bounds, x[index])
        return y

    def candidates(self, x: Array, gradient: Array, share: float, most: int) -> Array:
        active = (x != 0) | (self.l1 == 0)
        pull = np.abs(gradient + self.l2 * x)
        waiting = (pull >= share * self.l1) & (self.lower < self.upper) & ~active
        if waiting.sum() > most:
            strength = np.where(waiting, pull / np.where(self.l1 > 0, self.l1, 1.0), 0.0)
            waiting &= strength >= np.partition(strength, -most)[-most]
        return waiting | active


@dataclass(frozen=True)
class General:
    """Any regulariser of the library on the coefficients, of shape (p,) or (p, k)."""

    phi: "Regularizer"
    shape: tuple[int, ...]
    intercepts: int
    size: int  # of the whole vector

    def at(self, field: str, value: float | Array) -> "General":
        """The same with another number in a field of the regulariser."""
        return replace(self, phi=self.phi.with_fields({field: value}))

    @cached_property
    def _coefficients(self) -> slice:
        return slice(self.intercepts, self.intercepts + int(np.prod(self.shape)))

    def _tree(self, x: Array) -> dict[str, Array]:
        at = self._coefficients
        return {
            "coef": x[at].reshape(self.shape),
            "free": np.concatenate([x[: at.start], x[at.stop :]]),
        }

    @cached_property
    def _order(self) -> Array:
        """Of the entries in the tree, within the flat vector."""
        tree = self._tree(np.arange(self.size))
        return np.concatenate([tree["coef"].ravel(), tree["free"]])

    @property
    def step(self) -> float:
        """Of the natural residual: below 1/rho."""
        return min(1.0, 0.5 * float(self.phi.max_prox))

    def value(self, x: Array) -> float:
        with _double():
            return float(self.phi.value(self._tree(x)["coef"]))

    def residual(self, x: Array, gradient: Array) -> Array:
        t = self.step
        moved = x - t * gradient
        with _double():
            coef = np.asarray(self.phi.prox(self._tree(moved)["coef"], t))
        moved[self._coefficients] = coef.ravel()
        return np.abs(x - moved) / t

    def solve(self, x: Array, gradient: Array, B: Array, index: Array) -> Array:
        full = np.zeros((self.size, self.size))
        full[np.ix_(index, index)] = B
        left = np.setdiff1d(np.arange(self.size), index)  # pinned: no intercept
        full[left, left] = 1.0
        g = gradient.copy()
        g[left] = 0.0
        order = self._order
        with _double():
            y = _minimize(self.phi, self._tree(x), self._tree(g), full[np.ix_(order, order)])
            tree = {name: np.asarray(leaf) for name, leaf in y.items()}
        out = np.empty_like(x)
        out[order] = np.concatenate([tree["coef"].ravel(), tree["free"]])
        return out

    def candidates(self, x: Array, gradient: Array, share: float, most: int) -> Array:
        return np.ones(self.size, bool)


def _double() -> AbstractContextManager[object]:
    import jax

    return jax.enable_x64(True)


def _minimize(
    phi: "Regularizer", x: dict[str, Array], g: dict[str, Array], B: Array
) -> dict[str, "jax.Array"]:
    return _compiled()(phi, x, g, B)


def _compiled() -> Callable[..., dict[str, "jax.Array"]]:
    global _COMPILED
    if _COMPILED is None:
        import jax

        from compositefl.algorithms.quadratic_model import minimize_model
        from compositefl.core.vector import Vector
        from compositefl.regularizers import ByName, Zero

        def run(phi: "Regularizer", x: Params, g: Params, B: jax.Array) -> Params:
            both = ByName({"coef": phi, "free": Zero()})
            return minimize_model(both, Vector(x), Vector(g), B).tree

        _COMPILED = jax.jit(run)
    return _COMPILED


_COMPILED: Callable[..., dict[str, "jax.Array"]] | None = None
