"""FedAvg: local SGD and averaging (McMahan et al. 2017)."""

from typing import NamedTuple

from compositefl.algorithms.base import SmoothAlgorithm
from compositefl.core.component import component
from compositefl.core.types import ClientState, Number
from compositefl.core.vector import Vector


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    start: Vector


@component
class FedAvg(SmoothAlgorithm):
    """x_i <- x_i - eta_a g_i(x_i), Q times; then x += eta_s * mean(x_i - x).

    Stateless clients: any part of them may take part. With composite="server-prox" it is FedMiD
    with the prox on the server only.
    """

    paper = "McMahan et al. (2017)"
    covers = "smooth; drifts on heterogeneous clients"
    prox_counts_steps = True
    allows_noise = True

    def init_server(self, x0: Vector) -> Vector:
        return x0

    def broadcast(self, server: Vector) -> Vector:
        return server

    def begin(self, message: Vector, client: ClientState) -> Local:
        return Local(message, message)

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        return local._replace(x=local.x - self.local_lr * self.total_gradient(gradient, local.x))

    def finish(self, local: Local, steps: Number) -> tuple[Vector, ClientState]:
        return local.x - local.start, ()

    def update(self, server: Vector, mean_upload: Vector, participation: Number) -> Vector:
        return self.server_prox(server + self.server_lr * mean_upload)

    def model(self, server: Vector) -> Vector:
        return server
