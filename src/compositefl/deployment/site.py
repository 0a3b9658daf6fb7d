"""What one site says about itself, `site.toml`: its name, its data, what it agrees to run."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.data import Dataset, Samples
from compositefl.deployment.federation import NAME, function

ENTRIES = ("name", "accept", "train", "test", "function")


@dataclass(frozen=True)
class Site:
    """A site: where its data are and which federations, by their sha256, it accepts.

    train, test: tables with `file` (CSV, Parquet or NPZ), `x` and `y`, the names of the columns
    or arrays. function: instead of these, "module:name" of a function that returns (train, test)
    or a Dataset; test may be None.
    """

    name: str
    accept: tuple[str, ...]
    folder: Path  # that relative file names start from
    train: dict[str, Any] | None = None
    test: dict[str, Any] | None = None
    function: str | None = None

    @classmethod
    def read(cls, path: str | Path) -> "Site":
        """The site that a file describes."""
        path = Path(path)
        try:
            table = tomllib.loads(path.read_text())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CompositeFLError(f"{path}: not TOML: {error}") from error
        for name in table:
            if name not in ENTRIES:
                raise CompositeFLError(f"{path}: {unknown_name('entry', name, ENTRIES)}")
        try:
            accept = tuple(table.pop("accept", ()))
            return cls(**table, accept=accept, folder=path.parent)
        except (CompositeFLError, TypeError) as error:
            raise CompositeFLError(f"{path}: {error}") from error

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not NAME.fullmatch(self.name):
            raise CompositeFLError(f"name={self.name!r} must be a name")
        if (self.train is None) == (self.function is None):
            raise CompositeFLError("either [train] or function must say where the data are")
        if not all(isinstance(h, str) and len(h) == 64 for h in self.accept):
            raise CompositeFLError("accept must be a list of sha256 hashes of 64 digits")

    def check_accepts(self, hash_: str) -> None:
        """Refuse a federation that this site has not been told to accept."""
        if hash_ not in self.accept:
            raise CompositeFLError(
                f"{self.name} has not been told to accept the federation {hash_}; its "
                "administrator adds this hash to accept in site.toml after reading the file"
            )

    def load(self) -> tuple[Any, Any]:
        """(train, test) batches; test is None where there is none."""
        if self.function is not None:
            made = function(self.function)()
            if isinstance(made, Dataset):
                return made.train, made.test
            if not isinstance(made, tuple) or len(made) != 2:
                raise CompositeFLError(f"{self.function} must return (train, test) or a Dataset")
            return made
        test = None if self.test is None else self._table("test", self.test)
        return self._table("train", self.train or {}), test

    def _table(self, name: str, table: dict[str, Any]) -> Samples:
        for entry in ("file", "x", "y"):
            if entry not in table:
                raise CompositeFLError(f"[{name}] lacks {entry}")
        path = self.folder / table["file"]
        if not path.is_file():
            raise CompositeFLError(f"[{name}] file={table['file']} does not exist")
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as file:
                for array in (table["x"], table["y"]):
                    if array not in file.files:
                        raise CompositeFLError(f"[{name}] {path.name} has no array {array!r}")
                return _samples(file[table["x"]], file[table["y"]])
        return _samples(*_columns(name, path, table))


def _columns(name: str, path: Path, table: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """x and y from the columns of a CSV or Parquet file."""
    import pandas as pd

    if path.suffix not in (".csv", ".parquet"):
        raise CompositeFLError(f"[{name}] file={path.name} must end in .csv, .parquet or .npz")
    try:
        frame = pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)
    except ImportError:
        raise CompositeFLError("Parquet files need pip install 'compositefl[deploy]'") from None
    features = table["x"] if isinstance(table["x"], list) else [table["x"]]
    missing = [c for c in (*features, table["y"]) if c not in frame.columns]
    if missing:
        raise CompositeFLError(f"[{name}] {path.name} has no column {', '.join(missing)}")
    return frame[features].to_numpy(), frame[table["y"]].to_numpy()


def _samples(x: np.ndarray, y: np.ndarray) -> Samples:
    """Whole-number targets are labels; everything else is a real number."""
    for array in (x, y):
        if array.dtype.kind not in "iufb":
            raise CompositeFLError(f"the data have type {array.dtype}; they must be numbers")
    labels = y.dtype.kind in "iub"
    return Samples(x.astype(np.float64), y.astype(np.int32 if labels else np.float64))
