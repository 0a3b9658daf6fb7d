"""STEM: momentum on both sides (Khanduri et al., NeurIPS 2021)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

import jax.numpy as jnp

from compositefl.algorithms.base import AveragingAlgorithm
from compositefl.core.component import component
from compositefl.core.errors import is_concrete, require_nonnegative, wrong_value
from compositefl.core.types import Number
from compositefl.core.vector import Vector


class State(NamedTuple):
    """What the server keeps, and what it broadcasts."""

    x: Vector
    d: Vector  # mean direction at the clients' last points
    rounds: Number  # done so far


class Client(NamedTuple):
    """What a client keeps from round to round."""

    x: Vector  # where the client's last round ended


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector  # where the next gradient is wanted
    before: Vector  # the point that d belongs to
    d: Vector
    rounds: Number


class Upload(NamedTuple):
    """What a client sends back."""

    x: Vector
    d: Vector


@component
class STEM(AveragingAlgorithm):
    """Local steps along a recursive momentum that the server averages and steps along too.

        x_i+ = x_i - eta_k d_i
        d_i+ = g_i(x_i+) + (1 - a_k)(d_i - g_i(x_i))      (both gradients on one minibatch)

    After Q such pairs x = mean(x_i) and d = mean(d_i), and the next round's first step, from x
    along d, is the server's; the gradient that is subtracted then is still the one at the client's
    own last point, so that d keeps to the mean of the clients' gradients where they are.

    eta_k = eta_a / (1 + step_decay k)^(1/3) and a_k = gradient_weight (eta_k/eta_a)^2 are the
    paper's schedules, k the count of iterations. The first round makes d at the start from Q
    minibatches, without a step; the paper takes one large batch. a = 1 is FedAvg.

    The model is x - eta d, the point after the server's step; the server's prox, with parameter
    Q eta_k, comes after that step. With Q > 1 it stops at a distance that falls with a. The paper
    needs all clients.
    """

    paper = "Khanduri et al. (2021)"
    covers = "smooth nonconvex"
    prox_counts_steps = True
    needs_everyone = "the common direction belongs to the last points of all of them"

    _: KW_ONLY
    gradient_weight: float
    step_decay: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_nonnegative(step_decay=self.step_decay)
        if is_concrete(self.gradient_weight) and not 0 <= self.gradient_weight <= 1:
            raise wrong_value("gradient_weight", self.gradient_weight, "in [0, 1]")

    def eta(self, rounds: Number, l: Number) -> Number:
        """The step of iteration l of a round, `rounds` being those before it."""
        k = jnp.maximum(rounds - 1, 0) * self.local_steps + l
        return self.local_lr / (1 + self.step_decay * k) ** (1 / 3)

    def server_step(self, server: State) -> Vector:
        eta = self.eta(server.rounds, 0)
        x = server.x - eta * server.d
        return self.prox(x, self.local_steps * eta) if self.composite == "server-prox" else x

    def start_at(self, x0: Vector) -> Vector:
        # the prox of `server_step` before the first round, where eta is eta_a
        return x0 + self.eta_hat * self.subgradient(x0) if self.composite == "server-prox" else x0

    def init_server(self, x0: Vector) -> State:
        return State(x0, x0.zeros(), jnp.int32(0))

    def init_client(self, x0: Vector) -> Client:
        return Client(x0)

    def broadcast(self, server: State) -> State:
        return server

    def begin(self, message: State, client: Client) -> Local:
        return Local(self.server_step(message), client.x, message.d, message.rounds)

    def query(self, local: Local, l: Number) -> tuple[Vector, Vector]:
        return local.x, local.before

    def step(self, local: Local, gradient: tuple[Vector, Vector], l: Number) -> Local:
        x, before, d, rounds = local
        here = self.total_gradient(gradient[0], x)
        there = self.total_gradient(gradient[1], before)
        a = self.gradient_weight * (self.eta(rounds, l) / self.local_lr) ** 2
        eta = self.eta(rounds, l + 1)
        # The first round stands still, and a = 1, 1/2, 1/3, ... makes d a mean of its gradients.
        a = jnp.where(rounds == 0, 1 / (l + jnp.ones_like(a)), a)
        eta = jnp.where(rounds == 0, 0.0, eta)
        d = here + (1 - a) * (d - there)
        return Local(x - eta * d, x, d, rounds)

    def finish(self, local: Local, steps: Number) -> tuple[Upload, Client]:
        return Upload(local.before, local.d), Client(local.before)

    def update(self, server: State, mean_upload: Upload, participation: Number) -> State:
        return State(mean_upload.x, mean_upload.d, server.rounds + 1)

    def model(self, server: State) -> Vector:
        return self.server_step(server)
