"""Clients' samples as arrays that an engine can put on a device."""

from collections.abc import Sequence

import jax
import numpy as np

from compositefl.core.types import Batch, DType
from compositefl.problem import Problem, RowClients


def gather(
    problem: Problem, clients: Sequence[int] | np.ndarray, length: int, dtype: DType
) -> Batch:
    """The samples of some clients one after the other, zero-padded to `length` rows."""
    leaves, structure = jax.tree.flatten(problem.clients[clients[0] if len(clients) else 0])
    out = []
    for leaf in map(np.asarray, leaves):
        kind = dtype if np.issubdtype(leaf.dtype, np.floating) else leaf.dtype
        out.append(_aligned_zeros((length, *leaf.shape[1:]), kind))
    if isinstance(problem.clients, RowClients):
        rows = problem.clients.rows(np.asarray(clients, int))
        for target, leaf in zip(out, jax.tree.leaves(problem.clients.data), strict=True):
            target[: len(rows)] = leaf[rows]
        return jax.tree.unflatten(structure, out)
    at = 0
    for client in clients:
        size = int(problem.sizes[client])
        for target, leaf in zip(out, jax.tree.leaves(problem.clients[client]), strict=True):
            target[at : at + size] = leaf
        at += size
    return jax.tree.unflatten(structure, out)


def _aligned_zeros(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Zeros at an address that lets JAX take the memory over instead of copying it."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 64, np.uint8)
    skip = -memory.ctypes.data % 64
    return memory[skip : skip + size].view(dtype).reshape(shape)
