"""The options of a run, declared and checked in one place.

Nothing here loads JAX before a run is checked: the command line makes its options of these fields.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_type_hints

from compositefl.core.errors import (
    CompositeFLError,
    is_concrete,
    require_integer,
    require_positive,
    require_single,
    wrong_value,
)
from compositefl.core.types import PlainValues

if TYPE_CHECKING:
    import numpy as np

    from compositefl.algorithms.base import Algorithm
    from compositefl.problem import Problem


def residual_gamma(algorithms: Sequence["Algorithm"]) -> float:
    """The prox parameter of natural residual and normal map where none is given.

    The first gamma of a method that is below every 1/rho, else min(1, half of the smallest 1/rho).
    """
    limit = min(float(a.regularizer.max_prox) for a in algorithms)
    gammas: list[Any] = [getattr(a, "gamma", None) for a in algorithms]
    known = (float(gamma) for gamma in gammas if is_concrete(gamma))
    return next((gamma for gamma in known if 0 < gamma < limit), min(1.0, limit / 2))


CHOICES = {
    "weights": ("uniform", "size", None),
    "dtype": ("float32", "float64"),
    "states": ("memory", "disk"),
    "states_dtype": ("bfloat16", "float32", None),
}


@dataclass(frozen=True)
class Options:
    """How to run; `minimize` says more about each."""

    rounds: Annotated[int, "Rounds."]
    batch_size: Annotated[
        int | None, "Samples of a local gradient; default all of the client's."
    ] = None
    seed: Annotated[int, "Of all sampling, and of the data and the start."] = 0
    eval_every: Annotated[
        int | None, "Rounds between two rows of the history; default about 50 rows."
    ] = None
    eval_gamma: Annotated[
        float | None,
        "Prox parameter of the residual; default the algorithm's gamma, else 1 or half of 1/rho.",
    ] = None
    participation: Annotated[float | int, "Clients in a round: a share (0.5) or a number (5)."] = (
        1.0
    )
    replacement: Annotated[bool, "Draw the clients of a round with replacement."] = False
    dropout: Annotated[float, "Probability that an upload is lost."] = 0.0
    stragglers: Annotated[float, "Probability that a client stops before its last step."] = 0.0
    weights: Annotated[str | None, "Weight of a client: uniform or size; default uniform."] = None
    dtype: Annotated[str, "float32 or float64."] = "float32"
    tolerance: Annotated[float | None, "Stop when the norm of the natural residual is below."] = (
        None
    )
    checkpoint: Annotated[str | Path | None, "File for all state."] = None
    resume: Annotated[bool, "Go on from the checkpoint."] = False
    states: Annotated[str, "Where clients' states are kept: memory or disk."] = "memory"
    states_dtype: Annotated[
        str | None, "Type in which they are kept: bfloat16 or float32; default that of the run."
    ] = None
    progress: Annotated[bool, "Show a progress bar."] = True
    devices: Annotated[int | None, "Devices that share the clients; default all."] = None
    client_block: Annotated[
        int | None, "Clients worked on at once on a device; default what fits memory."
    ] = None

    def __post_init__(self) -> None:
        for name in ("rounds", "batch_size", "seed", "eval_every", "devices", "client_block"):
            value = getattr(self, name)
            if value is not None or name in ("rounds", "seed"):
                require_integer(0 if name == "seed" else 1, **{name: value})
                object.__setattr__(self, name, int(value))  # 3.0 is 3 to everyone
        share: Any = self.participation
        if getattr(share, "ndim", None) == 0:  # a number of NumPy or JAX
            object.__setattr__(self, "participation", share.item())
        if self.seed >= 2**32:
            raise wrong_value("seed", self.seed, "below 2^32")
        for name in ("eval_gamma", "tolerance"):
            value = getattr(self, name)
            if value is not None:
                require_single("a single number", **{name: value})
                require_positive(**{name: value})
        for name in ("dropout", "stragglers"):
            value = getattr(self, name)
            if not is_concrete(value) or not 0 <= value < 1:
                raise wrong_value(name, value, "a probability in [0, 1)", shown=repr(value))
        for name in ("replacement", "resume"):
            value = getattr(self, name)
            if getattr(value, "ndim", None) == 0:  # of NumPy
                value = value.item()
            if not isinstance(value, bool):
                raise wrong_value(name, value, "True or False", shown=repr(value))
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, (str, type(None))) or value not in allowed:
                words = " or ".join(repr(word) for word in allowed if word)
                raise wrong_value(name, value, words, shown=repr(value))
        self._check_devices()
        path = self.checkpoint_path
        if path is None and self.resume:
            raise CompositeFLError(
                f"resume={self.resume} needs checkpoint=, the file to go on from",
                parameter="resume",
                value=self.resume,
            )
        if path is not None and path.exists() and not self.resume:
            raise CompositeFLError(
                f"checkpoint={path} exists; ",
                parameter="checkpoint",
                value=path,
                remedy="resume",
            )

    def settled(self, algorithms: Sequence["Algorithm"]) -> "Options":
        """The same with a number for eval_gamma, one for all algorithms that are compared."""
        if self.eval_gamma is not None:
            return self
        return replace(self, eval_gamma=residual_gamma(algorithms))

    @property
    def gamma(self) -> float:
        """eval_gamma of options that are settled."""
        if self.eval_gamma is None:
            raise CompositeFLError("eval_gamma is not settled yet")
        return self.eval_gamma

    def _check_devices(self) -> None:
        if self.devices is None:
            return
        import jax

        from compositefl.configuration import more_threads, pool_threads

        problem = None
        if self.devices > len(jax.devices()):
            problem = f"this process has {len(jax.devices())}"
        elif self.devices > 1 and jax.default_backend() == "cpu" and pool_threads() <= self.devices:
            problem = (
                f"XLA has {pool_threads()} threads, and batched linear algebra would wait for ever "
                f"with one per device: {more_threads(self.devices)}"
            )
        if problem:
            raise CompositeFLError(
                f"devices={self.devices} but {problem}", parameter="devices", value=self.devices
            )

    @property
    def checkpoint_path(self) -> Path | None:
        """The file for all state."""
        return None if self.checkpoint is None else Path(self.checkpoint)

    @property
    def states_path(self) -> Path | None:
        """The file of the clients' states; None for one without a name."""
        path = self.checkpoint_path
        return None if path is None else path.with_name(path.name + ".states")

    @property
    def streamed(self) -> bool:
        """Clients' states are not kept as the devices compute them."""
        return self.states == "disk" or (self.states_dtype or self.dtype) != self.dtype

    @property
    def every(self) -> int:
        """Rounds between two evaluations."""
        return self.eval_every or max(1, self.rounds // 50)

    def client_weights(self, problem: "Problem") -> "np.ndarray":
        """The weight of each client in f, up to scale."""
        import numpy as np

        size = problem.sizes.astype(float)
        return size if self.weights == "size" else np.ones_like(size)

    def client_count(self, clients: int) -> int:
        """Clients drawn in a round."""
        share = self.participation
        if isinstance(share, bool) or not isinstance(share, (int, float)):
            raise wrong_value("participation", share, "a number", shown=repr(share))
        if isinstance(share, float):
            if not 0 < share <= 1:
                raise wrong_value("participation", share, "a share in (0, 1]")
            return max(1, round(share * clients))
        if share == 1 and clients > 1:
            raise CompositeFLError(
                "participation=1 is ambiguous: write 1.0 for all clients, "
                f"{1 / clients:.3g} for one of {clients}",
                parameter="participation",
                value=share,
            )
        if not 1 <= share <= clients:
            raise wrong_value("participation", share, f"in 1..{clients} clients")
        return share

    def _absences(self, clients: int) -> dict[str, float]:
        """The options that keep some client out of a round, with their values."""
        keeps_out = {
            "participation": self.client_count(clients) < clients,
            "replacement": self.replacement,
            "dropout": self.dropout > 0,
        }
        return {name: getattr(self, name) for name, so in keeps_out.items() if so}

    def faults(self) -> list[str]:
        """What goes wrong in this run, in words: no theorem covers it."""
        lost = [f"uploads are lost (dropout={self.dropout})"] if self.dropout else []
        slow = [f"clients stop early (stragglers={self.stragglers})"] if self.stragglers else []
        return lost + slow

    def check(self, problem: "Problem", algorithm: "Algorithm") -> None:
        """Refuse what does not go together; the algorithm carries its regulariser."""
        import jax

        from compositefl.algorithms.base import Knobs, require_numbers, wants_theory
        from compositefl.core.vector import Vector
        from compositefl.engine.hessian import check_hessian

        name = type(algorithm).__name__
        if wants_theory(algorithm):
            raise CompositeFLError(
                "local_lr='theory' is understood by minimize alone",
                parameter="local_lr",
                value="theory",
            )
        require_numbers(algorithm)
        algorithm = algorithm.at(Knobs(1e-6, 1))  # numbers that set themselves are in their range
        self._check_engine(problem)
        algorithm.check()
        algorithm.regularizer.check_tree(problem.params)
        if self.eval_gamma is not None:
            algorithm.regularizer.check_prox("eval_gamma", self.eval_gamma)
        check_hessian(algorithm, problem.loss, problem.parameter_count)
        clients = len(problem.sizes)
        if algorithm.needs_everyone and (absent := self._absences(clients)):
            (first, value), *others = absent.items()
            given = ", ".join(f"{option}={value}" for option, value in absent.items())
            raise CompositeFLError(
                f"{given}: {name} needs all clients in every round, because "
                f"{algorithm.needs_everyone}",
                parameter=first,
                value=value,
                also=dict(others),
            )
        if self.replacement and jax.tree.leaves(algorithm.init_client(Vector(problem.params))):
            raise CompositeFLError(
                f"replacement=True: {name} keeps a state on its clients, and a client that is "
                "drawn twice would count twice but change its state once",
                parameter="replacement",
                value=True,
            )
        if algorithm.needs_all_steps and self.stragglers:
            raise CompositeFLError(
                f"stragglers={self.stragglers}: {name} needs all local steps of every client, "
                f"because {algorithm.needs_all_steps}",
                parameter="stragglers",
                value=self.stragglers,
            )

    def _check_engine(self, problem: "Problem") -> None:
        """Refuse what the loop for losses outside JAX cannot do."""
        if problem.compiles:
            return
        only_compiled = (
            ("devices", 1),
            ("client_block", None),
            ("states", "memory"),
            ("states_dtype", self.dtype),
        )
        for name, harmless in only_compiled:
            value = getattr(self, name)
            if value not in (None, harmless):
                raise CompositeFLError(
                    f"{name}={value} is for losses that JAX compiles; with this one, such as a "
                    "PyTorch module's, clients work one after the other: leave it out",
                    parameter=name,
                    value=value,
                )

    def noise(self, algorithm: "Algorithm", clients: int) -> list[str]:
        """What makes the rounds random, in words."""
        sampled = self.replacement or self.client_count(clients) < clients
        causes = {
            "minibatches": self.batch_size is not None and not algorithm.exact_gradients,
            "sampled clients": sampled,
            "lost uploads": self.dropout > 0,
            "stragglers": self.stragglers > 0,
        }
        return [name for name, is_there in causes.items() if is_there]

    def describe(self) -> PlainValues:
        """The options that the trajectory depends on, as plain values."""
        # Where states are kept is no part of the trajectory, but of what a checkpoint holds.
        kept = {"states": self.states, "states_dtype": self.states_dtype} if self.streamed else {}
        return kept | {
            "batch_size": self.batch_size,
            "seed": self.seed,
            "eval_gamma": self.eval_gamma,
            "participation": self.participation,
            "replacement": self.replacement,
            "dropout": self.dropout,
            "stragglers": self.stragglers,
            "weights": self.weights or "uniform",
            "dtype": self.dtype,
        }


class OptionField(NamedTuple):
    """What is known of an option: its name, its types (None among them if it may be left out),
    its default (dataclasses.MISSING: none) and one line about it."""

    name: str
    types: tuple[type | None, ...]
    default: Any
    help: str


def options_fields() -> dict[str, OptionField]:
    """The options by name: the one source of what others offer (command line, federation)."""
    hints = get_type_hints(Options, include_extras=True)
    found = {}
    for field in dataclasses.fields(Options):
        annotation, text = get_args(hints[field.name])
        types = get_args(annotation) or (annotation,)
        types = tuple(None if kind is type(None) else kind for kind in types)
        found[field.name] = OptionField(field.name, types, field.default, text)
    return found
