"""Clients' private states outside the devices: rows that are read and written for participants.

In memory, or in a file for states that no memory holds. In both they may be kept in a shorter type
than they are computed in.
"""

import json
import os
import secrets
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

import jax
import ml_dtypes
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import ClientState, DType
from compositefl.core.vector import unwrap
from compositefl.simulation.program import RunState

HEADER = 4096  # bytes before the first row
KIND = "compositefl client states 1"
UNTOUCHED = -1  # the slot of a client that has never taken part


class Seal(TypedDict, total=False):
    """What a checkpoint says of states that are not in it; nothing where there are none."""

    id: str  # of their file
    generation: int  # of the checkpoint: which one of this file


def kept_type(name: str | None, dtype: DType) -> np.dtype:
    """The type in which states are kept: the run's own, or the one named."""
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name or dtype)


class SelfContained:
    """An engine whose `state` holds everything: it does not mind who keeps what."""

    def hold(self, states: Sequence[RunState]) -> None:
        """Of all that `state` gave, these may still be restored."""

    def seal(self) -> Seal:
        """What a checkpoint must say of states that are not in it."""
        return {}

    def commit(self) -> None:
        """The checkpoint is there."""

    def resume(self, seal: Seal) -> None:
        """Go on from a checkpoint with this seal, after `hold` and `restore`."""

    def release(self) -> None:
        """The run is over: others may go on with what it wrote."""


class Row(NamedTuple):
    """What one client's state is made of."""

    structure: jax.tree_util.PyTreeDef
    shapes: list[tuple[int, ...]]
    computed: list[np.dtype]
    kept: list[np.dtype]

    @classmethod
    def of(cls, state: ClientState, kept: np.dtype) -> "Row":
        """That of a state; its floating-point numbers are kept as `kept`."""
        leaves, structure = jax.tree.flatten(state)
        types = [np.dtype(a.dtype) for a in leaves]
        short = [kept if np.issubdtype(t, np.floating) else t for t in types]
        return cls(structure, [np.shape(a) for a in leaves], types, short)

    @property
    def bytes(self) -> int:
        """Of one client."""
        sizes = zip(self.shapes, self.kept, strict=True)
        return sum(int(np.prod(shape)) * kind.itemsize for shape, kind in sizes)

    def short(self, state: ClientState) -> list[np.ndarray]:
        """The arrays of some clients' states in the types in which they are kept."""
        leaves = zip(jax.tree.leaves(state), self.kept, strict=True)
        return [np.asarray(a).astype(kind, order="C", copy=False) for a, kind in leaves]

    def full(self, arrays: Sequence[np.ndarray]) -> ClientState:
        """The states of some clients in the types in which they are computed."""
        pairs = zip(arrays, self.computed, strict=True)
        return jax.tree.unflatten(self.structure, [a.astype(k, copy=False) for a, k in pairs])


class MemoryStates:
    """The states of all clients of several runs in arrays."""

    def __init__(self, clients: int, kept: np.dtype):
        self.clients, self.kept = clients, kept

    def begin(self, starts: Sequence[ClientState]) -> None:
        """Every client stands at the start of its run."""
        self.row = Row.of(starts[0], self.kept)
        self.runs = [
            [np.broadcast_to(a, (self.clients, *a.shape)).copy() for a in self.row.short(start)]
            for start in starts
        ]

    def read(self, run: int, who: np.ndarray) -> ClientState:
        """The states of some clients, in this order."""
        return self.row.full([a[who] for a in self.runs[run]])

    def write(self, run: int, who: np.ndarray, states: ClientState) -> None:
        """New states of clients, no two alike."""
        for array, new in zip(self.runs[run], self.row.short(states), strict=True):
            array[who] = new

    def snapshot(self) -> ClientState:
        """All states, the run in front; `restore` takes them back."""
        whole = [self.row.full([a.copy() for a in arrays]) for arrays in self.runs]
        return jax.tree.map(lambda *a: np.stack(a), *whole)

    def restore(self, states: ClientState) -> None:
        """Go back to what `snapshot` gave."""
        for run, arrays in enumerate(self.runs):
            mine = self.row.short(jax.tree.map(lambda a, run=run: a[run], states))
            for array, new in zip(arrays, mine, strict=True):
                array[...] = new


class DiskStates:
    """The states of all clients of several runs in a file.

    A client that has never taken part has no place in the file. A row that a checkpoint, or a state
    kept for later, speaks of is never overwritten: the new one goes to a free slot. So what says
    where the rows are, a small table, is all that a checkpoint needs besides the file, and a crash
    at any time leaves the last one whole.

    path: of the file; None for one that vanishes with its last user. fresh: what is there is of no
    use; else `resume` goes on with it.
    """

    def __init__(self, clients: int, kept: np.dtype, path: Path | None = None, fresh: bool = True):
        self.clients, self.kept, self.path = clients, kept, path
        self.id, self.generation = secrets.token_hex(8), 0
        self.held: list[np.ndarray] = []  # tables of states that somebody may go back to
        self.saved: list[np.ndarray] = []  # tables of the last checkpoint
        if path is None:
            self.file: FileIO = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            self.file = path.open("r+b", buffering=0)
            _lock(self.file, path)
            if fresh:
                self.file.truncate(0)
        weakref.finalize(self, self.file.close)  # Python warns of files that it has to close itself

    def begin(self, starts: Sequence[ClientState]) -> None:
        """Every client stands at the start of its run."""
        self.row = Row.of(starts[0], self.kept)
        self.starts = [self.row.short(start) for start in starts]
        self.table = np.full((len(starts), self.clients), UNTOUCHED, np.int64)
        self.collect()

    def read(self, run: int, who: np.ndarray) -> ClientState:
        """The states of some clients, in this order."""
        shapes = zip(self.row.shapes, self.row.kept, strict=True)
        arrays = [np.empty((len(who), *shape), kind) for shape, kind in shapes]
        for place, slot in enumerate(self.table[run, who].tolist()):
            if slot == UNTOUCHED:
                for array, start in zip(arrays, self.starts[run], strict=True):
                    array[place] = start
                continue
            self._go_to(slot)
            for array in arrays:
                rest = _bytes(array[place : place + 1])
                while len(rest):
                    count = self.file.readinto(rest)
                    if not count:
                        raise CompositeFLError(f"{self.name} ends before client {who[place]}")
                    rest = rest[count:]
        return self.row.full(arrays)

    def write(self, run: int, who: np.ndarray, states: ClientState) -> None:
        """New states of clients, no two alike."""
        arrays = self.row.short(states)
        if not self.row.bytes:
            return
        for place, client in enumerate(who.tolist()):
            slot = int(self.table[run, client])
            if slot == UNTOUCHED or self._is_kept(slot):
                slot = self._free_slot()
            self._go_to(slot)
            with self._said():
                for array in arrays:
                    rest = _bytes(array[place : place + 1])
                    while len(rest):
                        rest = rest[self.file.write(rest) :]
            self.table[run, client] = slot

    def snapshot(self) -> np.ndarray:
        """Where all rows are, the run in front; they stay until `collect` is told otherwise."""
        self.rows_kept[self.table[self.table >= 0]] = True
        return self.table.copy()

    def restore(self, table: np.ndarray) -> None:
        """Go back to what `snapshot` gave."""
        self.table = np.array(table)

    def hold(self, tables: Sequence[np.ndarray]) -> None:
        """Besides the present states and those of the checkpoint, only these are still wanted."""
        self.held = list(tables)
        self.collect()

    def collect(self) -> None:
        """Find the slots that nobody speaks of any more."""
        known = [self.table, *self.held, *self.saved]
        self.end = max(getattr(self, "end", 0), 1 + max(int(t.max()) for t in known))
        self.rows_kept = np.zeros(max(1024, 2 * self.end), bool)
        for table in known[1:]:
            self.rows_kept[table[table >= 0]] = True
        used = self.rows_kept[: self.end].copy()
        used[self.table[self.table >= 0]] = True
        self.free = np.flatnonzero(~used).tolist()

    def seal(self) -> Seal:
        """Everything written so far is on the disk; what a checkpoint must say of the file."""
        if not self.generation:
            self._write_header()
        with self._said():
            os.fsync(self.file.fileno())
        return {"id": self.id, "generation": self.generation + 1}

    def commit(self) -> None:
        """The checkpoint of what `seal` said is there: rows of the one before may be overwritten.

        Only now, and only if the file says so too: then an older checkpoint is recognised.
        """
        self.generation += 1
        self._write_header()
        self.saved = [self.table.copy(), *(t.copy() for t in self.held)]
        self.collect()

    def resume(self, seal: Seal) -> None:
        """Go on with the file of a checkpoint, after `restore` and `hold`."""
        there = self._read_header()
        if there.get("id") != seal["id"] or there.get("row") != self.row.bytes:
            raise CompositeFLError(f"{self.name} does not belong to the checkpoint beside it")
        if seal["generation"] not in (there["generation"], there["generation"] + 1):
            raise CompositeFLError(
                f"{self.name} has gone on since this checkpoint was written: rows that it speaks "
                "of have been overwritten; only the last checkpoint can be resumed"
            )
        self.id, self.generation = seal["id"], seal["generation"]
        self.saved = [self.table.copy(), *(t.copy() for t in self.held)]
        self.collect()
        if os.fstat(self.file.fileno()).st_size < HEADER + self.end * self.row.bytes:
            raise CompositeFLError(f"{self.name} is shorter than its checkpoint says")

    def release(self) -> None:
        """The run is over: another may go on with the file."""
        _unlock(self.file)

    def changed(self) -> bool:
        """Another run has gone on with the file since this one ended."""
        return self.path is not None and bool(
            self.generation and self._read_header()["generation"] != self.generation
        )

    def room(self) -> int:
        """Bytes that the file may still grow by."""
        about = os.statvfs(self.file.fileno())
        return about.f_bavail * about.f_frsize

    def views(self) -> list["StoredStates"]:
        """The states of each run, for who has the result."""
        return [StoredStates(self, run) for run in range(len(self.table))]

    @property
    def name(self) -> str:
        """Of the file, for messages."""
        return "the file of the clients' states" if self.path is None else str(self.path)

    def _go_to(self, slot: int) -> None:
        self.file.seek(HEADER + slot * self.row.bytes)

    def _is_kept(self, slot: int) -> bool:
        return bool(self.rows_kept[slot])

    def _free_slot(self) -> int:
        if self.free:
            return int(self.free.pop())
        self.end += 1
        if self.end > len(self.rows_kept):
            self.rows_kept = np.resize(self.rows_kept, 2 * self.end)
            self.rows_kept[self.end - 1 :] = False
        return self.end - 1

    def _write_header(self) -> None:
        about = {"kind": KIND, "id": self.id, "generation": self.generation, "row": self.row.bytes}
        with self._said():
            self.file.seek(0)
            self.file.write(json.dumps(about).encode().ljust(HEADER))
            os.fsync(self.file.fileno())

    def _read_header(self) -> dict[str, Any]:
        self.file.seek(0)
        with suppress(ValueError):
            about: dict[str, Any] = json.loads(self.file.read(HEADER))
            if about.get("kind") == KIND:
                return about
        raise CompositeFLError(f"{self.name} holds no client states")

    @contextmanager
    def _said(self) -> Iterator[None]:
        """A full disk in one line."""
        try:
            yield
        except OSError as error:
            raise CompositeFLError(
                f"{self.name} cannot be written: {error.strerror}; the last checkpoint is whole"
            ) from error


class StoredStates(Sequence[ClientState]):
    """The states of one run that lie in a file: [i] reads those of client i."""

    def __init__(self, store: DiskStates, run: int):
        self.store, self.run = store, run

    def __len__(self) -> int:
        return self.store.clients

    def __getitem__(self, client: int | slice) -> ClientState:
        if isinstance(client, slice):
            return [self[i] for i in range(*client.indices(len(self)))]
        if not -len(self) <= client < len(self):
            raise IndexError(client)
        if self.store.changed():
            raise CompositeFLError(f"another run has gone on with {self.store.path}")
        state = self.store.read(self.run, np.array([client % len(self)]))
        return unwrap(jax.tree.map(lambda a: a[0], state))


def _bytes(array: np.ndarray) -> memoryview:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _lock(file: FileIO, path: Path) -> None:
    """Refuse a file that another run writes; the lock ends with the file."""
    try:
        import fcntl  # not on every system
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CompositeFLError(f"{path} is in use: another run keeps its states there") from None


def _unlock(file: FileIO) -> None:
    with suppress(ImportError):
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)
