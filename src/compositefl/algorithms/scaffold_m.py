"""SCAFFOLD-M: SCAFFOLD with momentum in the local steps (Cheng, Huang, Wu, Yuan, ICLR 2024)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

from compositefl.algorithms.base import SmoothAlgorithm
from compositefl.core.component import component
from compositefl.core.errors import require_share
from compositefl.core.types import Number
from compositefl.core.vector import Vector


class State(NamedTuple):
    """What the server keeps, and what it broadcasts."""

    x: Vector
    c: Vector  # mean of all clients' controls
    d: Vector  # the mean direction of the last round


class Client(NamedTuple):
    """What a client keeps from round to round."""

    c: Vector  # mean of the client's gradients in its last round


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    start: State
    c: Vector
    total: Vector  # sum of the round's gradients


class Upload(NamedTuple):
    """What a client sends back."""

    direction: Vector
    dc: Vector


@component
class ScaffoldM(SmoothAlgorithm):
    """Local steps along b (g_i - c_i + c) + (1 - b) d, with d the last round's mean direction.

        x_i <- x_i - eta_a (b (g_i(x_i) - c_i + c) + (1 - b) d), Q times
        c_i <- (1/Q) sum of the g_i;  d <- mean (x - x_i)/(eta_a Q);  x <- x - eta_hat d

    b = gradient_weight is the paper's beta; 1 gives SCAFFOLD. With b < 1 the move of x_i no longer
    tells the mean gradient, so the client sums its gradients. All controls start at 0 (in the
    paper's theory at a minibatch gradient at x_0).

    The paper treats sampled clients: those outside the sample keep c_i, and the server moves c by
    the participating share of the mean change.
    """

    paper = "Cheng, Huang, Wu, Yuan (2024)"
    covers = "smooth nonconvex"
    divides_by_step = True

    _: KW_ONLY
    gradient_weight: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share(gradient_weight=self.gradient_weight)

    def init_server(self, x0: Vector) -> State:
        return State(x0, x0.zeros(), x0.zeros())

    def init_client(self, x0: Vector) -> Client:
        return Client(x0.zeros())

    def broadcast(self, server: State) -> State:
        return server

    def begin(self, message: State, client: Client) -> Local:
        return Local(message.x, message, client.c, message.x.zeros())

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        gradient = self.total_gradient(gradient, local.x)
        b, start = self.gradient_weight, local.start
        direction = b * (gradient - local.c + start.c) + (1.0 - b) * start.d
        x = local.x - self.local_lr * direction
        return local._replace(x=x, total=local.total + gradient)

    def finish(self, local: Local, steps: Number) -> tuple[Upload, Client]:
        direction = (local.start.x - local.x) / (self.local_lr * steps)
        c = local.total / steps
        return Upload(direction, c - local.c), Client(c)

    def update(self, server: State, mean_upload: Upload, participation: Number) -> State:
        x = self.server_prox(server.x - self.eta_hat * mean_upload.direction)
        c = server.c + participation * mean_upload.dc
        return State(x, c, mean_upload.direction)

    def model(self, server: State) -> Vector:
        return server.x
