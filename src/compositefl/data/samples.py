"""Samples, datasets, and the two things that are done with any batch: count it, take rows of it."""

import dataclasses
from typing import NamedTuple

import jax
import numpy as np

from compositefl.core.arrays import shapes_in_words
from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Array, Batch


class Samples(NamedTuple):
    """Inputs and targets. A pytree of numpy arrays whose leading axis is the samples."""

    x: np.ndarray
    y: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset in its published split."""

    name: str
    train: Samples
    test: Samples | None
    classes: int

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.train.x.shape[1:]))
        test = "no test set" if self.test is None else f"{len(self.test.y)} test"
        return (
            f"Dataset('{self.name}': {len(self.train.y)} train, {test}, "
            f"x {shape} {self.train.x.dtype}, {self.classes} classes)"
        )


def sample_count(batch: Batch) -> int:
    """The number of samples in a batch: the common leading axis of its arrays."""
    shapes = [np.shape(leaf) for leaf in jax.tree.leaves(batch)]
    lengths = {shape[0] if shape else None for shape in shapes}
    if len(lengths) != 1 or None in lengths:
        raise CompositeFLError(
            "a batch needs arrays that share their leading axis, the samples; "
            f"got {shapes_in_words(shapes)}"
        )
    return lengths.pop()  # type: ignore[return-value]


def take(batch: Batch, indices: Array | slice) -> Batch:
    """The samples `indices` (an integer array, a slice or a mask) of a batch, in that order."""
    return jax.tree.map(lambda leaf: leaf[indices], batch)
