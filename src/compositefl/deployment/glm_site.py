"""A site in the run of a generalised linear model: it answers with sums over its samples.

It keeps nothing between two calls: a request says all that its answer depends on, and folds are
drawn from the seed and the site's name. What it may give is in its ledger.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.data.tables import list_columns
from compositefl.deployment.columns import Columns
from compositefl.deployment.entries import DataTable
from compositefl.deployment.federation import Federation
from compositefl.deployment.messages import Message, pack
from compositefl.deployment.session import SiteSession
from compositefl.deployment.site import Site
from compositefl.deployment.transport import PrivateError
from compositefl.glm.families import Family
from compositefl.glm.requests import METHODS, check_request
from compositefl.glm.site import Request, Sums
from compositefl.glm.site import Site as Table

LARGEST_LOSS = 1e300  # what an infinite loss is sent as: no step to such a point is taken


class GLMSession(SiteSession):
    """A site that answers with sums over its table."""

    def __init__(self, site: Site, federation: Federation, run: str, folder: Path):
        super().__init__(site, federation, run, folder)
        glm, data = federation.glm, federation.data
        assert glm is not None and data is not None  # federation.check sees to it
        self.family: Family = glm.family_of(len(data.labels) or 2)
        frame = site.table(data, glm.columns, missing=glm.impute is not None)
        self.size = len(frame.x)
        self.check_size(self.size)
        if glm.weight is not None and (frame.more[glm.weight] < 0).any():
            raise PrivateError(f"{glm.weight} must not be negative", "its weights are negative")
        self.table = Table(
            site.name,
            self.family,
            frame.x,
            _response(frame, data, glm.event),
            frame.more.get(glm.weight or ""),
            frame.more.get(glm.offset or ""),
            classes=len(data.labels) or 2,
        )
        if problem := None if self.family.coupled else self.family.check(self.table.y):
            raise PrivateError(
                f"{data.target} {problem} for the family {self.family.name}",
                f"its target {problem}",
            )
        self.folds = glm.cv or 0
        self.scores = {"pearson"} if self.family.dispersion else set()
        if self.folds:
            self.scores.add(glm.scoring)
            self.table.draw(self.folds, federation.seed)
            self._check_folds()
        if few := self._telling_columns(data.features):
            self.notes = (
                f"fewer than {self.minimum} rows differ from all others in {list_columns(few)}: "
                "the server can read these rows off the sums; leave such columns out or join rare "
                "categories",
            )
        self.limit = federation.network.limit
        self.answers = {"sums": self.sums}

    def _check_folds(self) -> None:
        """What all rows add up to, less the sums without a fold, is about the rows of that fold."""
        rows = np.bincount(self.table.fold[self.table.weight > 0], minlength=1 + self.folds)[1:]
        if ((rows > 0) & (rows < self.minimum)).any():
            raise CompositeFLError(
                f"cv={self.folds} leaves folds of fewer rows than the minimum of {self.minimum} at "
                "this site; fewer folds",
                parameter="cv",
                value=self.folds,
            )

    def _telling_columns(self, names: Sequence[str]) -> list[str]:
        """Columns in which fewer rows than the minimum differ from all others.

        Sums weighted with such a column are about these rows: a Hessian has their other columns.
        """
        found = []
        for name, column in zip(names, self.table.x.T, strict=True):
            _, counts = np.unique(column, return_counts=True)
            if 0 < self.size - counts.max() < self.minimum:
                found.append(name)
        return found

    def sums(self, message: Message) -> bytes:
        """The answer to one request, if this site agreed to so many."""
        t = self.round_of(message)
        method, request = unpack_request(message.arrays)
        check_request(self.table, method, request, 1 + self.folds)
        if method == "validate" and request["score"] not in self.scores:
            agreed = ", ".join(sorted(self.scores)) or "none"
            raise CompositeFLError(f"this site agreed to no score {request['score']}; to: {agreed}")
        with self.ledger.locked():
            number = self.ledger.check("uploads")
            made = getattr(self.table, method)(**request)
            self.ledger.record("uploads", number)
        arrays = pack("sums", _finite(made))
        return self.reply(t, self.call("sums", t, message), {}, arrays)


def pack_request(method: str, request: Request) -> dict[str, np.ndarray]:
    """A request as arrays alone, so that the digest of a call covers all of it."""
    arrays = {f"ask/{name}": np.asarray(item) for name, item in request.items() if name != "score"}
    arrays["method"] = np.array(METHODS.index(method))
    if "score" in request:
        arrays["score"] = np.frombuffer(request["score"].encode(), np.uint8)
    return arrays


def unpack_request(arrays: dict[str, np.ndarray]) -> tuple[str, Request]:
    """What `pack_request` packed."""
    number = arrays.get("method", np.array(-1))
    if number.shape != () or number.dtype.kind != "i" or not 0 <= number < len(METHODS):
        raise CompositeFLError("the request names no method")
    request: Request = {
        name.removeprefix("ask/"): array.item() if array.shape == () else array
        for name, array in arrays.items()
        if name.startswith("ask/")
    }
    if "score" in arrays:
        request["score"] = arrays["score"].tobytes().decode("ascii", "replace")
    return METHODS[int(number)], request


def _finite(made: Sums) -> Sums:
    """Sums as they travel: a point where anything overflows is one with a very large loss."""
    if "loss" in made:
        fine = np.isfinite(made["loss"]) & np.isfinite(made["gradient"]).all(axis=1)
        made = made | {"loss": np.where(fine, made["loss"], LARGEST_LOSS)}
    finite = {name: np.nan_to_num(np.asarray(a, float), nan=0.0) for name, a in made.items()}
    return {name: np.clip(a, -LARGEST_LOSS, LARGEST_LOSS) for name, a in finite.items()}


def _response(frame: Columns, data: DataTable, event: str | None) -> np.ndarray:
    if event is None:
        return frame.y
    happened = frame.more[event]
    if not np.isin(happened, (0, 1)).all() or (frame.y < 0).any():
        raise PrivateError(
            f"{event} must hold 0 and 1 and {data.target} times that are not negative",
            "its events or times are not what they must be",
        )
    return np.column_stack([frame.y, happened])
