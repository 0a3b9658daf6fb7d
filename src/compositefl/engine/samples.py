"""Clients' samples as arrays that an engine can put on a device."""

from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

from compositefl.core.trees import floats_to
from compositefl.core.types import Batch, DType
from compositefl.problem import OnDemand, Problem, RowClients, Stacked

ALIGNMENT = 64  # bytes: JAX takes over memory that begins at a multiple of it
PIECE = 2**16  # samples copied at once


def gather(
    problem: Problem, clients: Sequence[int] | np.ndarray, length: int, dtype: DType
) -> Batch:
    """The samples of some clients one after the other, zero-padded to `length` rows."""
    if isinstance(problem.clients, OnDemand):
        first = problem.clients.like
    else:
        first = problem.clients[clients[0] if len(clients) else 0]
    leaves, structure = jax.tree.flatten(first)
    out = []
    for leaf in map(np.asarray, leaves):
        kind = dtype if np.issubdtype(leaf.dtype, np.floating) else leaf.dtype
        out.append(_aligned_zeros((length, *leaf.shape[1:]), kind))
    if isinstance(problem.clients, RowClients):
        rows = problem.clients.rows(np.asarray(clients, int))
        for target, leaf in zip(out, jax.tree.leaves(problem.clients.data), strict=True):
            for at in range(0, len(rows), PIECE):  # a copy of all at once would be a second one
                some = rows[at : at + PIECE]
                target[at : at + len(some)] = leaf[some]
        return jax.tree.unflatten(structure, out)
    at = 0
    for client in clients:
        size = int(problem.sizes[client])
        for target, leaf in zip(out, jax.tree.leaves(problem.clients[client]), strict=True):
            target[at : at + size] = leaf
        at += size
    return jax.tree.unflatten(structure, out)


def all_samples(problem: Problem, dtype: DType) -> Batch:
    """The samples of all clients in their order; what lies so already is not copied."""
    clients = problem.clients
    if not isinstance(clients, Stacked):
        return gather(problem, np.arange(len(clients)), int(problem.sizes.sum()), dtype)
    return jax.tree.map(partial(floats_to, dtype), clients.data)


def aligned(array: np.ndarray) -> np.ndarray:
    """The array, or a copy of it, at an address that lets JAX take its memory over."""
    if array.ctypes.data % ALIGNMENT == 0 and array.flags.c_contiguous:
        return array
    out = _aligned_zeros(array.shape, array.dtype)
    out[...] = array
    return out


def _aligned_zeros(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Zeros at an address that lets JAX take the memory over instead of copying it."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    skip = -memory.ctypes.data % ALIGNMENT
    return memory[skip : skip + size].view(dtype).reshape(shape)
