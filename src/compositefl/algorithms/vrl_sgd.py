"""VRL-SGD: variance-reduced local SGD (Liang et al. 2019)."""

from typing import NamedTuple

from compositefl.algorithms.base import AveragingAlgorithm
from compositefl.core.component import component
from compositefl.core.types import Number
from compositefl.core.vector import Vector


class Client(NamedTuple):
    """What a client keeps from round to round, and its state within one."""

    x: Vector  # where the client's last round ended
    correction: Vector  # D_i, mean over the clients zero


@component
class VRLSGD(AveragingAlgorithm):
    """x_i <- x_i - eta_a (g_i(x_i) - D_i), Q times from x;  z = mean(x_i);  x = z

        D_i <- D_i + (z - x_i)/(eta_a Q)

    SCAFFOLD with server_lr = 1 in one vector each way: D_i = c_i - c. A client needs the mean z
    for D_i. So in the server-prox variant z is what is sent, and both sides apply the prox to it;
    the start `params` is then z_0. The paper needs all clients.
    """

    paper = "Liang et al. (2019)"
    covers = "smooth nonconvex"
    divides_by_step = True
    prox_counts_steps = True
    needs_everyone = "every client must see every mean to keep its correction"

    def start_at(self, x0: Vector) -> Vector:
        return x0 + self.eta_hat * self.subgradient(x0) if self.composite == "server-prox" else x0

    def init_server(self, x0: Vector) -> Vector:
        return x0

    def init_client(self, x0: Vector) -> Client:
        return Client(x0, x0.zeros())

    def broadcast(self, server: Vector) -> Vector:
        return server

    def begin(self, message: Vector, client: Client) -> Client:
        change = (message - client.x) / (self.local_lr * self.local_steps)
        return Client(self.server_prox(message), client.correction + change)

    def query(self, local: Client, l: Number) -> Vector:
        return local.x

    def step(self, local: Client, gradient: Vector, l: Number) -> Client:
        gradient = self.total_gradient(gradient, local.x) - local.correction
        return local._replace(x=local.x - self.local_lr * gradient)

    def finish(self, local: Client, steps: Number) -> tuple[Vector, Client]:
        return local.x, local

    def update(self, server: Vector, mean_upload: Vector, participation: Number) -> Vector:
        return mean_upload

    def model(self, server: Vector) -> Vector:
        return self.server_prox(server)
