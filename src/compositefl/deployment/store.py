"""State on disk: never half written, for its owner alone, and refused when it is damaged.

A site has a committed and a pending state. A round ends with a pending state beside the committed
one. The server's next message says which round of this site it accepted last. If that is the
pending one, a rename makes it the committed one; if it is the committed one, the pending state does
not count and the next round replaces it. Anything else means that the states of this site and of
the server do not belong together, and is refused.

Where numbers set themselves a run may go back. The server then names up to two earlier rounds whose
states are set aside, and one of these may be the one that counts.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeAlias

import jax
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.files import (
    Damaged,
    in_turn,
    private_folder,
    read_sealed,
    sync_folder,
    write_sealed,
)
from compositefl.core.types import ClientState, PlainValues, Upload
from compositefl.deployment.messages import Message, decode, encode, pack, unpack, value

BEFORE_FIRST = -1  # the "round" of the initial state
REMEDY = "restore it from a backup of the same round, or start a new run"


Mark: TypeAlias = tuple[int, int, int]  # what changes when a file is replaced


class Entry(NamedTuple):
    """The outcome of one round: what was sent and what the site is after it."""

    round: int
    digest: str  # of the call that led to it
    steps: int
    uploads: int  # uploads computed so far, this one included
    upload: Upload
    state: ClientState


def write_state(path: Path, values: PlainValues, arrays: Mapping[str, np.ndarray]) -> None:
    """Write plain values and arrays with their sha256; on an error the old file stands."""
    write_sealed(path, encode(values, arrays))


def read_state(path: Path) -> Message:
    """What `write_state` wrote; a damaged file is refused."""
    data = read_sealed(path, REMEDY)
    return decode(data, len(data))


class Store:
    """The two states of one site in one run, in the folder `folder`.

    initial: the private state before the first round. upload: a pytree like an upload.
    """

    def __init__(self, folder: Path, initial: ClientState, upload: Upload):
        self.folder = folder
        self.initial = initial
        self.like = (upload, initial)
        self.stateless = not jax.tree.leaves(initial)
        self.newest = BEFORE_FIRST  # round of the newest call
        self._cache: dict[Path, tuple[Mark | None, Entry]] = {}

    @property
    def committed(self) -> Entry:
        """The state that the server's state counts on."""
        found = self._read(self.folder / "committed")
        return found or Entry(BEFORE_FIRST, "", 0, 0, None, self.initial)

    @property
    def pending(self) -> Entry | None:
        """The state of a round whose upload has not been acknowledged yet."""
        return self._read(self.folder / "pending")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes of this site away, such as one that an earlier job left behind."""
        with in_turn(private_folder(self.folder) / "lock"):
            yield

    def settle(self, accepted: int, round_: int, keep: frozenset[int] | None = None) -> None:
        """Commit or roll back, given the last accepted round; a call of round `round_` follows.

        Of two files one may be damaged: the other is used where it is the one that counts.
        keep: rounds that the run may go back to; None where it never does.
        """
        if round_ < self.newest:
            raise CompositeFLError(f"a call of round {round_} came after one of {self.newest}")
        if keep is not None and not self.stateless:
            self._set_aside(keep)
            self._go_back(accepted)
        pending, broken_pending = self._try("pending")
        committed, broken = self._try("committed")
        at = None if committed is None else committed.round
        if pending is not None and pending.round == accepted != at:
            os.replace(self.folder / "pending", self.folder / "committed")
            sync_folder(self.folder)
            self._cache[self.folder / "committed"] = self._cache.pop(self.folder / "pending")
        elif broken is not None:
            raise broken
        elif broken_pending is not None and (at == accepted or self.stateless):
            (self.folder / "pending").unlink()  # it would not have counted
        elif broken_pending is not None:
            raise broken_pending
        elif at != accepted and not self.stateless:
            have = [at, *([pending.round] if pending is not None else [])]
            raise CompositeFLError(
                f"the server counts on this site's state of round {accepted}, the site has "
                f"{' and '.join(map(str, have))}; restore the folder of its state, or start a new "
                "run"
            )
        self.newest = round_

    def _set_aside(self, keep: frozenset[int]) -> None:
        """Copy the states of these rounds to files of their own, and drop other such files."""
        for path in (self.folder / "committed", self.folder / "pending"):
            entry = self._read(path)
            if entry is not None and entry.round in keep:
                aside = self._aside(entry.round)
                if not aside.exists():
                    write_sealed(aside, read_sealed(path, REMEDY))
        wanted = {self._aside(t) for t in keep}
        for path in self.folder.glob("kept-*"):
            if path not in wanted:
                path.unlink()

    def _go_back(self, accepted: int) -> None:
        """Make a state that was set aside, or the initial one, the committed one."""
        pending = self.pending
        if accepted in (self.committed.round, None if pending is None else pending.round):
            return
        path = self.folder / "committed"
        if accepted == BEFORE_FIRST:
            path.unlink()
            sync_folder(self.folder)
        elif self._aside(accepted).exists():
            write_sealed(path, read_sealed(self._aside(accepted), REMEDY))

    def _aside(self, round_: int) -> Path:
        return self.folder / f"kept-{round_}"

    def keep(self, entry: Entry) -> None:
        """Write the pending state; on an error, such as a full disk, nothing has changed."""
        values = {k: getattr(entry, k) for k in ("round", "digest", "steps", "uploads")}
        path = self.folder / "pending"
        write_state(path, values, pack("upload", entry.upload) | pack("state", entry.state))
        self._cache[path] = (_mark(path), entry)

    def _try(self, which: str) -> tuple[Entry | None, Damaged | None]:
        """One of the two states, or what is wrong with its file."""
        try:
            return (self.committed if which == "committed" else self.pending), None
        except Damaged as error:
            return None, error

    def _read(self, path: Path) -> Entry | None:
        """The entry in a file, from memory if the file has not changed."""
        mark = _mark(path)
        if mark is None:
            return None
        if path not in self._cache or self._cache[path][0] != mark:
            message = read_state(path)
            upload, state = self.like
            self._cache[path] = (
                mark,
                Entry(
                    value(message, "round", int),
                    value(message, "digest", str),
                    value(message, "steps", int),
                    value(message, "uploads", int),
                    unpack("upload", message.arrays, upload),
                    unpack("state", message.arrays, state),
                ),
            )
        return self._cache[path][1]


def _mark(path: Path) -> Mark | None:
    """The mark of a file; None if there is no file."""
    try:
        about = path.stat()
    except FileNotFoundError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size
