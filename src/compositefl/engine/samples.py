"""Clients' samples as arrays that an engine can put on a device."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import jax
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.trees import floats_to
from compositefl.core.types import Array, Batch, DType
from compositefl.problem import OnDemand, Problem, RowClients, Stacked

ALIGNMENT = 64  # bytes: JAX takes over memory that begins at a multiple of it
PIECE = 2**16  # samples copied at once
Owner: TypeAlias = Callable[[int], str]  # whose a row is, for errors


def gather(
    problem: Problem, clients: Sequence[int] | np.ndarray, length: int, dtype: DType
) -> Batch:
    """The samples of some clients one after the other, zero-padded to `length` rows.

    Numbers that do not fit the types of a run are refused.
    """
    if isinstance(problem.clients, OnDemand):
        first = problem.clients.like
    else:
        first = problem.clients[clients[0] if len(clients) else 0]
    leaves, structure = jax.tree.flatten(first)
    out = []
    for leaf in map(np.asarray, leaves):
        kind = dtype if np.issubdtype(leaf.dtype, np.floating) else leaf.dtype
        out.append(_aligned_zeros((length, *leaf.shape[1:]), kind))
    owner = _by_row(problem, clients)
    if isinstance(problem.clients, RowClients):
        rows = problem.clients.rows(np.asarray(clients, int))
        for target, leaf in zip(out, jax.tree.leaves(problem.clients.data), strict=True):
            for at in range(0, len(rows), PIECE):  # a copy of all at once would be a second one
                some = leaf[rows[at : at + PIECE]]
                with np.errstate(over="raise"):
                    _copy(target, at, some, owner)
    else:
        at, together = 0, PIECE if isinstance(problem.clients, list) else 1
        for begin in range(0, len(clients), together):
            batches = [problem.clients[client] for client in clients[begin : begin + together]]
            with np.errstate(over="raise"):  # not while a function of the user's makes a batch
                for batch in batches:
                    leaves = jax.tree.leaves(batch)
                    for target, leaf in zip(out, leaves, strict=True):
                        _copy(target, at, leaf, owner)
                    at += len(leaves[0])
    for target in out:
        _check_whole(problem, target, dtype, owner)
    return jax.tree.unflatten(structure, out)


def all_samples(problem: Problem, dtype: DType) -> Batch:
    """The samples of all clients in their order; what lies so already is not copied."""
    clients = problem.clients
    if not isinstance(clients, Stacked):
        return gather(problem, np.arange(len(clients)), int(problem.sizes.sum()), dtype)
    return _converted(problem, clients.data, dtype, _by_row(problem, range(len(clients))))


def converted_test(problem: Problem, dtype: DType) -> Batch:
    """The test set in the types of a run."""
    return _converted(problem, problem.test, dtype, lambda _: "the test set")


def _converted(problem: Problem, batch: Batch, dtype: DType, owner: Owner) -> Batch:
    def one(leaf: Array) -> np.ndarray:
        _check_whole(problem, leaf, dtype, owner)
        try:
            with np.errstate(over="raise"):
                return floats_to(dtype, leaf)
        except FloatingPointError:
            raise _too_large(leaf, f"numbers beyond {np.dtype(dtype)}", owner) from None

    return jax.tree.map(one, batch)


def _by_row(problem: Problem, clients: Sequence[int] | np.ndarray) -> Owner:
    """Whose rows are those of these clients, one after the other."""

    def owner(row: int) -> str:
        ends = np.cumsum(problem.sizes[np.asarray(clients, int)])
        return f"client {clients[int(np.searchsorted(ends, row, side='right'))]}"

    return owner


def _copy(target: np.ndarray, at: int, values: Array, owner: Owner) -> None:
    """Write rows from `at` on. The copy itself tells what overflows: data are read once."""
    try:
        target[at : at + len(values)] = values
    except FloatingPointError:
        beyond = f"numbers beyond {target.dtype}"
        raise _too_large(values, beyond, lambda row: owner(at + row)) from None


def _check_whole(problem: Problem, values: Array, dtype: DType, owner: Owner) -> None:
    """Refuse whole numbers that JAX, which has 32 bits beside float32, would take modulo 2^32."""
    kind = np.asarray(values).dtype
    wide = kind.kind in "iu" and kind.itemsize > 4 and np.dtype(dtype).itemsize < 8
    if not (wide and problem.compiles and np.size(values)):
        return
    limits = np.iinfo(f"{kind.kind}4")
    if np.max(values) > limits.max or np.min(values) < limits.min:
        raise _too_large(values, f"whole numbers beyond {limits.dtype}", owner)


def _too_large(values: Array, what: str, owner: Owner) -> CompositeFLError:
    flat = np.asarray(values).reshape(-1)
    place = max(int(flat.argmax()), int(flat.argmin()), key=lambda i: abs(float(flat[i])))
    row = place // (flat.size // len(values))
    return CompositeFLError(
        f"{owner(row)} has {what} (largest {float(flat[place]):g}); scale the columns, or use "
        "dtype='float64'"
    )


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
