"""The tables of federation.toml, a dataclass each. Reading them calls and imports nothing."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from compositefl.core.errors import (
    CompositeFLError,
    require_integer,
    require_nonnegative,
    require_positive,
    require_single,
    unknown_name,
    wrong_value,
)
from compositefl.data.categories import Categories, checked, coded_names

T = TypeVar("T")

MEBIBYTE = 2**20
WEEK = 604800.0  # seconds; the system's own timeouts end at 24 days
ONE = "a single number"
KIND_NAMES = ("number", "whole", "binary")  # of a feature


@dataclass(frozen=True)
class Network:
    """Patience and limits, the table [network]; seconds."""

    round_timeout: float = 600.0  # for a site's answer to a round
    join_timeout: float = 120.0  # for a site that loads its data
    probe_timeout: float = 5.0  # for a lost site that may be back; the others wait so long
    retry_wait: float = 5.0  # before a round with too few answers is tried again
    retries: int = 10  # how often, before the run stops and waits to be resumed
    regroup_after: int = 0  # rounds with a lost site before a new job gathers all; 0: never
    largest_message_mb: int = 1024

    def __post_init__(self) -> None:
        positive(self, "round_timeout", "join_timeout", "probe_timeout")
        require_single(ONE, retry_wait=self.retry_wait)
        require_nonnegative(retry_wait=self.retry_wait)
        for name in ("round_timeout", "join_timeout", "probe_timeout", "retry_wait"):
            if (given := getattr(self, name)) > WEEK:
                raise wrong_value(name, given, f"at most {WEEK:g} seconds, a week")
        whole(self, "retries", "regroup_after", minimum=0)
        whole(self, "largest_message_mb")

    @property
    def limit(self) -> int:
        """The largest message in bytes."""
        return self.largest_message_mb * MEBIBYTE


@dataclass(frozen=True)
class DataTable:
    """The columns of every site's table, [data]: sites match them by name."""

    features: tuple[str, ...]  # their order is that of the model's inputs
    target: str
    labels: tuple[str, ...] = ()  # words in the target's column, for the classes 0, 1, ...
    kinds: Mapping[str, str] = field(default_factory=dict)  # of some features, see KIND_NAMES
    # Values of features that are words, the reference first. Such a feature is a column of 0 and 1
    # for each of the others: "ward" of a, b, c becomes "ward=b" and "ward=c" in `features`.
    categories: Categories = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("features", "labels"):
            object.__setattr__(self, name, words(name, getattr(self, name)))
        object.__setattr__(self, "categories", checked(self.categories))
        for name in self.categories:
            if name not in self.features:
                raise unknown_name("feature in categories", name, self.features)
        if not isinstance(self.target, str):
            raise wrong_value("target", self.target, "a column", shown=repr(self.target))
        if "" in (*self.features, self.target, *self.labels):
            raise CompositeFLError("features, target and labels must not be empty words")
        if len(set(self.labels)) < len(self.labels):
            raise wrong_value("labels", list(self.labels), "different words")
        if not self.features or len({*self.features, self.target}) <= len(self.features):
            raise CompositeFLError("features and target must be different names")
        if not isinstance(self.kinds, Mapping):
            raise wrong_value("kinds", self.kinds, "a table", shown=repr(self.kinds))
        for name, kind in self.kinds.items():
            if name not in self.features:
                raise unknown_name("feature in kinds", name, self.features)
            if kind not in KIND_NAMES:
                raise CompositeFLError(f"kinds: {name}={kind!r} must be one of {KIND_NAMES}")
            if name in self.categories:
                raise CompositeFLError(f"kinds: {name} has categories; it has no kind")
        codes = coded_names([n for n in self.features if n in self.categories], self.categories)
        object.__setattr__(self, "kinds", {**self.kinds, **dict.fromkeys(codes, "binary")})
        object.__setattr__(self, "features", tuple(coded_names(self.features, self.categories)))
        if len(set(self.features)) < len(self.features):
            raise CompositeFLError("features and columns of categories must be different names")


@dataclass(frozen=True)
class Limits:
    """What the sites agree to give and the server to take, the table [limits]."""

    runs: int = 1  # names under which a site answers this federation
    minimum_samples: int = 5  # of a site, and of its test set
    largest_number: float = 1e12  # in an upload

    def __post_init__(self) -> None:
        whole(self, "runs", "minimum_samples")
        positive(self, "largest_number")


@dataclass(frozen=True)
class Privacy:
    """Noise at the sites, the table [privacy]: uploads are clipped to the norm `clip`, and Gaussian
    noise of standard deviation `noise * clip` is added to every number."""

    clip: float
    noise: float
    delta: float = 1e-5
    epsilon: float | None = None  # the most that a site gives, over all runs

    def __post_init__(self) -> None:
        positive(self, "clip", "noise", "delta", "epsilon")
        if self.delta >= 1:
            raise wrong_value("delta", self.delta, "below 1")


def whole(table: object, *names: str, minimum: int = 1) -> None:
    """Refuse what is no whole number, and keep 3.0 as 3; None, the default of some, stays."""
    for name in names:
        if (given := getattr(table, name)) is not None:
            require_integer(minimum, **{name: given})
            object.__setattr__(table, name, int(given))  # the tables are frozen


def positive(table: object, *names: str) -> None:
    """Refuse what is no number > 0, a list of them too; None, the default of some, stays."""
    for name in names:
        if (given := getattr(table, name)) is not None:
            require_single(ONE, **{name: given})
            require_positive(**{name: given})


def words(name: str, given: object) -> tuple[str, ...]:
    """A list of names."""
    if not isinstance(given, list | tuple) or not all(isinstance(word, str) for word in given):
        raise CompositeFLError(f"{name}={given!r} must be a list of names")
    return tuple(given)


def fill(cls: type[T], table: str, given: object, **ours: Any) -> T:
    """An object of a dataclass from a TOML table and from `ours`, which the table cannot set.

    Unknown and missing entries are named.
    """
    where = f"[{table}] " if table else ""
    if not isinstance(given, dict):
        raise CompositeFLError(f"{where}must be a table")
    declared: Any = cls  # a dataclass, which mypy does not see where @component made it one
    fields = {f.name: f for f in dataclasses.fields(declared) if f.init and f.name not in ours}
    for name in given:
        if name not in fields:
            raise unknown_name(f"{where}entry", name, fields)
    missing_ = dataclasses.MISSING
    needed = [n for n, f in fields.items() if f.default is f.default_factory is missing_]
    if missing := [name for name in needed if name not in given]:
        raise CompositeFLError(f"{where}lacks {', '.join(missing)}")
    try:
        return cls(**given, **ours)
    except CompositeFLError as error:
        raise CompositeFLError(f"{where}{error}") from error
