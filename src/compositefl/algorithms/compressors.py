"""Compressors of uploads: ||C(v) - v||^2 <= (1 - delta) ||v||^2, on all leaves of v together."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from compositefl.core.errors import CompositeFLError, unknown_name, wrong_value
from compositefl.core.trees import tree_bytes
from compositefl.core.vector import Vector

INDEX_BYTES = 4


class Compressor:
    """What is sent instead of a vector."""

    def __call__(self, v: Vector, key: jax.Array) -> Vector:
        """C(v), in full length; `key` is for its random choices."""
        raise NotImplementedError

    def delta(self, size: int) -> float:
        """The contraction delta for vectors of `size` entries."""
        raise NotImplementedError

    def message_bytes(self, v: Vector) -> int:
        """Bytes of C(v) on the wire."""
        raise NotImplementedError


@dataclass(frozen=True)
class Identity(Compressor):
    """No compression. delta = 1."""

    def __call__(self, v: Vector, key: jax.Array) -> Vector:
        return v

    def delta(self, size: int) -> float:
        return 1.0

    def message_bytes(self, v: Vector) -> int:
        return tree_bytes(v)


@dataclass(frozen=True)
class _Sparse(Compressor):
    """Keeps k entries: a share of all (a float in (0, 1]) or their number (an int)."""

    k: float | int

    def __post_init__(self) -> None:
        share = isinstance(self.k, float) and 0 < self.k <= 1
        number = isinstance(self.k, int) and not isinstance(self.k, bool) and self.k >= 1
        if not share and not number:
            raise wrong_value("k", self.k, "a share in (0, 1] or a whole number >= 1")

    def count(self, size: int) -> int:
        """Entries kept of `size`."""
        if isinstance(self.k, float):
            return max(1, round(self.k * size))
        if self.k > size:
            raise CompositeFLError(
                f"k={self.k} entries of a model that has only {size}", parameter="k", value=self.k
            )
        return self.k

    def delta(self, size: int) -> float:
        return self.count(size) / size

    def indices(self, flat: jax.Array, key: jax.Array) -> jax.Array:
        raise NotImplementedError

    def __call__(self, v: Vector, key: jax.Array) -> Vector:
        flat, unravel = ravel_pytree(v)
        kept = self.indices(flat, key)
        sparse: Vector = unravel(jnp.zeros_like(flat).at[kept].set(flat[kept]))
        return sparse

    def message_bytes(self, v: Vector) -> int:
        """k values, in the widest type of the leaves, and k indices."""
        leaves = jax.tree.leaves(v)
        value = max(int(a.dtype.itemsize) for a in leaves)
        return self.count(sum(a.size for a in leaves)) * (value + INDEX_BYTES)


@dataclass(frozen=True)
class TopK(_Sparse):
    """The k entries of largest size. delta = k/p."""

    def indices(self, flat: jax.Array, key: jax.Array) -> jax.Array:
        return jax.lax.top_k(jnp.abs(flat), self.count(flat.size))[1]


@dataclass(frozen=True)
class RandomK(_Sparse):
    """k entries drawn uniformly without replacement, not scaled up. delta = k/p, in expectation."""

    def indices(self, flat: jax.Array, key: jax.Array) -> jax.Array:
        return jax.random.choice(key, flat.size, (self.count(flat.size),), replace=False)


COMPRESSORS: dict[str, type[Compressor]] = {
    "top-k": TopK,
    "random-k": RandomK,
    "identity": Identity,
}


def parse(text: str) -> Compressor:
    """The compressor that `text` names: "top-k:0.1" (a share), "random-k:20" or "identity"."""
    name, colon, rest = (part.strip() for part in text.partition(":"))
    if name not in COMPRESSORS:
        raise unknown_name("compressor", name, COMPRESSORS)
    if COMPRESSORS[name] is Identity:
        if colon:
            raise CompositeFLError(f"compressor '{text}' must be identity, without a number")
        return Identity()
    try:
        k = float(rest) if any(mark in rest for mark in ".e") else int(rest)
    except ValueError:
        raise CompositeFLError(f"compressor '{text}' must be {name}:k with a number k") from None
    return COMPRESSORS[name](k)  # type: ignore[call-arg]
