"""A federation as one file, `federation.toml`: what all sites and the server agree on."""

import dataclasses
import hashlib
import math
import tomllib
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jax
import numpy as np

from compositefl import models
from compositefl.algorithms import ALGORITHMS
from compositefl.algorithms.base import Algorithm, automatic, wants_theory
from compositefl.core.errors import (
    CompositeFLError,
    unknown_name,
    wrong_value,
)
from compositefl.core.resolve import is_reference, require_kind
from compositefl.core.types import Params, PlainValues
from compositefl.deployment import penalty
from compositefl.deployment.entries import (
    MEBIBYTE,
    DataTable,
    Limits,
    Network,
    Privacy,
    fill,
    whole,
    words,
)
from compositefl.deployment.glm_table import GLMTable
from compositefl.deployment.penalty import read_parts, read_path, weight_of
from compositefl.deployment.privacy import epsilon
from compositefl.deployment.trust import accepts, check_name, own_class, own_factory
from compositefl.engine.hessian import check_hessian
from compositefl.models import Model
from compositefl.regularizers import Regularizer
from compositefl.solve.options import Options, options_fields
from compositefl.solve.steering import BEFORE

NETWORK, LIMITS = Network(), Limits()
DEFAULTS: dict[str, Any] = {name: option.default for name, option in options_fields().items()}


@dataclass(frozen=True)
class Federation:
    """The declaration of a run. `Federation.read(path)` and `Federation.parse(text)` make one.

    Both only read: nothing that the text names is imported or called. `check` makes everything
    once and refuses what does not go together; "module:name" is then looked up in `modules` alone.
    """

    text: str = field(repr=False)  # the file, word for word: its hash is the identity
    name: str
    sites: tuple[str, ...]  # their order is the order of the clients in a simulation
    rounds: int
    model: PlainValues = field(default_factory=dict)
    algorithm: PlainValues = field(default_factory=dict)
    regularizer: str = "zero"
    regularizers: tuple[PlainValues, ...] = ()  # by patterns of names, instead
    path: tuple[float, ...] = ()  # weights of the regulariser, a run each
    unpenalized: tuple[str, ...] = ()
    batch_size: int | None = DEFAULTS["batch_size"]  # this and what follows: as in `Options`
    seed: int = DEFAULTS["seed"]
    dtype: str = DEFAULTS["dtype"]
    weights: str | None = DEFAULTS["weights"]
    eval_every: int | None = DEFAULTS["eval_every"]  # here 0 too: never
    eval_gamma: float | None = DEFAULTS["eval_gamma"]
    tolerance: float | None = DEFAULTS["tolerance"]
    minimum_sites: int = 0  # 0: more than half, or all where the algorithm needs all
    network: Network = field(default=NETWORK)
    limits: Limits = field(default=LIMITS)
    data: DataTable | None = None  # None: arrays, such as images, not tables
    privacy: Privacy | None = None
    glm: GLMTable | None = None  # instead of [model] and [algorithm]
    modules: tuple[str, ...] = ()  # of the node that reads it, never of the text
    weight: float | None = None  # of the path, by the name of the run

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
        except ValueError as error:  # also a number of more digits than Python reads
            raise CompositeFLError(f"not TOML: {error}") from error
        except RecursionError:
            raise CompositeFLError("not a federation: its lists or tables are too deep") from None
        values = dict(table)
        for name in ("sites", "unpenalized"):
            if name in values:
                values[name] = words(name, values[name])
        for name, read in (("regularizers", read_parts), ("path", read_path)):
            if name in values:
                values[name] = read(values[name])
        for name, kind in TABLES.items():
            if name in values:
                values[name] = fill(kind, name, values[name])
        return fill(cls, "", values, text=text, modules=(), weight=None)

    def for_run(self, run: str) -> "Federation":
        """The federation at the weight that belongs to a run, where it has a path of weights."""
        return dataclasses.replace(self, weight=weight_of(run, self.path))

    def trusting(self, modules: Collection[str]) -> "Federation":
        """The same federation where "module:name" may be of these modules."""
        return dataclasses.replace(self, modules=tuple(modules))

    def __post_init__(self) -> None:
        for word in (self.name, *self.sites):
            check_name("name", word)
        if not isinstance(self.regularizer, str):
            given = self.regularizer
            raise wrong_value("regularizer", given, "a name with numbers", shown=repr(given))
        if not self.sites or len(set(self.sites)) < len(self.sites):
            raise wrong_value("sites", list(self.sites), "different names, at least one")
        checked = Options(**self.shared())
        for name in ("rounds", "seed", "batch_size"):
            object.__setattr__(self, name, getattr(checked, name))  # 3.0 is 3
        whole(self, "minimum_sites", minimum=0)
        if self.minimum_sites > len(self.sites):
            raise CompositeFLError(
                f"minimum_sites={self.minimum_sites} is more than the {len(self.sites)} sites",
                parameter="minimum_sites",
                value=self.minimum_sites,
            )
        if self.glm is not None:
            self._check_glm(self.glm)
            return
        for name in ("model", "algorithm"):
            table = getattr(self, name)
            if not isinstance(table, dict) or not isinstance(table.get("name"), str):
                raise CompositeFLError(f'[{name}] needs a name, such as name = "..."')

    def shared(self) -> dict[str, Any]:
        """The entries that are options of a simulation too, as `minimize` takes them."""
        given = {name: getattr(self, name) for name in SHARED}
        never = type(self.eval_every) is int and self.eval_every == 0
        return given | ({"eval_every": None} if never else {})

    def _check_glm(self, glm: GLMTable) -> None:
        if self.model or self.algorithm or self.privacy is not None:
            raise CompositeFLError("[glm] stands alone, without [model], [algorithm] and [privacy]")
        if self.data is None:
            raise CompositeFLError("[glm] needs [data], which names features and target")
        classes = len(self.data.labels)
        two, many = glm.family == "binomial", glm.family == "multinomial"
        if (two and classes != 2) or (many and classes < 3):
            wanted = "two" if two else "three or more"
            raise CompositeFLError(
                f'[data] labels must name the {wanted} classes of {glm.family}: ["no", "yes"]'
            )
        own = [self.data.target, *self.data.features]
        if twice := [name for name in glm.columns if name in own]:
            raise CompositeFLError(f"[glm] column '{twice[0]}' is a feature or the target too")
        if glm.penalty_factor is not None and len(glm.penalty_factor) != len(self.data.features):
            raise CompositeFLError("[glm] penalty_factor must have a number for every feature")

    def check(self) -> "Federation":
        """Refuse what does not go together; returns the federation."""
        if self.glm is not None and self.data is not None:
            self.glm.check(self.modules, len(self.data.features), len(self.data.labels) or 2)
            return self
        algorithm = self.make_algorithm()
        label = self.algorithm["name"]
        if wants_theory(algorithm):
            raise CompositeFLError(
                f'[algorithm {label}] local_lr="theory": the theorem\'s constants are estimated '
                "from all data, which nobody here has; give a number"
            )
        if automatic(algorithm):
            self._check_automatic(label)
        self._check_length()
        params, algorithm = self.start(), algorithm.at(BEFORE)
        algorithm.check()
        algorithm.regularizer.check_tree(params)
        if self.eval_gamma is not None:
            algorithm.regularizer.check_prox("eval_gamma", self.eval_gamma)
        self._check_data()
        leaves = jax.tree.leaves(params)
        check_hessian(algorithm, self.make_model().loss, sum(leaf.size for leaf in leaves))
        if algorithm.needs_everyone and 0 < self.minimum_sites < len(self.sites):
            raise CompositeFLError(
                f"minimum_sites={self.minimum_sites}: {label} needs all {len(self.sites)} sites in "
                f"every round, because {algorithm.needs_everyone}",
                parameter="minimum_sites",
                value=self.minimum_sites,
            )
        if self.tolerance is not None and self.every == 0:
            raise CompositeFLError("tolerance needs evaluations: eval_every must not be 0")
        if self.privacy is not None:
            self._check_privacy(algorithm, label)
        return self

    def _check_automatic(self, label: str) -> None:
        """Numbers set themselves by looking at psi, which sites with noise do not tell."""
        missing = "eval_every = 0: numbers are set by looking at the objective"
        if self.privacy is not None:
            missing = "[privacy]: numbers are set by looking at exact objectives, which noise hides"
        if self.privacy is not None or self.every == 0:
            later = ", ".join(automatic(self.make_algorithm()))
            raise CompositeFLError(f"[algorithm {label}] lacks {later} under {missing}; give them")

    def _check_length(self) -> None:
        """Refuse a model that no message may hold, by its shapes, before it is made."""
        model = self.make_model()
        try:
            shapes = jax.eval_shape(model.init, jax.random.key(self.seed))
        except jax.errors.JAXTypeError:  # a start of one's own that JAX cannot trace
            shapes = self.start()
        numbers = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shapes))
        length = numbers * np.dtype(self.dtype).itemsize
        if length > self.network.limit:
            raise CompositeFLError(
                f"[model] {self.model['name']}: its {numbers:,} parameters take "
                f"{length / MEBIBYTE:,.0f} MB, more than "
                f"largest_message_mb={self.network.largest_message_mb} of [network]"
            )

    def _check_data(self) -> None:
        if self.data is None:
            return
        shape, classes = self.model.get("input_shape"), self.make_model().classes
        if shape not in (None, [len(self.data.features)]):
            raise CompositeFLError(
                f"[model] input_shape={shape}, but [data] names {len(self.data.features)} features"
            )
        if self.data.labels and classes != len(self.data.labels):
            raise CompositeFLError(
                f"[data] names {len(self.data.labels)} labels, but the model has "
                f"{classes or 'no'} classes"
            )

    def _check_privacy(self, algorithm: Algorithm, label: str) -> None:
        privacy = self.privacy
        if privacy is not None and privacy.epsilon is not None:
            cost = epsilon(privacy, self.rounds)
            if cost > privacy.epsilon:
                raise CompositeFLError(
                    f"[privacy] epsilon={privacy.epsilon:g} is less than the {cost:.4g} of "
                    f"{self.rounds} rounds; more noise or fewer rounds"
                )
        if self.eval_every != 0:
            raise CompositeFLError(
                "[privacy] needs eval_every = 0: evaluations send exact losses and gradients"
            )
        if "mean_full_gradient" in algorithm.needs:
            raise CompositeFLError(f"[privacy]: {label} also sends full gradients, without noise")
        if not algorithm.allows_noise:
            raise CompositeFLError(
                f"[privacy]: {label} does not allow noise on its uploads, which must match a state "
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
        if self.glm is not None:
            return 0
        return 0 if self.eval_every == 0 else Options(**self.shared()).every

    @property
    def minimum(self) -> int:
        """Sites that must answer for a round to count.

        Where an algorithm of one's own cannot be looked up (the administrator's machine need not
        have it), what the file says; the server knows whether it needs all.
        """
        if self.glm is not None:
            return len(self.sites) if self.glm.missing == "wait" else 1
        module, own, _ = self.algorithm["name"].partition(":")
        if (not own or accepts(module, self.modules)) and self.algorithm_class().needs_everyone:
            return len(self.sites)
        return self.minimum_sites or len(self.sites) // 2 + 1

    def make_regularizer(self) -> Regularizer:
        """phi, without a weight on the unpenalized parameters."""
        weight = self.path[0] if self.path and self.weight is None else self.weight
        return penalty.make(
            self.regularizer, self.regularizers, self.unpenalized, weight, self.modules
        )

    def algorithm_class(self) -> type[Algorithm]:
        """The class that [algorithm] names."""
        name = self.algorithm["name"]
        if is_reference(name):
            return own_class(name, Algorithm, self.modules)
        if name not in ALGORITHMS:
            raise unknown_name("algorithm", name, ALGORITHMS)
        return ALGORITHMS[name]

    def make_algorithm(self) -> Algorithm:
        """The algorithm with the regulariser and its numbers, "auto" where they set themselves."""
        numbers = {k: v for k, v in self.algorithm.items() if k != "name"}
        label = f"algorithm {self.algorithm['name']}"
        return fill(self.algorithm_class(), label, numbers, regularizer=self.make_regularizer())

    def make_model(self) -> Model:
        """The model: one of the library by its name, or what a factory `module:name` makes."""
        options = dict(self.model)
        name = options.pop("name")
        if self.data is not None and not is_reference(name):
            options = {"input_shape": [len(self.data.features)]} | options
            if self.data.labels:
                options = {"classes": len(self.data.labels)} | options
        try:
            if is_reference(name):
                made = own_factory(name, Model, self.modules)(**options)
                return require_kind(name, made, Model)
            if name in models.MODELS:
                _check_given(name, options)
            return models.build(name, **({"classes": None} | options))
        except (CompositeFLError, TypeError) as error:
            raise CompositeFLError(f"[model] {name}: {error}") from error

    def start(self) -> Params:
        """The starting point, as the simulation of `model.problem(clients, seed=seed)` has it."""
        return jax.tree.map(np.asarray, self.make_model().init(jax.random.key(self.seed)))


def _check_given(model: str, options: PlainValues) -> None:
    """What a model of the library must know of the data."""
    if "input_shape" not in options:
        raise CompositeFLError("input_shape is missing, such as [28, 28, 1], or a table [data]")
    if "classes" not in options and model not in models.REGRESSION:
        raise CompositeFLError("classes is missing: their number here, or labels in [data]")


SHARED = tuple(f.name for f in dataclasses.fields(Federation) if f.name in DEFAULTS)
TABLES = {  # a table per concern: its own dataclass in entries.py
    "data": DataTable,
    "glm": GLMTable,
    "limits": Limits,
    "network": Network,
    "privacy": Privacy,
}
