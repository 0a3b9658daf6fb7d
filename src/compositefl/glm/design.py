"""A site's features in standard units, z = (x - mean) / scale, dense or sparse.

A sparse table stays sparse: its means are subtracted from results, not from entries.
"""

from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
from scipy import sparse

Array = np.ndarray
Table: TypeAlias = Any  # features (samples, p): an array of NumPy, or CSR of SciPy
DENSE_SHARE = 0.05  # of entries that are not zero, from which on dense products are faster
PAIRS_SHARE = 0.2  # the same where the products of a row's entries can be kept
PAIRS = 2**24  # products that are kept: 200 MB
FAR = 100.0  # means in units of the scale up to which subtracting them from results is harmless
DENSE_BYTES = 2**30  # that a sparse table may take when it is made dense
ROWS = 2**15  # of a sparse table that are made dense at a time


class Design(Protocol):
    """What sums over samples need of a table."""

    def dot(self, b: Array) -> Array:
        """Z b, with b of shape (features, m)."""
        ...

    def transposed_dot(self, r: Array) -> Array:
        """Z' r, with r of shape (samples, m)."""
        ...

    def grams(self, weights: Array, columns: Array) -> Array:
        """[1 Z_c]' diag(w) [1 Z_c] for some columns of Z, with a column of ones before.

        weights: (m, samples), a row w for each matrix.
        """
        ...

    def columns(self, columns: Array) -> Array:
        """Z_c as an array."""
        ...

    def take(self, rows: Array) -> "Design":
        """Some samples."""
        ...


def standardised(x: Table, mean: Array, scale: Array) -> Design:
    """The design of a table; a column whose scale is 0 becomes zero."""
    factor = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    centre = mean * factor
    given, cells = sparse.issparse(x), max(1, x.shape[0] * x.shape[1])
    filled = x.nnz if given else np.count_nonzero(x)
    near = given or np.abs(centre).max(initial=0.0) < FAR
    if filled < PAIRS_SHARE * cells and near:
        z = sparse.csr_matrix(x, dtype=float)
        made = SparseDesign((z @ sparse.diags(factor)).tocsr(), centre)
        fits = made.keeps_pairs or cells * 8 > DENSE_BYTES
        if (given and filled < DENSE_SHARE * cells) or fits:
            return made
    if given:
        x = x.toarray()
    z = np.subtract(x, mean, dtype=float, order="F")  # by columns, which Hessians select
    z *= factor
    return DenseDesign(z)


def weighted_gram(x: Array, weight: Array) -> Array:
    """x' diag(weight) x."""
    if (weight >= 0).all():
        root = x * np.sqrt(weight)[:, None]
        return root.T @ root  # the same array twice: BLAS computes half of it
    return x.T @ (x * weight[:, None])


def pair_places(columns: Array) -> Array:
    """Where every pair of these columns is in a lower triangle, row by row."""
    high, low = np.maximum(columns[:, None], columns), np.minimum(columns[:, None], columns)
    return high * (high + 1) // 2 + low


def row_pairs(z: sparse.csr_matrix) -> sparse.csr_matrix:
    """P with P w = the lower triangle of z' diag(w) z: a row for each pair of columns."""
    counts = np.diff(z.indptr)
    pair, row, value = [], [], []
    for size in np.unique(counts[counts > 0]):
        rows = np.flatnonzero(counts == size)
        at = z.indptr[rows][:, None] + np.arange(size)
        column, entry = z.indices[at].astype(np.int64), z.data[at]
        i, j = np.tril_indices(size)
        high = np.maximum(column[:, i], column[:, j])
        pair.append((high * (high + 1) // 2 + np.minimum(column[:, i], column[:, j])).ravel())
        row.append(np.repeat(rows, len(i)))
        value.append((entry[:, i] * entry[:, j]).ravel())
    p = z.shape[1]
    shape = (p * (p + 1) // 2, z.shape[0])
    if not pair:
        return sparse.csr_matrix(shape)
    where = (np.concatenate(pair), np.concatenate(row))
    return sparse.csr_matrix((np.concatenate(value), where), shape=shape)


def with_ones(grams: Array, sums: Array, totals: Array) -> Array:
    """Gram matrices (m, p, p) with the row and column of a feature that is 1 everywhere."""
    m, p = sums.shape
    out = np.empty((m, p + 1, p + 1))
    out[:, 0, 0], out[:, 0, 1:], out[:, 1:, 0], out[:, 1:, 1:] = totals, sums, sums, grams
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

    def grams(self, weights: Array, columns: Array) -> Array:
        z = self.columns(columns)
        made = np.array([weighted_gram(z, w) for w in weights])
        return with_ones(made, weights @ z, weights.sum(axis=1))


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

    @cached_property
    def keeps_pairs(self) -> bool:
        """Whether the products of the rows' entries are few enough to be kept."""
        counts = np.diff(self.z.indptr).astype(float)
        return counts @ (counts + 1) / 2 <= PAIRS and self.z.shape[1] ** 2 <= PAIRS

    @cached_property
    def _pairs(self) -> sparse.csr_matrix:
        return row_pairs(self.z)

    def grams(self, weights: Array, columns: Array) -> Array:
        sums, centre = np.asarray(self.z.T @ weights.T).T[:, columns], self.centre[columns]
        totals = weights.sum(axis=1)
        grams = self._raw_grams(weights, columns)
        edge = centre[:, None] * sums[:, None, :]
        grams -= edge
        grams -= edge.transpose(0, 2, 1)
        grams += totals[:, None, None] * np.outer(centre, centre)
        return with_ones(grams, sums - totals[:, None] * centre, totals)

    def _raw_grams(self, weights: Array, columns: Array) -> Array:
        """Before centring."""
        if self.keeps_pairs:
            sums = self._pairs @ np.ascontiguousarray(weights.T)
            return np.ascontiguousarray(sums.T)[:, pair_places(columns)]
        out = np.zeros((len(weights), len(columns), len(columns)))
        z = self.z if len(columns) == self.z.shape[1] else self.z[:, columns].tocsr()
        thin = z.nnz < DENSE_SHARE * z.shape[0] * z.shape[1]
        for gram, weight in zip(out, weights, strict=True):
            if thin:
                gram += (z.T @ sparse.diags(weight) @ z).toarray()
                continue
            for at in range(0, z.shape[0], ROWS):
                gram += weighted_gram(z[at : at + ROWS].toarray(), weight[at : at + ROWS])
        return out
