"""Files that only their owner can read, that are never half written, and that notice damage."""

import hashlib
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from compositefl.core.errors import CompositeFLError

FOLDER, FILE, PROGRAM = 0o700, 0o600, 0o700  # what others may not even list
PRIVATE = 0o077  # the umask that leaves these rights: keys, states and logs are their owner's
SEAL = b"compositefl sealed 1\n"  # then the sha256 of the rest


class Damaged(CompositeFLError):
    """A file whose content is not what was written."""


def private_folder(path: Path) -> Path:
    """Make a folder, and those above it that are missing, for its owner alone."""
    for folder in reversed([path, *path.parents]):
        if not folder.exists():
            folder.mkdir(FOLDER, exist_ok=True)
    if stat.S_IMODE(path.stat().st_mode) != FOLDER:
        path.chmod(FOLDER)
    return path


def make_private(path: Path) -> None:
    """Take away what others may do with a folder and all that is in it."""
    for folder, _, files in os.walk(path):
        os.chmod(folder, FOLDER)
        for file in map(Path(folder).joinpath, files):
            if not file.is_symlink():
                file.chmod(PROGRAM if file.stat().st_mode & stat.S_IXUSR else FILE)


@contextmanager
def privately() -> Iterator[None]:
    """Whatever this process writes meanwhile is for its owner alone. Also decorates a function."""
    before = os.umask(PRIVATE)
    try:
        yield
    finally:
        os.umask(before)


def write_private(path: Path, data: bytes) -> None:
    """Write a file so that after a crash either the old or the new content is there."""
    part = path.with_name(path.name + ".part")
    if part.is_file() and not part.is_symlink():
        part.unlink()  # of a write that did not end: it may have other rights
    try:
        with os.fdopen(_open(part, os.O_TRUNC), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        part.unlink(missing_ok=True)
        raise
    os.replace(part, path)
    sync_folder(path.parent)


def open_private(path: Path) -> BinaryIO:
    """A file to write at its end."""
    return os.fdopen(_open(path, os.O_APPEND), "ab")


def write_sealed(path: Path, data: bytes) -> None:
    """Write a file together with the sha256 of its content."""
    write_private(path, SEAL + hashlib.sha256(data).digest() + data)


def read_sealed(path: Path, remedy: str) -> bytes:
    """The content of a sealed file; a damaged one is refused with its name and the remedy."""
    return unseal(path.read_bytes(), "/".join(path.parts[-3:]), remedy)


def unseal(content: bytes, name: str, remedy: str) -> bytes:
    """What was sealed, if not a bit of it has changed."""
    start = len(SEAL) + hashlib.sha256().digest_size
    if not content.startswith(SEAL):
        raise Damaged(f"{name} is damaged or of an earlier version: {remedy}")
    if hashlib.sha256(content[start:]).digest() != content[len(SEAL) : start]:
        raise Damaged(f"{name} is damaged, its sha256 does not fit: {remedy}")
    return content[start:]


@contextmanager
def only_one(path: Path, what: str, patience: float = 0.0) -> Iterator[None]:
    """Hold the lock in a file; refused while another holds it, in this or another process.

    patience: seconds to wait for the other to end.
    """
    import fcntl  # not on every system, and only who must be alone needs it

    end = time.monotonic() + patience
    with os.fdopen(_open(path, os.O_RDWR), "r+") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < end:
                    time.sleep(0.2)
                    continue
                holder = file.read().strip() or "unknown"
                message = f"{what} is at work already, as process {holder}"
                raise CompositeFLError(message) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


@contextmanager
def in_turn(path: Path) -> Iterator[None]:
    """Hold the lock in a file, and wait for whoever holds it."""
    import fcntl

    with os.fdopen(_open(path, os.O_RDWR), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def sync_folder(folder: Path) -> None:
    """Make renames in a folder last through a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _open(path: Path, how: int) -> int:
    write = 0 if how & os.O_RDWR else os.O_WRONLY
    return os.open(path, how | write | os.O_CREAT | os.O_CLOEXEC, FILE)
