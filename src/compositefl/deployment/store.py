"""A site's private state on its disk: committed and pending, never half written.

A round ends with a pending state beside the committed one. The server's next message says which
round of this site it accepted last. If that is the pending one, a rename makes it the committed
one; if it is the committed one, the pending state does not count and the next round replaces it.
Anything else means that the states of this site and of the server do not belong together, and is
refused.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import jax

from compositefl.core.errors import CompositeFLError
from compositefl.deployment.messages import decode, encode, pack, unpack, value

BEFORE_FIRST = -1  # the "round" of the initial state


class Entry(NamedTuple):
    """The outcome of one round: what was sent and what the site is after it."""

    round: int
    digest: str  # of the call that led to it
    steps: int
    uploads: int  # uploads computed so far, this one included
    upload: Any
    state: Any


class Store:
    """The two states of one site in one run, in the folder `folder`.

    initial: the private state before the first round. upload: a pytree like an upload.
    """

    def __init__(self, folder: Path, initial: Any, upload: Any):
        self.folder = folder
        self.initial = initial
        self.like = (upload, initial)
        self.stateless = not jax.tree.leaves(initial)
        self.newest = BEFORE_FIRST  # round of the newest call
        self._cache: dict[Path, tuple[Any, Entry | None]] = {}

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
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def settle(self, accepted: int, round_: int) -> None:
        """Commit or roll back, given the last accepted round; a call of round `round_` follows."""
        if round_ < self.newest:
            raise CompositeFLError(f"a call of round {round_} came after one of {self.newest}")
        pending, committed = self.pending, self.committed
        if pending is not None and pending.round == accepted != committed.round:
            os.replace(self.folder / "pending", self.folder / "committed")
            sync_folder(self.folder)
            self._cache[self.folder / "committed"] = self._cache.pop(self.folder / "pending")
        elif committed.round != accepted and not self.stateless:
            have = [committed.round, *([pending.round] if pending is not None else [])]
            raise CompositeFLError(
                f"the server counts on this site's state of round {accepted}, the site has "
                f"{' and '.join(map(str, have))}; restore the folder of its state, or start a new "
                "run"
            )
        self.newest = round_

    def keep(self, entry: Entry) -> None:
        """Write the pending state; on an error, such as a full disk, nothing has changed."""
        values = {k: getattr(entry, k) for k in ("round", "digest", "steps", "uploads")}
        arrays = pack("upload", entry.upload) | pack("state", entry.state)
        path = self.folder / "pending"
        write(path, encode(values, arrays))
        self._cache[path] = (_mark(path), entry)

    def _read(self, path: Path) -> Entry | None:
        """The entry in a file, from memory if the file has not changed."""
        mark = _mark(path)
        if mark is None:
            return None
        if path not in self._cache or self._cache[path][0] != mark:
            data = path.read_bytes()
            message = decode(data, len(data))
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


def write(path: Path, data: bytes) -> None:
    """Write a file so that after a crash either the old or the new content is there."""
    part = path.with_name(path.name + ".part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        part.unlink(missing_ok=True)
        raise
    os.replace(part, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last through a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mark(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is replaced; None if there is no file."""
    try:
        about = path.stat()
    except FileNotFoundError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size
