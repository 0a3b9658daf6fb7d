"""SCAFFOLD: control variates against client drift (Karimireddy et al. 2020)."""

from typing import NamedTuple

from compositefl.algorithms.base import SmoothAlgorithm
from compositefl.core.component import component
from compositefl.core.types import Number
from compositefl.core.vector import Vector


class State(NamedTuple):
    """What the server keeps, and what it broadcasts."""

    x: Vector
    c: Vector  # mean of all clients' controls


class Client(NamedTuple):
    """What a client keeps from round to round."""

    c: Vector


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    start: State
    c: Vector


class Upload(NamedTuple):
    """What a client sends back."""

    dx: Vector
    dc: Vector


@component
class Scaffold(SmoothAlgorithm):
    """x_i <- x_i - eta_a (g_i(x_i) - c_i + c); option II: c_i <- c_i - c + (x - x_i)/(eta_a Q).

    The paper treats sampled clients: those outside the sample keep c_i, and the server moves c by
    the participating share of the mean change.
    """

    paper = "Karimireddy et al. (2020), option II"
    covers = "smooth nonconvex"
    divides_by_step = True
    prox_counts_steps = True

    def init_server(self, x0: Vector) -> State:
        return State(x0, x0.zeros())

    def init_client(self, x0: Vector) -> Client:
        return Client(x0.zeros())

    def broadcast(self, server: State) -> State:
        return server

    def begin(self, message: State, client: Client) -> Local:
        return Local(message.x, message, client.c)

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        gradient = self.total_gradient(gradient, local.x)
        return local._replace(x=local.x - self.local_lr * (gradient - local.c + local.start.c))

    def finish(self, local: Local, steps: Number) -> tuple[Upload, Client]:
        dx = local.x - local.start.x
        dc = -(local.start.c) - dx / (self.local_lr * steps)
        return Upload(dx, dc), Client(local.c + dc)

    def update(self, server: State, mean_upload: Upload, participation: Number) -> State:
        x = self.server_prox(server.x + self.server_lr * mean_upload.dx)
        return State(x, server.c + participation * mean_upload.dc)

    def model(self, server: State) -> Vector:
        return server.x


class LocalI(NamedTuple):
    """A client's state within a round."""

    x: Vector
    start: State
    c: Vector
    new: Vector


@component
class ScaffoldI(Scaffold):
    """SCAFFOLD with option I: c_i <- the full local gradient at the round's start x.

    One pass over the client's data more a round; sampled clients as in option II.
    """

    paper = "Karimireddy et al. (2020), option I"
    needs = frozenset({"full_gradient"})
    divides_by_step = False

    def anchor(self, message: State) -> Vector:
        return message.x

    def begin(self, message: State, client: Client, *, full_gradient: Vector) -> LocalI:  # type: ignore[override]
        new = self.total_gradient(full_gradient, message.x)
        return LocalI(message.x, message, client.c, new)

    def finish(self, local: LocalI, steps: Number) -> tuple[Upload, Client]:  # type: ignore[override]
        return Upload(local.x - local.start.x, local.new - local.c), Client(local.new)
