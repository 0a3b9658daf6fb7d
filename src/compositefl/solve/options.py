"""The options of a run, checked in one place."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from compositefl.algorithms.base import Algorithm, wants_theory
from compositefl.core.errors import CompositeFLError, require_integer, require_positive
from compositefl.core.vector import Vector
from compositefl.engine.hessian import check_hessian
from compositefl.problem import Problem


@dataclass(frozen=True)
class Options:
    """How to run; `minimize` says what each one means."""

    rounds: int
    batch_size: int | None = None
    seed: int = 0
    eval_every: int | None = None
    eval_gamma: float = 1.0
    participation: float | int = 1.0
    replacement: bool = False
    dropout: float = 0.0
    stragglers: float = 0.0
    weights: str = "uniform"
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
            raise CompositeFLError(f"seed={self.seed} must be below 2^32")
        for name in ("batch_size", "eval_every", "devices", "client_block"):
            if getattr(self, name) is not None:
                require_integer(**{name: getattr(self, name)})
        require_positive(eval_gamma=self.eval_gamma)
        if self.tolerance is not None:
            require_positive(tolerance=self.tolerance)
        for name in ("dropout", "stragglers"):
            if not 0 <= getattr(self, name) < 1:
                raise CompositeFLError(
                    f"{name}={getattr(self, name)} must be a probability in [0, 1)"
                )
        if self.weights not in ("uniform", "size"):
            raise CompositeFLError(f"weights='{self.weights}' must be 'uniform' or 'size'")
        if self.dtype not in ("float32", "float64"):
            raise CompositeFLError(f"dtype='{self.dtype}' must be 'float32' or 'float64'")
        if self.devices is not None and self.devices > len(jax.devices()):
            raise CompositeFLError(
                f"devices={self.devices} but this process has {len(jax.devices())}"
            )
        path = self.checkpoint_path
        if path is not None and path.exists() and not self.resume:
            raise CompositeFLError(
                f"checkpoint={path} exists; pass resume=True to go on from it, or remove it"
            )

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
            raise CompositeFLError(f"participation={share!r} must be a number")
        if isinstance(share, float):
            if not 0 < share <= 1:
                raise CompositeFLError(f"participation={share} must be a share in (0, 1]")
            return max(1, round(share * clients))
        if share == 1 and clients > 1:
            raise CompositeFLError(
                "participation=1 is ambiguous: write 1.0 for all clients, "
                f"{1 / clients:.3g} for one of {clients}"
            )
        if not 1 <= share <= clients:
            raise CompositeFLError(f"participation={share} must be in 1..{clients} clients")
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
        algorithm.check()
        algorithm.regularizer.check_tree(problem.params)
        algorithm.regularizer.check_prox("eval_gamma", self.eval_gamma)
        check_hessian(algorithm, problem.loss, problem.parameter_count)
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
            "weights": self.weights,
            "dtype": self.dtype,
        }
