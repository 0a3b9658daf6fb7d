"""FedDR: randomised Douglas-Rachford splitting (Tran Dinh, Pham, Phan, Nguyen 2021)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

from compositefl.algorithms.base import AUTO, Algorithm, StepCount, StepSize, require_steps
from compositefl.core.component import component
from compositefl.core.errors import is_concrete, require_positive, wrong_value
from compositefl.core.types import Number
from compositefl.core.vector import Vector


class Server(NamedTuple):
    """What the server keeps."""

    xtilde: Vector  # mean of all clients' xhat_i
    xbar: Vector  # prox_eta(xtilde)


class Client(NamedTuple):
    """What a client keeps from round to round."""

    y: Vector
    x: Vector  # near prox_{eta f_i}(y)

    @property
    def xhat(self) -> Vector:
        return 2.0 * self.x - self.y


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    y: Vector
    xhat: Vector  # of the client's last round


@component
class FedDR(Algorithm):
    """Clients solve a proximal problem of their own f_i, the server takes the prox of phi.

        y_i <- y_i + a (xbar - x_i);  x_i ~ prox_{eta f_i}(y_i);  xhat_i = 2 x_i - y_i
        xtilde = mean of all xhat_i;  xbar = prox_eta(xtilde)

    with a = relaxation in (0, 2]; the default is the authors' choice in their experiments. The
    local problem is solved by Q steps x <- x - eta_a (g_i(x) + (x - y_i)/eta) from the last x_i.
    The solves must become exact for convergence; with full gradients they do, as the start gets
    better from round to round.

    The paper starts with y_i = x_0 and x_i ~ prox_{eta f_i}(x_0) at every client. Here all start
    at x_0, xbar too, and the first round of a client makes this solve: when everyone takes part
    in it, the rounds after it are the paper's. With sampled clients, as in the paper's theory
    (every client has a positive probability), those not yet seen count with xhat_i = x_0, and
    those outside the sample keep y_i and x_i.
    """

    paper = "Tran Dinh, Pham, Phan, Nguyen (2021)"
    covers = "nonconvex f, convex phi"

    _: KW_ONLY
    local_steps: StepCount = AUTO
    local_lr: StepSize = AUTO
    eta: float
    relaxation: float = 1.95

    def __post_init__(self) -> None:
        require_steps(self, "local_steps", "local_lr")
        require_positive(eta=self.eta)
        if is_concrete(self.relaxation) and not 0 < self.relaxation <= 2:
            raise wrong_value("relaxation", self.relaxation, "in (0, 2]")

    def check(self) -> None:
        self.regularizer.check_prox("eta", self.eta)

    @property
    def steps(self) -> Number:
        return self.local_steps

    def init_server(self, x0: Vector) -> Server:
        return Server(x0, x0)

    def init_client(self, x0: Vector) -> Client:
        return Client(x0, x0)

    def broadcast(self, server: Server) -> Vector:
        return server.xbar

    def begin(self, message: Vector, client: Client) -> Local:
        y = client.y + self.relaxation * (message - client.x)
        return Local(client.x, y, client.xhat)

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        x = local.x - self.local_lr * (gradient + (local.x - local.y) / self.eta)
        return local._replace(x=x)

    def finish(self, local: Local, steps: Number) -> tuple[Vector, Client]:
        client = Client(local.y, local.x)
        return client.xhat - local.xhat, client

    def update(self, server: Server, mean_upload: Vector, participation: Number) -> Server:
        xtilde = server.xtilde + participation * mean_upload
        return Server(xtilde, self.prox(xtilde, self.eta))

    def model(self, server: Server) -> Vector:
        return server.xbar
