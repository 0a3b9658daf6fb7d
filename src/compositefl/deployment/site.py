"""What one site says about itself, `site.toml`: its name, its data, what it agrees to run."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compositefl.core.errors import CompositeFLError, wrong_value
from compositefl.core.npz import read_npz
from compositefl.core.resolve import resolve
from compositefl.core.types import Batch, PlainValues
from compositefl.data import Dataset, Samples
from compositefl.data.tables import read_table
from compositefl.deployment.columns import Columns, by_name, labels, with_others
from compositefl.deployment.entries import DataTable, fill, words
from compositefl.deployment.federation import Federation
from compositefl.deployment.ledger import SiteLimits
from compositefl.deployment.transport import PrivateError
from compositefl.deployment.trust import Trust, check_name, read_toml

if TYPE_CHECKING:
    import pandas as pd

ENTRIES = ("name", "accept", "modules", "limits", "columns", "train", "test", "function")
PARTS = ("train", "test")
UNREADABLE = "its site.toml is not what it must be"
NO_MORE = SiteLimits()  # than the federation says


@dataclass(frozen=True)
class Site:
    """A site: where its data are and which federations, by their sha256, it accepts.

    modules: those that a federation may name functions of. limits: what the site gives at most.
    columns: the site's own names of some of the federation's columns. train, test: tables with
    `file` (CSV, Parquet or NPZ); for arrays `x` and `y`, their names. function: instead of these,
    "module:name" of a function that returns (train, test) or a Dataset; test may be None.
    """

    name: str
    accept: tuple[str, ...]
    folder: Path  # that relative file names start from
    modules: tuple[str, ...] = ()
    limits: SiteLimits = field(default=NO_MORE)
    columns: dict[str, str] = field(default_factory=dict)
    train: PlainValues | None = None
    test: PlainValues | None = None
    function: str | None = None

    @classmethod
    def read(cls, path: str | Path) -> "Site":
        """The site that a file describes.

        What is wrong with it is for the site's operator: it names entries, values and the path.
        """
        path = Path(path)
        try:
            table: PlainValues = {"accept": []} | read_toml(path, ENTRIES)
        except CompositeFLError as error:
            raise PrivateError(str(error), UNREADABLE) from error
        try:
            for name in ("accept", "modules"):
                if name in table:
                    table[name] = words(name, table[name])
            if "limits" in table:
                table["limits"] = fill(SiteLimits, "limits", table["limits"])
            return cls(**table, folder=path.parent)
        except (CompositeFLError, TypeError) as error:
            raise PrivateError(f"{path}: {error}", UNREADABLE) from error

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if (self.train is None) == (self.function is None):
            raise CompositeFLError("either [train] or function must say where the data are")
        for part in PARTS:
            table = getattr(self, part)
            if table is not None and not isinstance(table, dict):
                raise wrong_value(part, table, "a table", shown=repr(table))
            if table is not None and not isinstance(file := table.get("file", ""), str):
                raise wrong_value(f"[{part}] file", file, "the name of a file", shown=repr(file))
        if not isinstance(self.function, str | None):
            raise wrong_value("function", self.function, "module:name", shown=repr(self.function))
        Trust(self.accept, self.modules)
        if not isinstance(self.columns, dict) or not all(
            isinstance(name, str) for name in self.columns.values()
        ):
            raise CompositeFLError("[columns] must say: name in the federation = name here")

    def admit(self, text: str) -> Federation:
        """The federation in `text`, if this site has been told to accept it."""
        return Trust(self.accept, self.modules).admit(text, self.name, "site.toml")

    def load(
        self, data: DataTable | None = None, classes: int | None = None
    ) -> tuple[Batch, Batch | None]:
        """(train, test) batches; test is None where there is none.

        data: the columns that the federation names. classes: of the model's labels.
        """
        try:
            if self.function is None:
                parts = [self.train, self.test]
                made = [self._read(n, t, data, classes) for n, t in zip(PARTS, parts, strict=True)]
            else:
                made = [self._checked(p, data, classes) for p in self._call(self.function)]
                if made[0] is None:
                    raise CompositeFLError(f"{self.function} returns no training data: None")
        except PrivateError:
            raise
        except CompositeFLError as error:  # its text may quote names and values
            raise PrivateError(str(error), "its data cannot be read") from error
        return made[0], made[1]

    def table(self, data: DataTable, others: Sequence[str], *, missing: bool) -> Columns:
        """The training table with the columns that the federation names, and `others`."""
        import pandas as pd

        try:
            if self.function is None:
                assert self.train is not None
                where = f"[train] {self.train.get('file')}"
                if "file" not in self.train:
                    raise CompositeFLError("[train] lacks file")
                frame = read_table(self.folder / self.train["file"])
            else:
                where, frame = self.function, self._call(self.function)[0]
                if not isinstance(frame, pd.DataFrame):
                    raise CompositeFLError(f"{where} must return tables (pandas.DataFrame)")
            return with_others(frame, data, others, self.columns, where, missing=missing)
        except PrivateError:
            raise
        except CompositeFLError as error:  # its text may quote names and values
            raise PrivateError(str(error), "its data cannot be read") from error

    def _call(self, name: str) -> tuple[object, object]:
        made = resolve(name)()
        if isinstance(made, Dataset):
            return made.train, made.test
        if not isinstance(made, tuple) or len(made) != 2:
            raise CompositeFLError(f"{name} must return (train, test) or a Dataset")
        return made

    def _checked(self, part: object, data: DataTable | None, classes: int | None) -> Batch | None:
        """What a function returned: a table by name where the federation names columns."""
        import pandas as pd

        if part is None:
            return None
        if data is not None:
            if not isinstance(part, pd.DataFrame):
                raise PrivateError(
                    f"{self.function} must return tables (pandas.DataFrame), whose columns have "
                    "names: the federation names its features",
                    "its function returns arrays without names",
                )
            return by_name(part, data, self.columns, None, classes, str(self.function))
        if classes is not None and isinstance(part, tuple) and len(part) == 2:
            return Samples(part[0], labels(np.asarray(part[1]), None, classes, str(self.function)))
        return part

    def _read(
        self, name: str, table: PlainValues | None, data: DataTable | None, classes: int | None
    ) -> Samples | None:
        """The samples of [train] or [test]."""
        if table is None:
            return None
        for entry in ("file",) if data is not None else ("file", "x", "y"):
            if entry not in table:
                raise CompositeFLError(f"[{name}] lacks {entry}")
        path = self.folder / table["file"]
        if not path.is_file():
            raise CompositeFLError(f"[{name}] file={table['file']} does not exist")
        where = f"[{name}] {path.name}"
        if data is not None:
            named = table.get("x")
            target = self.columns.get(data.target, data.target)
            npz = path.suffix == ".npz"
            frame = _npz_frame(path, table, where, target) if npz else read_table(path)
            listed = named if isinstance(named, list) else None
            return by_name(frame, data, self.columns, listed, classes, where)
        if path.suffix != ".npz":
            raise PrivateError(
                f"{where} is a table, and the federation names no features: columns cannot be "
                "matched by name. Ask the coordinator for a [data] table in federation.toml",
                "it has a table, and the federation names no features in [data]",
            )
        x, y = (_array(path, table[entry], where) for entry in ("x", "y"))
        if x.dtype.kind not in "iufb":
            raise CompositeFLError(f"{where} has type {x.dtype}; it must hold numbers")
        return Samples(x.astype(np.float64), labels(y, None, classes, where))


def _array(path: Path, name: object, where: str) -> np.ndarray:
    found = read_npz(path, [name])
    if not found:
        raise CompositeFLError(f"{where} has no array {name!r}")
    return found[str(name)]


def _npz_frame(path: Path, table: PlainValues, where: str, target: str) -> "pd.DataFrame":
    """The matrix `x` of an NPZ file with the column names in its array `names`, and its `y`."""
    import pandas as pd

    for entry in ("x", "y", "names"):
        if not isinstance(table.get(entry), str):
            raise PrivateError(
                f"{where}: the federation names its features, so [train] and [test] of an NPZ file "
                "say its arrays x, y and names, the names of the columns of x",
                "its NPZ file has no names of columns",
            )
    x, y, names = (_array(path, table[entry], where) for entry in ("x", "y", "names"))
    if x.ndim != 2 or x.shape[1] != names.size:
        raise CompositeFLError(f"{where} has {names.size} names for x of shape {x.shape}")
    if y.shape != x.shape[:1]:
        raise CompositeFLError(f"{where} has y of shape {y.shape} for x of shape {x.shape}")
    frame = pd.DataFrame(x, columns=[str(name) for name in names.ravel()])
    return frame.assign(**{target: y})
