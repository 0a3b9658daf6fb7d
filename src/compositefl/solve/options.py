"""The options of a run, checked in one place."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from compositefl.algorithms.base import Algorithm, wants_theory
from compositefl.core.errors import (
    CompositeFLError,
    is_concrete,
    require_integer,
    require_positive,
    wrong_value,
)
from compositefl.core.vector import Vector
from compositefl.problem import Problem


def residual_gamma(algorithms: Sequence[Algorithm]) -> float:
    """The prox parameter of natural residual and normal map where none is given.

    The first gamma of a method that is below every 1/rho, else min(1, half of the smallest 1/rho).
    """
    limit = min(float(a.regularizer.max_prox) for a in algorithms)
    gammas: list[Any] = [getattr(a, "gamma", None) for a in algorithms]
    known = (float(gamma) for gamma in gammas if is_concrete(gamma))
    return next((gamma for gamma in known if 0 < gamma < limit), min(1.0, limit / 2))


CHOICES = {"weights": ("uniform", "size", None), "dtype": ("float32", "float64")}


@dataclass(frozen=True)
class Options:
    """How to run; `minimize` says what each one means."""

    rounds: int
    batch_size: int | None = None
    seed: int = 0
    eval_every: int | None = None
    eval_gamma: float | None = None  # see `residual_gamma`
    participation: float | int = 1.0
    replacement: bool = False
    dropout: float = 0.0
    stragglers: float = 0.0
    weights: str | None = None
    dtype: str = "float32"
    tolerance: float | None = None
    checkpoint: str | Path | None = None
    resume: bool = False
    progress: bool = True
    devices: int | None = None
    client_block: int | None = None

    def __post_init__(self) -> None:
        require_integer(rounds=self.rounds)
        require_integer(minimum=0, seed=self.seed)
        if self.seed >= 2**32:
            raise wrong_value("seed", self.seed, "below 2^32")
        for name in ("batch_size", "eval_every", "devices", "client_block"):
            if getattr(self, name) is not None:
                require_integer(**{name: getattr(self, name)})
        for name in ("eval_gamma", "tolerance"):
            if getattr(self, name) is not None:
                require_positive(**{name: getattr(self, name)})
        for name in ("dropout", "stragglers"):
            if not 0 <= getattr(self, name) < 1:
                raise wrong_value(name, getattr(self, name), "a probability in [0, 1)")
        for name, allowed in CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, (str, type(None))) or value not in allowed:
                words = " or ".join(repr(word) for word in allowed if word)
                raise wrong_value(name, value, words, shown=repr(value))
        if self.devices is not None and self.devices > len(jax.devices()):
            raise CompositeFLError(
                f"devices={self.devices} but this process has {len(jax.devices())}",
                parameter="devices",
                value=self.devices,
            )
        path = self.checkpoint_path
        if path is not None and path.exists() and not self.resume:
            raise CompositeFLError(
                f"checkpoint={path} exists; pass resume=True to go on from it, or remove it",
                parameter="checkpoint",
                value=path,
            )

    def settled(self, algorithms: Sequence[Algorithm]) -> "Options":
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

    @property
    def checkpoint_path(self) -> Path | None:
        return None if self.checkpoint is None else Path(self.checkpoint)

    @property
    def every(self) -> int:
        """Rounds between two evaluations."""
        return self.eval_every or max(1, self.rounds // 50)

    def client_weights(self, problem: Problem) -> np.ndarray:
        """The weight of each client in f, up to scale."""
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

    def faults(self) -> list[str]:
        """What goes wrong in this run, in words: no theorem covers it."""
        lost = [f"uploads are lost (dropout={self.dropout})"] if self.dropout else []
        slow = [f"clients stop early (stragglers={self.stragglers})"] if self.stragglers else []
        return lost + slow

    def check(self, problem: Problem, algorithm: Algorithm) -> None:
        """Refuse what does not go together; the algorithm carries its regulariser."""
        name = type(algorithm).__name__
        if wants_theory(algorithm):
            raise CompositeFLError("local_lr='theory' is understood by minimize alone")
        self._check_engine(problem)
        algorithm.check()
        algorithm.regularizer.check_tree(problem.params)
        if self.eval_gamma is not None:
            algorithm.regularizer.check_prox("eval_gamma", self.eval_gamma)
        clients = len(problem.sizes)
        whole = self.client_count(clients) == clients and not self.replacement and not self.dropout
        if algorithm.needs_everyone and not whole:
            raise CompositeFLError(
                f"participation={self.participation}, replacement={self.replacement}, "
                f"dropout={self.dropout}: {name} needs all clients in every round, because "
                f"{algorithm.needs_everyone}"
            )
        if self.replacement and jax.tree.leaves(algorithm.init_client(Vector(problem.params))):
            raise CompositeFLError(
                f"replacement=True: {name} keeps a state on its clients, and a client that is "
                "drawn twice would count twice but change its state once"
            )
        if algorithm.needs_all_steps and self.stragglers:
            raise CompositeFLError(
                f"stragglers={self.stragglers}: {name} needs all local steps of every client, "
                f"because {algorithm.needs_all_steps}"
            )

    def _check_engine(self, problem: Problem) -> None:
        """Refuse what the loop for losses outside JAX cannot do."""
        if problem.compiles:
            return
        for name, harmless in (("devices", 1), ("client_block", None)):
            value = getattr(self, name)
            if value not in (None, harmless):
                raise CompositeFLError(
                    f"{name}={value} is for losses that JAX compiles; with this one, such as a "
                    "PyTorch module's, clients work one after the other: leave it out",
                    parameter=name,
                    value=value,
                )

    def noise(self, algorithm: Algorithm, clients: int) -> list[str]:
        """What makes the rounds random, in words."""
        sampled = self.replacement or self.client_count(clients) < clients
        causes = {
            "minibatches": self.batch_size is not None and not algorithm.exact_gradients,
            "sampled clients": sampled,
            "lost uploads": self.dropout > 0,
            "stragglers": self.stragglers > 0,
        }
        return [name for name, is_there in causes.items() if is_there]

    def describe(self) -> dict[str, Any]:
        """The options that the trajectory depends on, as plain values."""
        return {
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
