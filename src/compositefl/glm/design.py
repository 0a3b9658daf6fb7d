"""A site's features in standard units, z = (x - mean) / scale, dense or sparse.

A sparse table stays sparse: its means are subtracted from results, not from entries.
"""

from typing import Any, Protocol

import numpy as np
from scipy import sparse

Array = np.ndarray
DENSE_SHARE = 0.05  # of entries that are not zero, from which on a sparse table is made dense
DENSE_BYTES = 2**30  # that it may take then
ROWS = 2**15  # of a sparse table that are made dense at a time


class Design(Protocol):
    """What sums over samples need of a table."""

    def dot(self, b: Array) -> Array:
        """Z b, with b of shape (features, m)."""
        ...

    def transposed_dot(self, r: Array) -> Array:
        """Z' r, with r of shape (samples, m)."""
        ...

    def gram(self, weight: Array, columns: Array) -> Array:
        """[1 Z_c]' diag(weight) [1 Z_c] for some columns of Z, with a column of ones before."""
        ...

    def columns(self, columns: Array) -> Array:
        """Z_c as an array."""
        ...

    def take(self, rows: Array) -> "Design":
        """Some samples."""
        ...


def standardised(x: Any, mean: Array, scale: Array) -> Design:
    """The design of a table; a column whose scale is 0 becomes zero."""
    safe = np.where(scale > 0, scale, 1.0)
    keep = (scale > 0).astype(float)
    if sparse.issparse(x):
        share = x.nnz / max(1, x.shape[0] * x.shape[1])
        if share < DENSE_SHARE or x.shape[0] * x.shape[1] * 8 > DENSE_BYTES:
            factor = keep / safe
            return SparseDesign((x @ sparse.diags(factor)).tocsr(), mean * factor)
        x = x.toarray()
    z = np.subtract(x, mean, dtype=float)
    z *= keep / safe
    return DenseDesign(z)


def weighted_gram(x: Array, weight: Array) -> Array:
    """x' diag(weight) x."""
    if (weight >= 0).all():
        root = x * np.sqrt(weight)[:, None]
        return root.T @ root  # the same array twice: BLAS computes half of it
    return x.T @ (x * weight[:, None])


def with_ones(gram: Array, sums: Array, total: Any) -> Array:
    """The gram matrix with the row and column of a feature that is 1 everywhere."""
    out = np.empty((len(gram) + 1, len(gram) + 1))
    out[0, 0], out[0, 1:], out[1:, 0], out[1:, 1:] = total, sums, sums, gram
    return out


class DenseDesign:
    """An array."""

    def __init__(self, z: Array):
        self.z = z

    def dot(self, b: Array) -> Array:
        return self.z @ b

    def transposed_dot(self, r: Array) -> Array:
        return self.z.T @ r

    def columns(self, columns: Array) -> Array:
        return self.z if len(columns) == self.z.shape[1] else self.z[:, columns]

    def take(self, rows: Array) -> "DenseDesign":
        return DenseDesign(self.z[rows])

    def gram(self, weight: Array, columns: Array) -> Array:
        z = self.columns(columns)
        return with_ones(weighted_gram(z, weight), weight @ z, weight.sum())


class SparseDesign:
    """Scaled entries in CSR, and the scaled means."""

    def __init__(self, z: sparse.csr_matrix, centre: Array):
        self.z, self.centre = z, centre

    def dot(self, b: Array) -> Array:
        return self.z @ b - self.centre @ b

    def transposed_dot(self, r: Array) -> Array:
        return self.z.T @ r - np.outer(self.centre, r.sum(axis=0))

    def columns(self, columns: Array) -> Array:
        return self.z[:, columns].toarray() - self.centre[columns]

    def take(self, rows: Array) -> "SparseDesign":
        return SparseDesign(self.z[rows], self.centre)

    def gram(self, weight: Array, columns: Array) -> Array:
        z = self.z if len(columns) == self.z.shape[1] else self.z[:, columns].tocsr()
        if z.nnz < DENSE_SHARE * z.shape[0] * z.shape[1]:
            gram = (z.T @ sparse.diags(weight) @ z).toarray()
        else:
            gram = np.zeros((len(columns), len(columns)))
            for at in range(0, z.shape[0], ROWS):
                gram += weighted_gram(z[at : at + ROWS].toarray(), weight[at : at + ROWS])
        sums, total = np.asarray(z.T @ weight).ravel(), weight.sum()
        centre = self.centre[columns]
        outer = np.outer(centre, sums)
        gram += total * np.outer(centre, centre) - outer - outer.T
        return with_ones(gram, sums - total * centre, total)
