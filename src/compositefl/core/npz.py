"""NPZ files from anywhere: what is damaged, or something else under that name, is told."""

import zlib
from collections.abc import Collection
from lzma import LZMAError
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from compositefl.core.errors import CompositeFLError

# What readers of files raise where the content is damaged. RuntimeError: of zipfile, where it is
# encrypted or compressed in a way that is not known here. MemoryError: where a damaged header asks
# for more than there is.
UNREADABLE = EOFError, LZMAError, MemoryError, OSError, RuntimeError, ValueError, zlib.error
ZIP = b"PK\x03\x04", b"PK\x05\x06"  # how an archive begins; the second is empty


def read_npz(path: Path, names: Collection[object] | None = None) -> dict[str, np.ndarray]:
    """The arrays of an NPZ file; with `names` those of them that are there, and no others."""
    try:
        with path.open("rb") as stream:
            if stream.read(4) not in ZIP:  # NumPy would speak of pickles, or read a .npy
                raise BadZipFile("it is no ZIP archive")
            stream.seek(0)
            file = np.load(stream, allow_pickle=False)
            arrays = {n: file[n] for n in file.files if names is None or n in names}
    except BadZipFile as error:
        raise CompositeFLError(f"{path} is no NPZ file: {one_line(error)}") from error
    except UNREADABLE as error:
        raise CompositeFLError(f"{path} cannot be read: {one_line(error)}") from error
    for name, array in arrays.items():
        if not isinstance(array, np.ndarray):  # NumPy hands out the bytes of other members
            raise CompositeFLError(f"{path}: '{name}' in it is no array")
    return arrays


def one_line(error: Exception) -> str:
    """An error's text without its line ends."""
    return " ".join(str(error).split())
