"""Clients' batches, as a list, as rows of one batch or on demand, checked before they are used."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol, runtime_checkable

import jax
import numpy as np

from compositefl.core.arrays import Columns, as_arrays, same_columns, shapes_in_words
from compositefl.core.errors import CompositeFLError, wrong_value
from compositefl.core.types import Array, Batch

PIECE = 2**16  # samples checked at once
WHO = "the stacked clients"
TEST = "the test set"
ONE_BATCH = (
    "clients must be a list of batches, and this looks like one batch: write [(x, y)] for one "
    "client, or cfl.partition.iid((x, y), clients=10) to split it"
)


@runtime_checkable
class RowClients(Protocol):
    """Clients that are rows of one batch, so that a million of them need no loop in Python."""

    data: Batch
    sizes: np.ndarray

    def rows(self, clients: np.ndarray) -> np.ndarray:
        """The rows of `data` that these clients hold, one client after the other."""
        ...


def place(index: int, count: int) -> int:
    """An index into `count` things, counted from the end where it is negative."""
    if not -count <= index < count:
        raise IndexError(index)
    return int(index) % count


class ByNumber(Sequence[Batch]):
    """Clients of known sizes, whose batches `batch` gives one at a time."""

    sizes: np.ndarray

    def batch(self, number: int) -> Batch:
        """The samples of one client."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, client: int | slice) -> Batch:
        if isinstance(client, slice):
            return [self[i] for i in range(*client.indices(len(self)))]
        return self.batch(place(client, len(self)))


class Stacked(ByNumber):
    """Clients as one batch: client i holds rows offsets[i] to offsets[i + 1] - 1 of `data`.

    data: a pytree of arrays with the samples as leading axis. offsets: one more than clients,
    rising from 0 to the number of samples. Or sizes: the number of samples of each client.
    """

    def __init__(self, data: Batch, offsets: Array = None, *, sizes: Array = None):
        if (offsets is None) == (sizes is None):
            raise CompositeFLError("Stacked needs offsets or sizes, and not both")
        self.columns: Columns = {}
        self.data = as_arrays(same_columns(data, WHO, self.columns), WHO)
        if offsets is None:
            offsets = np.concatenate([[0], np.cumsum(np.asarray(sizes))])
        self.offsets = np.asarray(offsets)
        lengths = {np.shape(leaf)[0] if np.ndim(leaf) else -1 for leaf in jax.tree.leaves(data)}
        good = self.offsets.ndim == 1 and len(self.offsets) > 1 and self.offsets.dtype.kind in "iu"
        if not good or self.offsets[0] != 0 or {int(self.offsets[-1])} != lengths:
            raise CompositeFLError(
                f"offsets must be whole numbers from 0 to the number of samples {lengths}"
            )
        self.sizes = np.diff(self.offsets)

    def batch(self, number: int) -> Batch:
        """Rows of the one batch."""
        start, stop = self.offsets[number], self.offsets[number + 1]
        return jax.tree.map(lambda a: a[start:stop], self.data)

    def rows(self, clients: np.ndarray) -> np.ndarray:
        """The rows of some clients, one client after the other."""
        sizes = self.sizes[clients]
        ends = np.cumsum(sizes)
        return np.arange(ends[-1] if len(ends) else 0) + np.repeat(
            self.offsets[:-1][clients] - (ends - sizes), sizes
        )

    def only(self, who: np.ndarray) -> "Stacked":
        """Some of the clients."""
        rows = self.rows(who)
        return Stacked(jax.tree.map(lambda a: a[rows], self.data), sizes=self.sizes[who])

    def sample(self, most: int) -> "Stacked":
        """At most `most` samples of each client, a fixed random subset in their order."""
        client = np.repeat(np.arange(len(self)), self.sizes)
        drawn = np.lexsort((np.random.default_rng(0).random(len(client)), client))
        place = np.arange(len(client)) - np.repeat(self.offsets[:-1], self.sizes)
        rows = np.sort(drawn[place < most])
        return Stacked(
            jax.tree.map(lambda a: a[rows], self.data), sizes=np.minimum(self.sizes, most)
        )


class OnDemand(ByNumber):
    """Clients whose samples are read or made when they are wanted: `client(i)` is client i's batch.

    client: a function of the client's number that gives the same batch whenever it is asked. A
        round asks it for its participants alone; an evaluation asks it for every client, or for
        those of `Problem(..., eval_clients=...)`. All batches have the structure, the types and the
        shapes of client 0's, but for the number of samples.
    sizes: the number of samples of each client, known beforehand.

    What comes is checked when it comes, since nobody looks at all of them before.
    """

    def __init__(self, client: Callable[[int], Batch], sizes: Array):
        if not callable(client):
            raise wrong_value(
                "client", client, "a function of a client's number", shown=repr(client)
            )
        self.client = client
        self.sizes = np.asarray(sizes)
        if self.sizes.ndim != 1 or not self.sizes.size or self.sizes.dtype.kind not in "iu":
            raise CompositeFLError("sizes must be a list of whole numbers, one per client")
        if not np.all(self.sizes > 0):
            raise CompositeFLError(f"client {int(np.argmin(self.sizes))} has no samples")
        self.checks: tuple[Callable[[str, Batch], None], ...] = ()
        # What all batches must look like: an array without samples for each of theirs.
        self.columns: Columns = {}
        self.like = jax.tree.map(lambda a: np.asarray(a)[:0], self._given(0))

    def batch(self, number: int) -> Batch:
        """What the function gives, checked."""
        who = f"client {number}"
        batch = jax.tree.map(np.asarray, self._given(number))
        size = _check_client(number, batch, self.like)
        if size != self.sizes[number]:
            raise CompositeFLError(f"{who} has {size} samples, and sizes says {self.sizes[number]}")
        for leaf, model in zip(jax.tree.leaves(batch), jax.tree.leaves(self.like), strict=True):
            if leaf.dtype != model.dtype:
                raise CompositeFLError(f"{who} has data of type {leaf.dtype}, not {model.dtype}")
        for check in self.checks:
            check(who, batch)
        return batch

    def _given(self, number: int) -> Batch:
        """What the function gives as arrays."""
        who = f"client {number}"
        return as_arrays(same_columns(self.client(number), who, self.columns), who)

    def with_check(self, check: Callable[[str, Batch], None]) -> "OnDemand":
        """The same clients; `check` looks at each batch that comes, with its name for errors."""
        other = copy.copy(self)
        other.checks = (*self.checks, check)
        return other

    def only(self, who: np.ndarray) -> "OnDemand":
        """Some of the clients."""
        other = copy.copy(self)
        other.client, other.sizes = (lambda i: self.client(int(who[i]))), self.sizes[who]
        return other

    def sample(self, most: int) -> "OnDemand":
        """At most `most` samples of each client, a fixed random subset in their order."""
        other = copy.copy(self)
        other.sizes = np.minimum(self.sizes, most)

        def some(i: int) -> Batch:
            rows = np.sort(np.random.default_rng([0, i]).permutation(self.sizes[i])[:most])
            return jax.tree.map(lambda a: np.asarray(a)[rows], self._given(i))

        other.client = some
        return other


def tried(clients: Sequence[Batch]) -> list[int]:
    """The clients that stand for all where not all can be looked at: first, middle and last."""
    return sorted({0, len(clients) // 2, len(clients) - 1})


def pieces(clients: Sequence[Batch]) -> Iterator[tuple[str, Batch]]:
    """All samples in as few batches as there are, each with a name for errors.

    Of clients on demand some: the others are checked when they come.
    """
    if isinstance(clients, RowClients):
        yield "some client", clients.data
        return
    if isinstance(clients, OnDemand):
        for i in tried(clients):
            yield f"client {i}", clients[i]
        return
    for i, client in enumerate(clients):
        yield f"client {i}", client


def checked_data(clients: Sequence[Batch], test: Batch) -> tuple[Sequence[Batch], Batch]:
    """Clients and test set with tables as arrays, their columns in the order of the first."""
    clients, columns = checked_clients(clients)
    if test is not None:
        test = as_arrays(same_columns(test, TEST, columns), TEST)
    return clients, test


def checked_clients(clients: Sequence[Batch]) -> tuple[Sequence[Batch], Columns]:
    """A sequence of batches, tables as arrays, and the columns that these had.

    One batch in place of a list of them is refused.
    """
    if hasattr(clients, "to_numpy") or hasattr(clients, "toarray") or isinstance(clients, Mapping):
        raise CompositeFLError(ONE_BATCH, parameter="clients")
    if not hasattr(clients, "__len__") or not hasattr(clients, "__getitem__"):
        raise CompositeFLError(
            f"clients={clients!r} must be a list of batches, one per client", parameter="clients"
        )
    if len(clients) == 0:
        raise CompositeFLError("clients is empty; at least one client is needed")
    if isinstance(clients, np.ndarray | jax.Array) and clients.ndim < 3:
        raise CompositeFLError(ONE_BATCH, parameter="clients")
    if not isinstance(clients, (list, tuple)):
        # makes batches when asked, as a partition does
        return clients, dict(getattr(clients, "columns", {}))
    shapes = [np.shape(c) if hasattr(c, "shape") else None for c in clients]
    if len(shapes) == 2 and None not in shapes and all(shapes):
        x, y = shapes
        if x[0] == y[0] and x[1:] != y[1:]:  # type: ignore[index]
            raise CompositeFLError(ONE_BATCH, parameter="clients")
    columns: Columns = {}
    named = [same_columns(client, f"client {i}", columns) for i, client in enumerate(clients)]
    return [as_arrays(client, f"client {i}") for i, client in enumerate(named)], columns


def checked_sizes(clients: Sequence[Batch]) -> np.ndarray:
    """The clients' numbers of samples; refuses batches that do not look alike or are not finite."""
    if isinstance(clients, RowClients):
        for leaf in jax.tree.leaves(clients.data):
            _check_numbers("some client", leaf)
        if not np.all(clients.sizes > 0):
            raise CompositeFLError(f"client {int(np.argmin(clients.sizes))} has no samples")
        return np.asarray(clients.sizes)
    if isinstance(clients, OnDemand):
        for i in tried(clients):
            clients[i]  # is checked
        return clients.sizes
    first = clients[0]
    return np.array([_check_client(i, c, first) for i, c in enumerate(clients)])


def _check_client(i: int, client: Batch, first: Batch) -> int:
    """Refuse a batch that does not look like the first client's; returns its sample count."""
    leaves, like = jax.tree.leaves(client), jax.tree.leaves(first)
    structure, expected = str(jax.tree.structure(client)), str(jax.tree.structure(first))
    if structure != expected:
        raise CompositeFLError(f"client {i} has structure {structure}, client 0 has {expected}")
    size = _sample_count(f"client {i}", leaves)
    if size == 0:
        raise CompositeFLError(f"client {i} has no samples")
    for leaf, model in zip(leaves, like, strict=True):
        if np.shape(leaf)[1:] != np.shape(model)[1:]:
            raise CompositeFLError(
                f"client {i} has samples of shape {np.shape(leaf)[1:]}, "
                f"client 0 of {np.shape(model)[1:]}"
            )
        _check_numbers(f"client {i}", leaf)
    return size


def check_test(test: Batch) -> None:
    """Refuse a test set that is not finite."""
    leaves = jax.tree.leaves(test)
    _sample_count(TEST, leaves)
    for leaf in leaves:
        _check_numbers(TEST, leaf)


def _sample_count(who: str, leaves: list[Array]) -> int:
    sizes = {np.shape(leaf)[0] if np.ndim(leaf) else -1 for leaf in leaves}
    if len(sizes) != 1 or -1 in sizes:
        found = shapes_in_words([np.shape(leaf) for leaf in leaves])
        raise CompositeFLError(f"{who} has {found}; the leading axis must be its samples")
    return int(sizes.pop())


def _check_numbers(who: str, leaf: Array) -> None:
    kind = np.asarray(leaf).dtype
    if kind.kind in "OUS":  # of a partition
        as_arrays(leaf, who)
    if np.issubdtype(kind, np.floating) and not _is_finite(np.asarray(leaf)):
        raise CompositeFLError(f"{who} has NaN or infinity in its data")


def _is_finite(array: np.ndarray) -> bool:
    """Whether all numbers are finite, some rows at a time: a mask of all is a quarter of them."""
    return all(np.isfinite(array[i : i + PIECE]).all() for i in range(0, len(array), PIECE))
