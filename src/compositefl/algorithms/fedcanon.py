"""FedCanon and FedCanon II: one prox a round (Zhou et al., arXiv 2504.11903)."""

from typing import NamedTuple, Self

import jax.numpy as jnp

from compositefl.algorithms.base import FederatedAlgorithm, Knobs, automatic
from compositefl.core.component import component
from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Array, Broadcast, ClientState, Number, ServerState
from compositefl.core.vector import Vector


class State(NamedTuple):
    """What the server keeps, and what it broadcasts."""

    x: Vector
    v: Vector  # mean of all clients' h_i


class Client(NamedTuple):
    """What a client keeps from round to round."""

    h: Vector  # mean of the client's gradients in its last round


class Local(NamedTuple):
    """A client's state within a round."""

    z: Vector
    x: Vector
    c: Vector


@component
class FedCanon(FederatedAlgorithm):
    """Clients run plain corrected SGD; the server takes one proximal gradient step.

        z <- z - beta (g_i(z) + c_i), Q times;  v_i = (x - z)/(beta Q)
        x <- prox_alpha(x - alpha v)

    The paper's beta is local_lr and its alpha is eta_hat = local_lr * server_lr * local_steps.
    The correction c_i + v - v_i of the paper is v - h_i with h_i the client's mean gradient. With
    Q > 1 it stops at a distance proportional to beta from the solution. The paper's pseudo-code has
    all clients in every round; the (h_i, v) form, like SCAFFOLD's, also works with some of them.
    """

    paper = "Zhou et al. (2025)"
    covers = "nonconvex f, weakly convex phi with bounded subgradients"
    divides_by_step = True

    def check(self) -> None:
        self.regularizer.check_prox("eta_hat = local_lr*server_lr*local_steps", self.eta_hat)

    def init_server(self, x0: Vector) -> ServerState:
        return State(x0, x0.zeros())

    def init_client(self, x0: Vector) -> ClientState:
        return Client(x0.zeros())

    def broadcast(self, server: State) -> Broadcast:
        return server

    def begin(self, message: Broadcast, client: ClientState) -> Local:
        return Local(message.x, message.x, message.v - client.h)

    def query(self, local: Local, l: Number) -> Vector:
        return local.z

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        return local._replace(z=local.z - self.local_lr * (gradient + local.c))

    def finish(self, local: Local, steps: Number) -> tuple[Vector, ClientState]:
        v = (local.x - local.z) / (self.local_lr * steps)
        return v, Client(v - local.c)

    def update(self, server: State, mean_upload: Vector, participation: Number) -> State:
        x = self.prox(server.x - self.eta_hat * mean_upload, self.eta_hat)
        # v_i - v = (new h_i) - (old h_i): with everyone taking part v becomes the mean upload.
        return State(x, server.v + participation * (mean_upload - server.v))

    def model(self, server: State) -> Vector:
        return server.x


class ClientII(NamedTuple):
    """What a client keeps from round to round."""

    x: Vector  # the model of the last round
    h: Vector
    started: Array  # False before the first round, when x is already x_0


@component
class FedCanonII(FedCanon):
    """FedCanon with one vector down: the clients repeat the proximal step on their own copy of x.

    The iterates are those of FedCanon. The server needs no prox for the method; ours keeps x only
    to be able to hand out the model.
    """

    needs_everyone = "every client must see every v to keep its copy of the model"

    def at(self, knobs: Knobs) -> Self:
        if automatic(self):
            raise CompositeFLError(
                f"{automatic(self)[0]}='auto' must be a number for FedCanonII, whose clients "
                "repeat the server's steps; FedCanon has the same iterates"
            )
        return self

    def init_client(self, x0: Vector) -> ClientII:
        return ClientII(x0, x0.zeros(), jnp.asarray(False))

    def broadcast(self, server: State) -> Vector:
        return server.v

    def begin(self, message: Vector, client: ClientII) -> Local:
        stepped = self.prox(client.x - self.eta_hat * message, self.eta_hat)
        x = client.x.map(lambda old, new: jnp.where(client.started, new, old), stepped)
        return Local(x, x, message - client.h)

    def finish(self, local: Local, steps: Number) -> tuple[Vector, ClientII]:
        v, client = super().finish(local, steps)
        return v, ClientII(local.x, client.h, jnp.asarray(True))

    def update(self, server: State, mean_upload: Vector, participation: Number) -> State:
        # v to the last bit: server and clients step along it, and their copies of x must not part.
        return State(super().update(server, mean_upload, participation).x, mean_upload)
