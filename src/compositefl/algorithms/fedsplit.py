"""FedSplit: operator splitting (Pathak and Wainwright, NeurIPS 2020)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

from compositefl.algorithms.base import AveragingAlgorithm
from compositefl.core.component import component
from compositefl.core.errors import require_positive
from compositefl.core.types import Number
from compositefl.core.vector import Vector


class Client(NamedTuple):
    """What a client keeps from round to round."""

    z: Vector


class Local(NamedTuple):
    """A client's state within a round."""

    u: Vector
    x: Vector
    z: Vector


@component
class FedSplit(AveragingAlgorithm):
    """u ~ argmin_u f_i(u) + ||u - (2x - z_i)||^2/(2 eta);  z_i <- z_i + 2(u - x);  x = mean(z_i).

    The local problem is solved by local_steps gradient steps from x, which keeps the solution a
    fixed point however few they are. z_i stays with the client between rounds. The server's prox
    has parameter eta; that variant is FedDR with relaxation 2. The paper needs all clients.
    """

    paper = "Pathak, Wainwright (2020)"
    covers = "smooth convex"
    eta_hat_formula = "eta"
    needs_everyone = "the model is the mean of the reflected points of all of them"

    _: KW_ONLY
    eta: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(eta=self.eta)

    @property
    def eta_hat(self) -> Number:
        return self.eta

    def init_server(self, x0: Vector) -> Vector:
        return x0

    def init_client(self, x0: Vector) -> Client:
        return Client(x0)

    def broadcast(self, server: Vector) -> Vector:
        return server

    def begin(self, message: Vector, client: Client) -> Local:
        return Local(message, message, client.z)

    def query(self, local: Local, l: Number) -> Vector:
        return local.u

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        u, x, z = local
        gradient = self.total_gradient(gradient, u) + (u - (2 * x - z)) / self.eta
        return local._replace(u=u - self.local_lr * gradient)

    def finish(self, local: Local, steps: Number) -> tuple[Vector, Client]:
        z = local.z + 2 * (local.u - local.x)
        return z, Client(z)

    def update(self, server: Vector, mean_upload: Vector, participation: Number) -> Vector:
        return self.server_prox(mean_upload)

    def model(self, server: Vector) -> Vector:
        return server
