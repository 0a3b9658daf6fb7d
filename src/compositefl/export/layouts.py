"""Sparse layouts: CSR, and 2:4 as PyTorch's semi-structured tensors take it."""

from typing import NamedTuple

import numpy as np
from scipy import sparse

from compositefl.core.errors import CompositeFLError
from compositefl.core.trees import named_leaves
from compositefl.core.types import Array, Params

ROWS, COLUMNS = 32, 32  # multiples that the layout of the metadata asks for


def to_csr(params: Params, zeros: float = 0.5) -> dict[str, np.ndarray | sparse.csr_array]:
    """Matrices with at least this share of zeros as SciPy's CSR arrays, others as they are.

    A kernel of more than two axes becomes a matrix (everything else, outputs).
    """
    out: dict[str, np.ndarray | sparse.csr_array] = {}
    for name, leaf in named_leaves(params):
        array = np.asarray(leaf)
        matrix = array.reshape(-1, array.shape[-1]) if array.ndim > 1 else array
        fits = array.ndim > 1 and np.mean(array == 0) >= zeros
        out[name] = sparse.csr_array(matrix) if fits else array
    return out


class TwoFourPacked(NamedTuple):
    """A matrix (m, k) with at most two nonzeros in each group of four along k.

    With torch: SparseSemiStructuredTensorCUTLASS(shape, packed=values, meta=metadata, ...).
    """

    values: np.ndarray  # (m, k / 2) float16, the two kept numbers of each group
    metadata: np.ndarray  # (m, k / 16) int16, their places, in CUTLASS's order
    shape: tuple[int, int]


def pack_two_four(matrix: Array) -> TwoFourPacked:
    """Half the numbers and where they stand, for the sparse tensor cores.

    matrix: the weight (outputs, inputs) of a PyTorch layer, m and k multiples of 32. A group's
    two places are four bits, i0 + 4 i1 with i0 < i1; four groups make a number of the metadata.
    """
    dense = np.asarray(matrix)
    if dense.ndim != 2 or dense.shape[0] % ROWS or dense.shape[1] % COLUMNS:
        raise CompositeFLError(
            f"shape {dense.shape} must be (m, k), m a multiple of {ROWS} and k of {COLUMNS}"
        )
    m, k = dense.shape
    groups = dense.reshape(m, k // 4, 4)
    full = np.count_nonzero(groups, axis=-1)
    if full.max(initial=0) > 2:
        row, group = np.argwhere(full > 2)[0]
        raise CompositeFLError(
            f"row {row}, columns {4 * group} to {4 * group + 3}: more than two are not zero"
        )
    # The nonzeros, then zeros from the left; in rising order.
    order = np.argsort(groups == 0, axis=-1, kind="stable")[..., :2]
    places = np.sort(order, axis=-1)
    values = np.take_along_axis(groups, places, axis=-1).reshape(m, k // 2)
    bits = (places[..., 0] | (places[..., 1] << 2)).reshape(m, k // 16, 4)
    numbers = (bits << np.array([0, 4, 8, 12])).sum(axis=-1).astype(np.uint16).view(np.int16)
    metadata = np.empty(numbers.size, np.int16)
    metadata[_order(m, k // 16)] = numbers.ravel()
    return TwoFourPacked(values.astype(np.float16), metadata.reshape(m, k // 16), (m, k))


def _order(rows: int, columns: int) -> np.ndarray:
    """Where CUTLASS keeps each number: rows of a block of 32 interwoven, 2x2 blocks transposed,
    pairs of columns one after the other."""
    r, c = np.indices((rows, columns))
    r = r // 32 * 32 + (r % 8) * 4 + (r % 32) // 8
    swap = (r % 2 == 0) & (c % 2 == 1)
    back = (r % 2 == 1) & (c % 2 == 0)
    r, c = r + swap - back.astype(int), c - swap + back.astype(int)
    return (c // 2 * rows * 2 + r * 2 + c % 2).ravel()
