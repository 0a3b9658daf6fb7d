"""Finding, downloading and checking the files of a dataset.

A file is looked for in the folder given, in $COMPOSITEFL_DATA, in the user's cache and where Linux
distributions install datasets; what is found nowhere is downloaded into the cache. Whatever the
place, the content is hashed before it is used. It is the decompressed content that counts, because
distributions compress anew.
"""

import dataclasses
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import platformdirs

from compositefl.core.errors import CompositeFLError

if TYPE_CHECKING:  # they take as long to load as the rest of the package
    from rich.progress import Progress

# Where each dataset is published.
HOMES = {
    "mnist": "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "fashion-mnist": "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    "cifar10": "https://www.cs.toronto.edu/~kriz/",
    "a9a": "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/",
}
# Debian's package dataset-fashion-mnist installs below this folder.
SYSTEM_FOLDERS: tuple[Path, ...] = (Path("/usr/share/datasets"),)
TIMEOUT = 30  # seconds without an answer

_CHUNK = 1 << 20


@dataclasses.dataclass(frozen=True)
class File:
    """One file of a dataset: the names it may have on disk, and its published form."""

    names: tuple[str, ...]
    remote: str
    sha256: str


def find_files(
    dataset: str, files: Sequence[File], folder: str | os.PathLike[str] | None = None
) -> list[Path]:
    """The path of every file, downloading those that are in none of the folders."""
    folders = _folders(folder)
    paths = {file: _find(dataset, file, folders) for file in files}
    missing = [file for file, path in paths.items() if path is None]
    for file in missing:
        try:
            paths[file] = _download(dataset, file)
        # requests' errors are OSErrors; pooch reports a wrong hash as a ValueError
        except (OSError, ValueError) as error:
            names = ", ".join(" or ".join(f.names) for f in missing)
            looked = ", ".join(str(f) for f in folders)
            raise CompositeFLError(
                f"dataset '{dataset}' needs {names}, which are not in {looked}, and downloading "
                f"{HOMES[dataset]}{file.remote} failed: {_reason(error)}; put them into "
                f"{_cache() / dataset}, ",
                parameter="folder",
                value=folder,
                remedy="folder",
            ) from error
    return [path for path in paths.values() if path is not None]


def read(path: Path, size: int, sha256: str) -> np.ndarray:
    """The decompressed content of a file as bytes, checked against its size and sha256."""
    content = np.empty(size, np.uint8)
    digest, at = hashlib.sha256(), 0
    for chunk in _chunks(path):
        if at + len(chunk) > size:
            raise _wrong(path, f"has more than the {size} bytes expected")
        content[at : at + len(chunk)] = np.frombuffer(chunk, np.uint8)
        digest.update(chunk)
        at += len(chunk)
    if at < size:
        raise _wrong(path, f"has {at} of the {size} bytes expected")
    check_digest(path, digest.hexdigest(), sha256)
    return content


def check_file(path: Path, sha256: str) -> None:
    """Refuse a file whose own bytes do not have this sha256."""
    with path.open("rb") as stream:
        check_digest(path, hashlib.file_digest(stream, "sha256").hexdigest(), sha256)


def check_digest(path: Path, found: str, expected: str, part: str = "") -> None:
    """Refuse content whose sha256 is not the published one."""
    if found != expected:
        raise _wrong(path, f"has sha256 {found}{part}, expected {expected}")


def damaged(path: Path, error: Exception) -> CompositeFLError:
    """The error for a file that cannot even be decompressed."""
    return _wrong(path, f"cannot be read ({error})")


def _wrong(path: Path, what: str) -> CompositeFLError:
    return CompositeFLError(
        f"{path} {what}: it is damaged or another dataset's file. "
        "Delete it and load again, or replace it by the published file"
    )


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            while chunk := stream.read(_CHUNK):
                yield chunk
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise damaged(path, error) from error


def _cache() -> Path:
    return Path(platformdirs.user_cache_dir("compositefl"))


def _folders(folder: str | os.PathLike[str] | None) -> list[Path]:
    folders = []
    for name, value in (
        ("folder", folder),
        ("$COMPOSITEFL_DATA", os.environ.get("COMPOSITEFL_DATA")),
    ):
        if value:
            path = Path(value).expanduser()
            if not path.is_dir():
                raise CompositeFLError(
                    f"{name}={value} is not a folder", parameter=name, value=value
                )
            folders.append(path)
    return [*folders, _cache(), *SYSTEM_FOLDERS]


def _find(dataset: str, file: File, folders: Sequence[Path]) -> Path | None:
    # The sub-folder goes first: MNIST and Fashion-MNIST use the same file names.
    for folder in folders:
        for place in (folder / dataset, folder):
            for name in file.names:
                if (place / name).is_file():
                    return place / name
    return None


def _download(dataset: str, file: File) -> Path:
    import pooch
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress

    columns = (*Progress.get_default_columns(), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = _Bar(progress, file.remote)
        # pooch writes to a temporary file and moves it into place once the hash is right
        return Path(
            pooch.retrieve(
                HOMES[dataset] + file.remote,
                known_hash=f"sha256:{file.sha256}",
                fname=file.remote,
                path=_cache() / dataset,
                downloader=pooch.HTTPDownloader(bar, chunk_size=_CHUNK, timeout=TIMEOUT),
            )
        )


class _Bar:
    """What pooch asks of a progress bar, on top of rich."""

    def __init__(self, progress: "Progress", name: str):
        self._progress = progress
        self._task = progress.add_task(name, total=None)

    @property
    def total(self) -> float | None:
        return self._progress.tasks[self._task].total

    @total.setter
    def total(self, size: int) -> None:
        self._progress.update(self._task, total=size or None)  # 0: the server did not say

    def update(self, count: int) -> None:
        self._progress.advance(self._task, count)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.refresh()


def _reason(error: Exception) -> str:
    import requests

    if isinstance(error, requests.exceptions.ConnectionError):
        return "no connection"
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 400 else text[:397] + "..."
