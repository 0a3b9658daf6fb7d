"""a9a: the census-income data as 123 binary features, in LIBSVM's text format, gzipped or plain."""

import io
import os

import numpy as np

from compositefl.data.files import File, find_files, read
from compositefl.data.samples import Dataset, Samples

FEATURES = 123
# name, size and sha256 of the text
FILES = (
    ("a9a", 2329875, "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906"),
    ("a9a.t", 1164628, "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9"),
)


def load(folder: str | os.PathLike[str] | None = None) -> Dataset:
    """x of shape (N, 123); y is 1 for an income above 50,000 dollars a year, else 0."""
    files = [File((f"{name}.gz", name), name, sha256) for name, _, sha256 in FILES]
    train, test = (
        _parse(read(path, size, sha256))
        for path, (_, size, sha256) in zip(find_files("a9a", files, folder), FILES, strict=True)
    )
    return Dataset("a9a", train, test, 2)


def _parse(text: np.ndarray) -> Samples:
    from sklearn.datasets import load_svmlight_file

    # the test file never mentions feature 123, hence the explicit width
    x, y = load_svmlight_file(io.BytesIO(text.tobytes()), n_features=FEATURES, dtype=np.float32)
    return Samples(x.toarray(), (y > 0).astype(np.int32))
