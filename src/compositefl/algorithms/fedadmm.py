"""FedADMM: a primal-dual method (Wang, Marella, Anderson, CDC 2022).

Not the method of the same name of Gong, Li and Freris (ICDE 2022).
"""

from dataclasses import KW_ONLY
from typing import NamedTuple

from compositefl.algorithms.base import AUTO, Algorithm, StepCount, StepSize, require_steps
from compositefl.core.component import component
from compositefl.core.errors import require_positive
from compositefl.core.types import Number
from compositefl.core.vector import Vector


class Server(NamedTuple):
    """What the server keeps."""

    xtilde: Vector  # mean of all clients' x_i + eta z_i
    xbar: Vector  # prox_eta(xtilde)


class Client(NamedTuple):
    """What a client keeps from round to round."""

    z: Vector  # dual
    x: Vector


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    xbar: Vector
    client: Client  # before the round


@component
class FedADMM(Algorithm):
    """The augmented Lagrangian with penalty 1/eta: local models x_i, duals z_i, one prox of phi.

        x_i ~ argmin_u f_i(u) + <z_i, u - xbar> + ||u - xbar||^2 / (2 eta)
        z_i <- z_i + (x_i - xbar)/eta;  xhat_i = x_i + eta z_i
        xtilde = mean of all xhat_i;  xbar = prox_eta(xtilde)

    The local problem is solved by Q steps x <- x - eta_a (g_i(x) + z_i + (x - xbar)/eta) from the
    last x_i. The solves must become exact for convergence; with full gradients they do, as the
    start gets better from round to round. It is FedDR with relaxation 1.

    All start at z_i = 0 and x_i = xbar = x_0. The paper's theory has sampled clients (each with a
    positive probability): those outside the sample keep z_i and x_i, and count with x_0 before
    their first round.
    """

    paper = "Wang, Marella, Anderson (2022)"
    covers = "nonconvex f, convex phi"

    _: KW_ONLY
    local_steps: StepCount = AUTO
    local_lr: StepSize = AUTO
    eta: float

    def __post_init__(self) -> None:
        require_steps(self, "local_steps", "local_lr")
        require_positive(eta=self.eta)

    def check(self) -> None:
        self.regularizer.check_prox("eta", self.eta)

    @property
    def steps(self) -> Number:
        return self.local_steps

    def xhat(self, client: Client) -> Vector:
        return client.x + self.eta * client.z

    def init_server(self, x0: Vector) -> Server:
        return Server(x0, x0)

    def init_client(self, x0: Vector) -> Client:
        return Client(x0.zeros(), x0)

    def broadcast(self, server: Server) -> Vector:
        return server.xbar

    def begin(self, message: Vector, client: Client) -> Local:
        return Local(client.x, message, client)

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        pull = local.client.z + (local.x - local.xbar) / self.eta
        return local._replace(x=local.x - self.local_lr * (gradient + pull))

    def finish(self, local: Local, steps: Number) -> tuple[Vector, Client]:
        new = Client(local.client.z + (local.x - local.xbar) / self.eta, local.x)
        return self.xhat(new) - self.xhat(local.client), new

    def update(self, server: Server, mean_upload: Vector, participation: Number) -> Server:
        xtilde = server.xtilde + participation * mean_upload
        return Server(xtilde, self.prox(xtilde, self.eta))

    def model(self, server: Server) -> Vector:
        return server.xbar
