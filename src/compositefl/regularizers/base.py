"""The contract of a regulariser phi: value, prox, weak-convexity modulus.

Every regulariser works on any pytree of arrays, in float32 and float64, under jit and vmap, and
its weights are pytree leaves.
"""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import ClassVar, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.core.component import is_static, replace
from compositefl.core.errors import (
    CompositeFLError,
    is_concrete,
    require_nonnegative,
    require_positive,
    wrong_value,
)
from compositefl.core.trees import named_leaves
from compositefl.core.types import Array, Number, Params, PyTree
from compositefl.regularizers import entries

R = TypeVar("R", bound="Regularizer")


def as_float(leaf: Array) -> jax.Array:
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
    # Fields that may have a number for every entry, see `entries`. `leaf_value` and `leaf_prox`
    # then find a number or an array of the leaf's shape in them.
    per_entry: ClassVar[tuple[str, ...]] = ()

    @property
    def rho(self) -> Number:
        """Weak-convexity modulus: phi + (rho/2)||x||^2 is convex. 0 for a convex phi."""
        return 0.0

    @property
    def max_prox(self) -> Number:
        """prox_t is single-valued for t below this (1/rho)."""
        rho = self.rho
        if is_concrete(rho):  # in Python's precision: float32 would let t = 1/rho through
            return 1.0 / rho if rho > 0 else float("inf")
        return jnp.where(rho > 0, 1.0 / jnp.where(rho > 0, rho, 1.0), jnp.inf)

    def value(self, x: Params) -> Number:
        """phi(x), a scalar."""
        self.check_tree(x)
        pairs = zip(self._for_leaves(x), jax.tree.leaves(x), strict=True)
        return sum((phi.leaf_value(as_float(leaf)) for phi, leaf in pairs), 0.0)

    def prox(self, z: Params, t: Number) -> Params:
        """prox_t(z), a pytree like z."""
        self.check_tree(z)
        leaves, structure = jax.tree.flatten(z)
        pairs = zip(self._for_leaves(z), leaves, strict=True)
        return jax.tree.unflatten(structure, [p.leaf_prox(as_float(leaf), t) for p, leaf in pairs])

    def support(self, x: Params) -> PyTree:
        """Where x is not zero, a pytree of booleans."""
        return jax.tree.map(lambda leaf: as_float(leaf) != 0, x)

    def leaf_value(self, x: jax.Array) -> jax.Array:
        raise NotImplementedError

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        raise NotImplementedError

    def leaf_problem(self, shape: tuple[int, ...]) -> str | None:
        """What is wrong with a leaf of this shape, or None."""
        return None

    def check_tree(self, x: Params) -> None:
        """Refuse, with a clear error, a pytree whose shapes this regulariser cannot take."""
        for name, leaf in named_leaves(x):
            problem = self.leaf_problem(jnp.shape(leaf))
            if problem:
                where = f"leaf '{name}'" if name else "the array"
                raise CompositeFLError(
                    f"{type(self).__name__}: {where} of shape {jnp.shape(leaf)} {problem}"
                    + ("; " if name else ""),
                    parameter="leaf" if name else None,
                    value=name or None,
                    remedy="leaf" if name else None,  # an array alone has no other leaves
                )

        for name in self.per_entry:
            entries.of_leaves(type(self).__name__, name, getattr(self, name), x)

    def with_fields(self: R, changes: Mapping[str, entries.Entries]) -> R:
        """A copy with other numbers in some fields.

        A number multiplies a field that has a number for every entry: those are factors, as in
        L1(np.array([1.0, 1.0, 0.0])) with an unpenalised last entry.
        """

        def new(name: str, value: entries.Entries) -> PyTree:
            old = getattr(self, name, None)
            if name not in self.per_entry or entries.is_scalar(old) or not entries.is_scalar(value):
                return value
            return jax.tree.map(lambda factor: value * factor, old)

        return replace(self, **{name: new(name, value) for name, value in changes.items()})

    def field_names(self) -> list[str]:
        """The fields that hold numbers."""
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return [field.name for field in fields if not is_static(field)]

    def has_field(self, name: str) -> bool:
        """Whether `with_fields` can set this one."""
        return name in self.field_names()

    def check_prox(self, name: str, t: Number) -> None:
        """Refuse a prox parameter outside (0, 1/rho)."""
        limit = self.max_prox
        if not is_concrete(t) or isinstance(limit, jax.core.Tracer):
            return
        limit = float(jnp.min(limit)) if isinstance(limit, jax.Array) else float(limit)
        if not 0 < t < limit:
            allowed = "> 0" if limit == float("inf") else f"in (0, 1/rho) = (0, {limit:.6g})"
            raise wrong_value(name, t, f"{allowed} for {self!r}")

    def _for_leaves(self: R, x: Params) -> list[R]:
        """For each leaf of x this regulariser with that leaf's numbers."""
        leaves = jax.tree.leaves(x)
        phis = [self] * len(leaves)
        many = [name for name in self.per_entry if not entries.is_scalar(getattr(self, name))]
        if many:
            phis = [copy.copy(self) for _ in leaves]
        for name in many:
            numbers = entries.of_leaves(type(self).__name__, name, getattr(self, name), x)
            for phi, leaf, one in zip(phis, leaves, numbers, strict=True):
                object.__setattr__(phi, name, jnp.asarray(one, as_float(leaf).dtype))
        return phis

    def _require(self, check: Callable[..., None], *names: str) -> None:
        """Check the numbers of some fields; only those `per_entry` may be arrays or pytrees."""
        for name in names:
            value = getattr(self, name)
            parts = jax.tree.leaves(value) or [value]
            if name not in self.per_entry and not entries.is_scalar(value):
                shape = f" of shape {np.shape(value)}" if entries.is_one(value) else f"={value!r}"
                raise CompositeFLError(
                    f"{type(self).__name__}: {name}{shape} must be one number; entries are not "
                    "weighed one by one here"
                )
            for part in parts:
                check(**{name: part})

    def require_positive(self, *names: str) -> None:
        """Refuse numbers in these fields that are not finite and > 0."""
        self._require(require_positive, *names)

    def require_nonnegative(self, *names: str) -> None:
        """Refuse numbers in these fields that are not finite and >= 0."""
        self._require(require_nonnegative, *names)
