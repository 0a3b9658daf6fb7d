"""FedProx: local proximal points (Li et al. 2020; Yuan and Li, NeurIPS 2022, eq 3)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

import jax
import jax.numpy as jnp

from compositefl.algorithms.base import AveragingAlgorithm, StepSize, wants_theory
from compositefl.core.component import component
from compositefl.core.errors import CompositeFLError, is_concrete, wrong_value
from compositefl.core.types import ClientState, Number
from compositefl.core.vector import Vector, squared_norm


class State(NamedTuple):
    """What the server keeps."""

    x: Vector
    unsolved: Number  # share of the last round's clients that ran out of steps


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    start: Vector
    first: jax.Array  # squared norm of the subproblem's gradient at the start
    solved: jax.Array


class Upload(NamedTuple):
    """What a client sends back."""

    dx: Vector
    unsolved: Number


@component
class FedProx(AveragingAlgorithm):
    """x_i ~ argmin_u h(u), h(u) = f_i(u) + ||u - x||^2/(2 eta); then x = mean(x_i).

    The subproblem is solved by u <- u - eta_a grad h(u) from x, until Li et al.'s rule

        ||grad h(u)|| <= accuracy * ||grad h(x)||

    holds at a point where the gradient was evaluated, or local_steps steps are made; the server
    state tells the share of clients that were cut off. h is strongly convex with m = 1/eta - nu,
    f_i being nu-weakly convex (nu = 0 if convex, at most L), so the rule bounds the gap of
    Definition 2 too: h(u) - min h <= ||grad h(u)||^2 / (2m). With minibatches the rule sees
    stochastic gradients and is only a heuristic. accuracy=0 always makes local_steps steps.

    eta = inf (and accuracy = 0) is FedAvg. A fixed eta leaves a bias proportional to eta; the
    server's prox has parameter eta. local_lr="theory" with eta="theory" leaves both to the theorem,
    which also asks for a gap that local_steps must be large enough to reach. Stateless clients: the
    theorems sample them with replacement and allow any number of them.
    """

    paper = "Li et al. (2020); Yuan, Li (2022), eq 3 and Theorem 1"
    covers = "smooth nonconvex"
    eta_hat_formula = "eta"
    stops_early = True

    _: KW_ONLY
    eta: StepSize
    accuracy: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        known = is_concrete(self.eta)
        if (known and not self.eta > 0) or (isinstance(self.eta, str) and not wants_theory(self)):
            raise wrong_value("eta", self.eta, "> 0 (infinity: no penalty)")
        if is_concrete(self.accuracy) and not 0 <= self.accuracy < 1:
            raise wrong_value("accuracy", self.accuracy, "in [0, 1)")

    def check(self) -> None:
        if self.composite == "server-prox" and self.eta == float("inf"):
            raise CompositeFLError(
                "eta=inf leaves the server's prox no parameter; use FedAvg",
                parameter="eta",
                value=self.eta,
            )
        super().check()

    @property
    def eta_hat(self) -> Number:
        return self.eta

    def init_server(self, x0: Vector) -> State:
        return State(x0, jnp.zeros(()))

    def broadcast(self, server: State) -> Vector:
        return server.x

    def begin(self, message: Vector, client: ClientState) -> Local:
        return Local(message, message, jnp.zeros_like(squared_norm(message)), jnp.asarray(False))

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        x, start = local.x, local.start
        gradient = self.total_gradient(gradient, x) + (x - start) / self.eta
        now = squared_norm(gradient)
        first = jnp.where(l == 0, now, local.first)
        solved = now <= self.accuracy**2 * first
        x = x - jnp.where(solved, 0.0, self.local_lr) * gradient  # stay where the rule holds
        return Local(x, start, first, solved)

    def finished(self, local: Local) -> jax.Array:
        return local.solved

    def finish(self, local: Local, steps: Number) -> tuple[Upload, ClientState]:
        return Upload(local.x - local.start, jnp.where(local.solved, 0.0, 1.0)), ()

    def update(self, server: State, mean_upload: Upload, participation: Number) -> State:
        return State(self.server_prox(server.x + mean_upload.dx), mean_upload.unsolved)

    def model(self, server: State) -> Vector:
        return server.x
