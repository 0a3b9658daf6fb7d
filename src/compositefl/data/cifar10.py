"""CIFAR-10, from the published binary version or from a compact npz without loss.

The binary version is a tar of six batches of 3,073-byte records: the label, then the red, green and
blue plane. The npz stores the planes as differences, which compress better: red and blue minus
green, then along rows and columns, all modulo 256; two cumulative sums undo that.
"""

import hashlib
import os
import tarfile
import zlib
from pathlib import Path

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.data.files import File, check_digest, check_file, damaged, find_files
from compositefl.data.samples import Dataset, Samples

NPZ_SHA256 = "cc0ef8cb4da600964ba9b03975f8db83e7394348c1024e8d243a6f53b21331f7"
TAR_SHA256 = "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"
BATCH = 10000  # images in one file of the tar
BATCHES = {
    "data_batch_1.bin": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2.bin": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3.bin": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4.bin": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5.bin": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch.bin": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
_FILE = File(
    ("cifar10.npz", "cifar-10-binary.tar.gz"),
    "cifar-10-binary.tar.gz",
    TAR_SHA256,
)


def load(folder: str | os.PathLike[str] | None = None) -> Dataset:
    """Images of shape (N, 32, 32, 3), red, green, blue, with values in [0, 1]."""
    (path,) = find_files("cifar10", [_FILE], folder)
    train, test = _from_npz(path) if path.suffix == ".npz" else _from_tar(path)
    return Dataset("cifar10", train, test, 10)


def _empty(count: int) -> Samples:
    return Samples(np.empty((count, 32, 32, 3), np.float32), np.empty(count, np.int32))


def _from_npz(path: Path) -> tuple[Samples, Samples]:
    check_file(path, NPZ_SHA256)
    parts = []
    with np.load(path) as archive:
        for part in ("train", "test"):
            stored, labels = archive[f"{part}_x"], archive[f"{part}_y"]
            out = _empty(len(labels))
            out.y[:] = labels
            # in pieces, so that the sums need no second copy of the whole set
            for at in range(0, len(labels), 1000):
                planes = stored[:, at : at + 1000].cumsum(2, dtype=np.uint8)
                planes = planes.cumsum(3, dtype=np.uint8)
                planes[[0, 2]] += planes[1]
                np.divide(
                    planes.transpose(1, 2, 3, 0), 255, dtype=np.float32, out=out.x[at : at + 1000]
                )
            parts.append(out)
    return parts[0], parts[1]


def _from_tar(path: Path) -> tuple[Samples, Samples]:
    names = list(BATCHES)
    both = _empty(BATCH * len(names))
    left = set(names)
    try:
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                name = Path(member.name).name
                stream = archive.extractfile(member) if name in left else None
                if stream is None:
                    continue
                content = stream.read()
                check_digest(
                    path, hashlib.sha256(content).hexdigest(), BATCHES[name], f" in {name}"
                )
                rows = slice(BATCH * names.index(name), BATCH * (names.index(name) + 1))
                records = np.frombuffer(content, np.uint8).reshape(BATCH, 3073)
                both.y[rows] = records[:, 0]
                planes = records[:, 1:].reshape(BATCH, 3, 32, 32)
                np.divide(planes.transpose(0, 2, 3, 1), 255, dtype=np.float32, out=both.x[rows])
                left.remove(name)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise damaged(path, error) from error
    if left:
        raise CompositeFLError(f"{path} lacks {', '.join(sorted(left))}: use the published file")
    cut = BATCH * (len(names) - 1)
    return Samples(both.x[:cut], both.y[:cut]), Samples(both.x[cut:], both.y[cut:])
