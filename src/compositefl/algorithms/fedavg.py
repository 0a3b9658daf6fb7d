"""FedAvg: local SGD and averaging (McMahan et al. 2017)."""

from typing import Any, NamedTuple

from compositefl.algorithms.base import SmoothAlgorithm
from compositefl.core.component import component
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

    def begin(self, message: Vector, client: Any) -> Local:
        return Local(message, message)

    def query(self, local: Local, l: Any) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Any) -> Local:
        return local._replace(x=local.x - self.local_lr * self.total_gradient(gradient, local.x))

    def finish(self, local: Local, steps: Any) -> tuple[Vector, Any]:
        return local.x - local.start, ()

    def update(self, server: Vector, mean_upload: Vector, participation: Any) -> Vector:
        return self.server_prox(server + self.server_lr * mean_upload)

    def model(self, server: Vector) -> Vector:
        return server
