"""What one site says about itself, `site.toml`: its name, its data, what it agrees to run."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.resolve import resolve
from compositefl.data import Dataset, Samples
from compositefl.deployment.entries import words
from compositefl.deployment.federation import Federation
from compositefl.deployment.trust import Trust, check_name, read_toml

ENTRIES = ("name", "accept", "modules", "train", "test", "function")


@dataclass(frozen=True)
class Site:
    """A site: where its data are and which federations, by their sha256, it accepts.

    modules: those that a federation may name functions of. train, test: tables with `file` (CSV,
    Parquet or NPZ), `x` and `y`, the names of the columns or arrays. function: instead of these,
    "module:name" of a function that returns (train, test) or a Dataset; test may be None.
    """

    name: str
    accept: tuple[str, ...]
    folder: Path  # that relative file names start from
    modules: tuple[str, ...] = ()
    train: dict[str, Any] | None = None
    test: dict[str, Any] | None = None
    function: str | None = None

    @classmethod
    def read(cls, path: str | Path) -> "Site":
        """The site that a file describes."""
        path = Path(path)
        table: dict[str, Any] = {"accept": []} | read_toml(path, ENTRIES)
        try:
            for name in ("accept", "modules"):
                if name in table:
                    table[name] = words(name, table[name])
            return cls(**table, folder=path.parent)
        except (CompositeFLError, TypeError) as error:
            raise CompositeFLError(f"{path}: {error}") from error

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if (self.train is None) == (self.function is None):
            raise CompositeFLError("either [train] or function must say where the data are")
        Trust(self.accept, self.modules)

    def admit(self, text: str) -> Federation:
        """The federation in `text`, if this site has been told to accept it."""
        return Trust(self.accept, self.modules).admit(text, self.name, "site.toml")

    def load(self) -> tuple[Any, Any]:
        """(train, test) batches; test is None where there is none."""
        if self.function is not None:
            made = resolve(self.function)()
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
