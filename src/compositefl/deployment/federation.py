"""A federation as one file, `federation.toml`: what all sites and the server agree on."""

import dataclasses
import hashlib
import importlib
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from compositefl import models
from compositefl.algorithms import ALGORITHMS
from compositefl.algorithms.base import Algorithm
from compositefl.core.errors import (
    CompositeFLError,
    require_integer,
    require_nonnegative,
    require_positive,
    unknown_name,
)
from compositefl.engine.hessian import check_hessian
from compositefl.models import Model
from compositefl.regularizers import ByName, Regularizer, Zero, parse

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
MEBIBYTE = 2**20


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
        require_positive(round_timeout=self.round_timeout, join_timeout=self.join_timeout)
        require_positive(probe_timeout=self.probe_timeout)
        require_nonnegative(retry_wait=self.retry_wait)
        require_integer(minimum=0, retries=self.retries, regroup_after=self.regroup_after)
        require_integer(largest_message_mb=self.largest_message_mb)

    @property
    def limit(self) -> int:
        """The largest message in bytes."""
        return self.largest_message_mb * MEBIBYTE


@dataclass(frozen=True)
class Privacy:
    """Noise at the sites, the table [privacy]: uploads are clipped to the norm `clip`, and Gaussian
    noise of standard deviation `noise * clip` is added to every number."""

    clip: float
    noise: float
    delta: float = 1e-5

    def __post_init__(self) -> None:
        require_positive(clip=self.clip, noise=self.noise, delta=self.delta)
        if self.delta >= 1:
            raise CompositeFLError(f"delta={self.delta} must be below 1")


@dataclass(frozen=True)
class Federation:
    """The declaration of a run. `Federation.read(path)` and `Federation.parse(text)` make one."""

    text: str = field(repr=False)  # the file, word for word: its hash is the identity
    name: str
    sites: tuple[str, ...]  # their order is the order of the clients in a simulation
    model: dict[str, Any]
    algorithm: dict[str, Any]
    rounds: int
    regularizer: str = "zero"
    unpenalized: tuple[str, ...] = ()
    batch_size: int | None = None
    seed: int = 0
    dtype: str = "float32"
    weights: str = "uniform"
    eval_every: int | None = None  # 0: never
    eval_gamma: float | None = None  # the algorithm's gamma, or min(1, half of 1/rho)
    tolerance: float | None = None
    minimum_sites: int = 0  # 0: more than half, or all where the algorithm needs all
    network: Network = Network()
    privacy: Privacy | None = None

    @classmethod
    def read(cls, path: str | Path) -> "Federation":
        """The federation in a file."""
        try:
            text = Path(path).read_text()
        except UnicodeDecodeError:
            raise CompositeFLError(f"{path} is not a text file") from None
        try:
            return cls.parse(text)
        except CompositeFLError as error:
            raise CompositeFLError(f"{path}: {error}") from error

    @classmethod
    def parse(cls, text: str) -> "Federation":
        """The federation that `text` declares; every error names the entry that is wrong."""
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise CompositeFLError(f"not TOML: {error}") from error
        values = dict(table)
        for name in ("sites", "unpenalized"):
            if name in values:
                values[name] = _words(name, values[name])
        if "network" in values:
            values["network"] = _fill(Network, "network", values["network"])
        if "privacy" in values:
            values["privacy"] = _fill(Privacy, "privacy", values["privacy"])
        return _fill(cls, "", values, text=text)

    def __post_init__(self) -> None:
        for word in (self.name, *self.sites):
            if not isinstance(word, str) or not NAME.fullmatch(word):
                raise CompositeFLError(f"{word!r} must be a name of letters, digits, '-', '_', '.'")
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise CompositeFLError(
                f"sites={list(self.sites)} must be different names, at least one"
            )
        require_integer(rounds=self.rounds)
        require_integer(minimum=0, seed=self.seed, minimum_sites=self.minimum_sites)
        if self.seed >= 2**32:
            raise CompositeFLError(f"seed={self.seed} must be below 2**32")
        if self.batch_size is not None:
            require_integer(batch_size=self.batch_size)
        if self.eval_every is not None:
            require_integer(minimum=0, eval_every=self.eval_every)
        for name in ("eval_gamma", "tolerance"):
            if getattr(self, name) is not None:
                require_positive(**{name: getattr(self, name)})
        for name, allowed in (("dtype", ("float32", "float64")), ("weights", ("uniform", "size"))):
            if getattr(self, name) not in allowed:
                raise CompositeFLError(f"{name}={getattr(self, name)!r} must be one of {allowed}")
        if self.minimum_sites > len(self.sites):
            raise CompositeFLError(
                f"minimum_sites={self.minimum_sites} is more than the {len(self.sites)} sites"
            )
        for name in ("model", "algorithm"):
            table = getattr(self, name)
            if not isinstance(table, dict) or not isinstance(table.get("name"), str):
                raise CompositeFLError(f'[{name}] needs a name, such as name = "..."')
        self._check()

    def _check(self) -> None:
        """Refuse what does not go together."""
        algorithm, params = self.make_algorithm(), self.start()
        label = self.algorithm["name"]
        algorithm.check()
        algorithm.regularizer.check_tree(params)
        if self.eval_gamma is not None:
            algorithm.regularizer.check_prox("eval_gamma", self.eval_gamma)
        leaves = jax.tree.leaves(params)
        check_hessian(algorithm, self.make_model().loss, sum(leaf.size for leaf in leaves))
        if algorithm.needs_everyone and 0 < self.minimum_sites < len(self.sites):
            raise CompositeFLError(
                f"minimum_sites={self.minimum_sites}: {label} needs all {len(self.sites)} sites in "
                f"every round, because {algorithm.needs_everyone}"
            )
        if self.tolerance is not None and self.every == 0:
            raise CompositeFLError("tolerance needs evaluations: eval_every must not be 0")
        if self.privacy is not None:
            self._check_privacy(algorithm, label)

    def _check_privacy(self, algorithm: Algorithm, label: str) -> None:
        if self.eval_every != 0:
            raise CompositeFLError(
                "[privacy] needs eval_every = 0: evaluations send exact losses and gradients"
            )
        if "mean_full_gradient" in algorithm.needs:
            raise CompositeFLError(f"[privacy]: {label} also sends full gradients, without noise")
        if not algorithm.allows_noise:
            raise CompositeFLError(
                f"[privacy]: {label} does not bear noise on its uploads, which must match a state "
                "of its sites or are no plain change of the model; use fednmap, fedda, fedmid or "
                "fedavg"
            )

    @property
    def hash(self) -> str:
        """sha256 of the file: what a site is told to accept."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def every(self) -> int:
        """Rounds between two evaluations, 0 for none."""
        return max(1, self.rounds // 50) if self.eval_every is None else self.eval_every

    @property
    def minimum(self) -> int:
        """Sites that must answer for a round to count."""
        if self.make_algorithm().needs_everyone:
            return len(self.sites)
        return self.minimum_sites or len(self.sites) // 2 + 1

    def make_regularizer(self) -> Regularizer:
        """phi, without a weight on the unpenalized parameters."""
        phi = parse(self.regularizer)
        if not self.unpenalized:
            return phi
        return ByName({**{pattern: Zero() for pattern in self.unpenalized}, "*": phi})

    def make_algorithm(self) -> Algorithm:
        """The algorithm with its numbers and the regulariser."""
        numbers = dict(self.algorithm)
        name = numbers.pop("name")
        cls = function(name) if ":" in name else ALGORITHMS.get(name)
        if cls is None:
            raise unknown_name("algorithm", name, ALGORITHMS)
        if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
            raise CompositeFLError(f"algorithm '{name}' is not an Algorithm")
        return _fill(cls, f"algorithm {name}", numbers, regularizer=self.make_regularizer())

    def make_model(self) -> Model:
        """The model: one of the library by its name, or what a function `module:name` returns."""
        options = dict(self.model)
        name = options.pop("name")
        try:
            if ":" in name:
                made = function(name)(**options)
                if not isinstance(made, Model):
                    raise CompositeFLError("it must return a compositefl.models.Model")
                return made
            return models.build(name, **options)
        except (CompositeFLError, TypeError) as error:
            raise CompositeFLError(f"[model] {name}: {error}") from error

    def start(self) -> Any:
        """The starting point, as the simulation of `model.problem(clients, seed=seed)` has it."""
        return jax.tree.map(np.asarray, self.make_model().init(jax.random.key(self.seed)))


def function(name: str) -> Any:
    """The object that "package.module:name" names. It must be installed here."""
    module, _, attribute = name.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise CompositeFLError(f"'{name}' is not installed here: {error}") from error


def _words(name: str, given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
        raise CompositeFLError(f"{name}={given!r} must be a list of names")
    return tuple(given)


def _fill(cls: type, table: str, given: Any, **ours: Any) -> Any:
    """An object of a dataclass from a TOML table and from `ours`, which the table cannot set.

    Unknown and missing entries are named.
    """
    where = f"[{table}] " if table else ""
    if not isinstance(given, dict):
        raise CompositeFLError(f"{where}must be a table")
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init and f.name not in ours}
    for name in given:
        if name not in fields:
            raise unknown_name(f"{where}entry", name, fields)
    needed = [n for n, f in fields.items() if f.default is dataclasses.MISSING]
    if missing := [name for name in needed if name not in given]:
        raise CompositeFLError(f"{where}lacks {', '.join(missing)}")
    try:
        return cls(**given, **ours)
    except CompositeFLError as error:
        raise CompositeFLError(f"{where}{error}") from error
