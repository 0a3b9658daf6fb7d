"""Pytrees that add, subtract and scale like vectors, so that equations read as in the papers."""

import operator
from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
from jax.tree_util import GetAttrKey

from compositefl.core.types import Array, PyTree


@jax.tree_util.register_pytree_with_keys_class
class Vector:
    """A pytree of arrays with vector arithmetic.

    `a - eta * (g + c)` acts leaf by leaf. Scalars (numbers or 0-d arrays) may multiply and divide;
    sums need two vectors of the same structure.
    """

    __slots__ = ("tree",)
    __array_ufunc__ = None  # numpy scalars leave `scalar * vector` to us

    def __init__(self, tree: PyTree):
        self.tree = tree

    def map(self, function: Callable[..., Array], *others: "Vector") -> "Vector":
        """Apply `function` to each leaf (and the matching leaves of `others`)."""
        return Vector(jax.tree.map(function, self.tree, *(o.tree for o in others)))

    def __add__(self, other: "Vector") -> "Vector":
        if not isinstance(other, Vector):
            return NotImplemented
        return self.map(operator.add, other)

    def __sub__(self, other: "Vector") -> "Vector":
        if not isinstance(other, Vector):
            return NotImplemented
        return self.map(operator.sub, other)

    def __mul__(self, scalar: Array) -> "Vector":
        return self.map(lambda leaf: leaf * scalar)

    __rmul__ = __mul__

    def __truediv__(self, scalar: Array) -> "Vector":
        return self.map(lambda leaf: leaf / scalar)

    def __neg__(self) -> "Vector":
        return self.map(operator.neg)

    def zeros(self) -> "Vector":
        """The zero vector of the same structure."""
        return self.map(lambda leaf: jnp.zeros_like(leaf))

    def __repr__(self) -> str:
        return f"Vector({self.tree!r})"

    def tree_flatten_with_keys(self) -> tuple[tuple[tuple[GetAttrKey, PyTree]], None]:
        """For JAX: the one child, and that it is called `tree`."""
        return ((GetAttrKey("tree"), self.tree),), None

    @classmethod
    def tree_unflatten(cls, _: None, children: Iterable[PyTree]) -> "Vector":
        """For JAX: the vector of one child."""
        return cls(*children)


def dot(a: Vector, b: Vector) -> jax.Array:
    """The sum of the products of all entries."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return jnp.sum(jnp.stack([jnp.vdot(*pair) for pair in pairs]))


def squared_norm(x: Vector) -> jax.Array:
    """||x||^2."""
    return dot(x, x)


def unwrap(state: PyTree) -> PyTree:
    """Replace every Vector inside `state` by its plain pytree."""

    def is_vector(leaf: object) -> bool:
        return isinstance(leaf, Vector)

    return jax.tree.map(lambda v: v.tree if is_vector(v) else v, state, is_leaf=is_vector)
