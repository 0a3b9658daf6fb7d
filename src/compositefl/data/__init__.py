"""Datasets: `load("mnist")` finds, downloads and checks the files and returns numpy arrays."""

import inspect
import os
from typing import Any

from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.core.resolve import require_kind, resolve
from compositefl.data import a9a, cifar10, digits, idx, synthetic
from compositefl.data.samples import Dataset, Samples, sample_count, take

__all__ = ["DATASETS", "Dataset", "Samples", "load", "sample_count", "take"]

DATASETS = {
    "digits": "8x8 handwritten digits bundled with scikit-learn, 1,797 samples, 10 classes",
    "mnist": "28x28 handwritten digits, 60,000 + 10,000 samples, 10 classes",
    "fashion-mnist": "28x28 pictures of clothes, 60,000 + 10,000 samples, 10 classes",
    "cifar10": "32x32 colour pictures, 50,000 + 10,000 samples, 10 classes",
    "a9a": "census income, 123 binary features, 32,561 + 16,281 samples, 2 classes",
    "synthetic": "synthetic(alpha, beta) of FedProx, made on the spot, heterogeneous by client",
}
NO_FILES = ("digits", "synthetic")  # need no folder


def load(name: str, folder: str | os.PathLike[str] | None = None, **options: Any) -> Dataset:
    """Load a dataset by its name in `DATASETS`; x is float32, y int32.

    Or by "module:function": what the function returns, called with the options.

    Files are looked for in `folder`, in $COMPOSITEFL_DATA and in the user's cache, directly or in a
    sub-folder named as the dataset, and downloaded into the cache otherwise. Their hashes are
    checked in every case; "digits" and "synthetic" have none. `options` are those of
    `data.synthetic.generate`.
    """
    if ":" in name:
        given = options if folder is None else {"folder": folder, **options}
        return require_kind(name, resolve(name)(**given), Dataset)
    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    known = inspect.signature(synthetic.generate).parameters if name == "synthetic" else ()
    for option in options:
        if option not in known:
            allowed = f"it takes {', '.join(known)}" if known else "it takes none"
            raise CompositeFLError(f"dataset '{name}' has no option '{option}'; {allowed}")
    if folder is not None and name in NO_FILES:
        raise CompositeFLError(
            f"folder={folder} does not go here: dataset '{name}' needs no files",
            parameter="folder",
            value=folder,
        )
    if name == "synthetic":
        return synthetic.load(**options)
    if name == "digits":
        return digits.load()
    if name == "a9a":
        return a9a.load(folder)
    if name == "cifar10":
        return cifar10.load(folder)
    return idx.load(name, folder)
