"""FedDA: federated dual averaging, Euclidean (Yuan, Zaheer, Reddi 2021)."""

from typing import NamedTuple

import jax.numpy as jnp

from compositefl.algorithms.base import FederatedAlgorithm
from compositefl.core.component import component
from compositefl.core.errors import CompositeFLError
from compositefl.core.types import ClientState, Number
from compositefl.core.vector import Vector


class State(NamedTuple):
    """What the server keeps, and what it broadcasts."""

    y: Vector  # dual
    elapsed: Number  # S_t, the sum of all steps so far


class Local(NamedTuple):
    """A client's state within a round."""

    y: Vector
    start: State


@component
class FedDA(FederatedAlgorithm):
    """Gradients accumulate in a dual y; models are prox_S(y) with S all the steps taken so far.

        w = prox_{S_t + l eta_a}(y_i);  y_i <- y_i - eta_a g_i(w), Q times
        y <- y + eta_s mean(y_i - y);  S_{t+1} = S_t + eta_hat

    The prox parameter grows without bound, so phi must be convex. Stateless clients: any part of
    them may take part.
    """

    paper = "Yuan, Zaheer, Reddi (2021)"
    covers = "convex f and phi"
    allows_noise = True
    needs_all_steps = "its prox parameter counts Q steps of every client"

    def check(self) -> None:
        if not self.regularizer.convex:
            raise CompositeFLError(
                f"FedDA needs a convex regulariser: its prox parameter grows past 1/rho of "
                f"{self.regularizer!r}"
            )

    def init_server(self, x0: Vector) -> State:
        return State(x0, jnp.zeros(()))

    def broadcast(self, server: State) -> State:
        return server

    def begin(self, message: State, client: ClientState) -> Local:
        return Local(message.y, message)

    def query(self, local: Local, l: Number) -> Vector:
        return self.prox(local.y, local.start.elapsed + l * self.local_lr)

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        return local._replace(y=local.y - self.local_lr * gradient)

    def finish(self, local: Local, steps: Number) -> tuple[Vector, ClientState]:
        return local.y - local.start.y, ()

    def update(self, server: State, mean_upload: Vector, participation: Number) -> State:
        return State(server.y + self.server_lr * mean_upload, server.elapsed + self.eta_hat)

    def model(self, server: State) -> Vector:
        return self.prox(server.y, server.elapsed)
