"""FedDC: local drift decoupling and correction (Gao et al., CVPR 2022)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

from compositefl.algorithms.base import AveragingAlgorithm
from compositefl.core.component import component, static
from compositefl.core.errors import require_nonnegative, require_positive
from compositefl.core.types import Number
from compositefl.core.vector import Vector


class Server(NamedTuple):
    """What the server keeps."""

    x: Vector
    s: Vector  # mean of all clients' s_i
    h: Vector  # mean of all clients' h_i


class Message(NamedTuple):
    """What the server sends to the clients."""

    x: Vector
    s: Vector


class Client(NamedTuple):
    """What a client keeps from round to round."""

    s: Vector  # mean gradient of the client's last round, penalty included
    h: Vector  # its drift


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    start: Message
    own: Client


class Upload(NamedTuple):
    """What a client sends back."""

    dx: Vector
    ds: Vector


@component
class FedDC(AveragingAlgorithm):
    """Q gradient steps on f_i(u) + (mu/2)||u + h_i - x||^2 + <u, s - s_i> from x, then

        h_i <- h_i + x_i - x;  s_i <- s_i - s + (x - x_i)/(eta_a Q)
        s <- s + (1/n) sum_S (change of s_i);  x <- mean_S(x_i) + mean_all(h_i)

    drift=False leaves h_i out; with mu = 0 that is SCAFFOLD. The paper treats sampled clients S:
    those outside keep h_i and s_i. The mean of h_i over all clients is that of the authors' code.
    The server's prox has parameter 1/mu, as in FedDyn (eta_a Q without the drift).
    """

    paper = "Gao et al. (2022)"
    covers = "smooth nonconvex"
    divides_by_step = True
    eta_hat_formula = "eta_hat (1/mu, or local_lr*local_steps without the drift)"

    _: KW_ONLY
    mu: float
    drift: bool = static(default=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        (require_positive if self.drift else require_nonnegative)(mu=self.mu)

    @property
    def prox_counts_steps(self) -> bool:  # type: ignore[override]
        return not self.drift

    @property
    def eta_hat(self) -> Number:
        return 1 / self.mu if self.drift else super().eta_hat

    def init_server(self, x0: Vector) -> Server:
        return Server(x0, x0.zeros(), x0.zeros())

    def init_client(self, x0: Vector) -> Client:
        return Client(x0.zeros(), x0.zeros())

    def broadcast(self, server: Server) -> Message:
        return Message(server.x, server.s)

    def begin(self, message: Message, client: Client) -> Local:
        return Local(message.x, message, client)

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        x, start, own = local
        gradient = self.total_gradient(gradient, x) + self.mu * (x + own.h - start.x)
        return local._replace(x=x - self.local_lr * (gradient + start.s - own.s))

    def finish(self, local: Local, steps: Number) -> tuple[Upload, Client]:
        x, start, own = local
        dx = x - start.x
        ds = -(start.s) - dx / (self.local_lr * steps)
        return Upload(dx, ds), Client(own.s + ds, own.h + dx if self.drift else own.h)

    def update(self, server: Server, mean_upload: Upload, participation: Number) -> Server:
        dx, ds = mean_upload
        h = server.h + participation * dx if self.drift else server.h
        return Server(self.server_prox(server.x + dx + h), server.s + participation * ds, h)

    def model(self, server: Server) -> Vector:
        return server.x
