"""What several rooms need of pytrees: names, sizes, types, weighted means."""

from collections.abc import Sequence

import jax
import numpy as np

from compositefl.core.types import Array, DType, Number, PyTree
from compositefl.core.vector import unwrap


def named_leaves(tree: PyTree) -> list[tuple[str, Array]]:
    """The leaves with their path names, such as "dense0/kernel"."""
    leaves = jax.tree_util.tree_leaves_with_path(unwrap(tree))
    return [(jax.tree_util.keystr(p, simple=True, separator="/"), leaf) for p, leaf in leaves]


def tree_bytes(tree: PyTree) -> int:
    """Bytes of all arrays, from their shapes."""
    return sum(int(np.prod(a.shape)) * np.dtype(a.dtype).itemsize for a in jax.tree.leaves(tree))


def floats_to(dtype: DType, values: Array) -> np.ndarray:
    """A NumPy array with its floating-point numbers in the type of a run; others stay."""
    array: np.ndarray = np.asarray(values)
    return array.astype(dtype, copy=False) if np.issubdtype(array.dtype, np.floating) else array


def as_numbers(dtype: DType, *values: Array) -> np.ndarray:
    """Hyper-parameters of several runs as one array: whole numbers as int32, others as `dtype`."""
    whole = all(isinstance(v, (int, np.integer)) for v in values)
    return np.asarray(values, np.int32 if whole else dtype)


def as_number(dtype: DType, value: Array) -> np.ndarray:
    """A hyper-parameter as an array: a whole number as int32, any other as `dtype`."""
    number: np.ndarray = as_numbers(dtype, value)[0]
    return number


class WeightedMean:
    """sum w_i tree_i / sum w_i, added one after the other."""

    def __init__(self) -> None:
        self.total: PyTree = None
        self.weight = 0.0

    def add(self, weight: Number, tree: PyTree) -> None:
        """Count `tree` with this weight."""
        self._count(jax.tree.map(lambda a: a * a.dtype.type(weight), tree), float(weight))

    def add_all(self, weights: np.ndarray, trees: PyTree) -> None:
        """Count several trees, which lie along the first axis of one."""
        part = jax.tree.map(lambda a: np.einsum("i,i...->...", weights.astype(a.dtype), a), trees)
        self._count(part, float(weights.sum()))

    def _count(self, part: PyTree, weight: float) -> None:
        self.total = part if self.total is None else jax.tree.map(np.add, self.total, part)
        self.weight += weight

    def value(self) -> PyTree:
        """The mean of what was added."""
        return jax.tree.map(
            lambda a: np.asarray(a / a.dtype.type(self.weight), a.dtype), self.total
        )


def weighted_mean(trees: Sequence[PyTree], weights: Sequence[float]) -> PyTree:
    """sum w_i tree_i / sum w_i."""
    mean = WeightedMean()
    for weight, tree in zip(weights, trees, strict=True):
        mean.add(weight, tree)
    return mean.value()
