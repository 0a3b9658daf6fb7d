"""FedMiD: federated mirror descent, Euclidean (Yuan, Zaheer, Reddi 2021)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

from compositefl.algorithms.base import FederatedAlgorithm
from compositefl.core.component import component, static
from compositefl.core.errors import wrong_value
from compositefl.core.types import ClientState, Number
from compositefl.core.vector import Vector


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    start: Vector


@component
class FedMiD(FederatedAlgorithm):
    """Proximal SGD on the clients, a prox on the server.

        x_i <- prox_{eta_a}(x_i - eta_a g_i(x_i)), Q times
        x <- prox_{eta_hat}(x + eta_s mean(x_i - x))

    prox_at="everywhere" is the method; prox_at="server" is the OSP variant of its authors' code, in
    which clients run plain SGD. Stateless clients: any part of them may take part.
    """

    paper = "Yuan, Zaheer, Reddi (2021)"
    covers = "convex f and phi; drifts on heterogeneous clients"
    allows_noise = True
    needs_all_steps = "the server's prox belongs to Q steps of every client"

    _: KW_ONLY
    prox_at: str = static(default="everywhere")

    def check(self) -> None:
        if self.prox_at not in ("everywhere", "server"):
            raise wrong_value(
                "prox_at", self.prox_at, "'everywhere' or 'server'", shown=repr(self.prox_at)
            )
        self.regularizer.check_prox("eta_hat = local_lr*server_lr*local_steps", self.eta_hat)
        self.regularizer.check_prox("local_lr", self.local_lr)

    def init_server(self, x0: Vector) -> Vector:
        return x0

    def broadcast(self, server: Vector) -> Vector:
        return server

    def begin(self, message: Vector, client: ClientState) -> Local:
        return Local(message, message)

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        x = local.x - self.local_lr * gradient
        return local._replace(x=x if self.prox_at == "server" else self.prox(x, self.local_lr))

    def finish(self, local: Local, steps: Number) -> tuple[Vector, ClientState]:
        return local.x - local.start, ()

    def update(self, server: Vector, mean_upload: Vector, participation: Number) -> Vector:
        return self.prox(server + self.server_lr * mean_upload, self.eta_hat)

    def model(self, server: Vector) -> Vector:
        return server
