"""FedDyn: dynamic regularisation (Acar et al., ICLR 2021)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

from compositefl.algorithms.base import AveragingAlgorithm
from compositefl.core.component import component
from compositefl.core.errors import require_positive
from compositefl.core.types import Number
from compositefl.core.vector import Vector


class Server(NamedTuple):
    """What the server keeps."""

    x: Vector
    h: Vector  # mean of all clients' q_i


class Client(NamedTuple):
    """What a client keeps from round to round."""

    q: Vector  # the gradient of f_i at its last x_i, if that was exact


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    start: Vector
    q: Vector


@component
class FedDyn(AveragingAlgorithm):
    """x_i ~ argmin_u f_i(u) - <q_i, u> + (mu/2)||u - x||^2, by local_steps gradient steps from x.

        q_i <- q_i - mu (x_i - x);  h <- h - mu (1/n) sum_S (x_i - x);  x <- mean_S(x_i) - h/mu

    The paper treats sampled clients S: those outside keep q_i, and h moves by the participating
    share. The server's prox has parameter 1/mu.
    """

    paper = "Acar et al. (2021)"
    covers = "smooth nonconvex"
    eta_hat_formula = "1/mu"

    _: KW_ONLY
    mu: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(mu=self.mu)

    @property
    def eta_hat(self) -> Number:
        return 1 / self.mu

    def init_server(self, x0: Vector) -> Server:
        return Server(x0, x0.zeros())

    def init_client(self, x0: Vector) -> Client:
        return Client(x0.zeros())

    def broadcast(self, server: Server) -> Vector:
        return server.x

    def begin(self, message: Vector, client: Client) -> Local:
        return Local(message, message, client.q)

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        gradient = self.total_gradient(gradient, local.x)
        gradient = gradient - local.q + self.mu * (local.x - local.start)
        return local._replace(x=local.x - self.local_lr * gradient)

    def finish(self, local: Local, steps: Number) -> tuple[Vector, Client]:
        dx = local.x - local.start
        return dx, Client(local.q - self.mu * dx)

    def update(self, server: Server, mean_upload: Vector, participation: Number) -> Server:
        h = server.h - self.mu * participation * mean_upload
        return Server(self.server_prox(server.x + mean_upload - h / self.mu), h)

    def model(self, server: Server) -> Vector:
        return server.x
