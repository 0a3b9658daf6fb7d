"""ZA1: composite federated learning with heterogeneous data (Zhang, Hu, Johansson, 2024 / 2026)."""

from typing import NamedTuple

from compositefl.algorithms.base import FederatedAlgorithm
from compositefl.core.component import component
from compositefl.core.types import Number
from compositefl.core.vector import Vector


class Server(NamedTuple):
    """What the server keeps."""

    xbar: Vector  # pre-prox
    p: Vector  # P = prox_{eta_hat}(xbar)
    before: Vector  # P of the round before


class Client(NamedTuple):
    """What a client keeps from round to round."""

    p: Vector  # P of the client's last round
    h: Vector  # mean of its gradients in that round


class Local(NamedTuple):
    """A client's state within a round."""

    zhat: Vector
    p: Vector
    c: Vector


@component
class ZA1(FederatedAlgorithm):
    """Updates on the pre-prox point, gradients at the post-prox point, one vector each way.

    The start `params` is xbar_1, the pre-prox point. Prox parameters: eta_hat on the server and
    l*eta_a at local step l, so both eta_hat and Q*eta_a must stay below 1/rho (the paper has
    convex phi). The paper treats full participation only, and the method needs it.
    """

    paper = "Zhang, Hu, Johansson (2026), Algorithm 1"
    covers = "nonconvex f, convex phi with bounded subgradients"
    divides_by_step = True
    needs_all_steps = "its correction assumes Q steps of every client"
    needs_everyone = "a client rebuilds its correction from two successive models"

    def check(self) -> None:
        self.regularizer.check_prox("eta_hat = local_lr*server_lr*local_steps", self.eta_hat)
        self.regularizer.check_prox("local_steps*local_lr", self.local_steps * self.local_lr)

    def start_at(self, x0: Vector) -> Vector:
        return x0 + self.eta_hat * self.subgradient(x0)

    def init_server(self, x0: Vector) -> Server:
        return Server(x0, self.prox(x0, self.eta_hat), x0)

    def rescale(self, server: Server, new: "ZA1") -> Server:  # type: ignore[override]
        # The last step again with another length: clients read its direction off xbar.
        direction = (server.before - server.xbar) / self.eta_hat
        xbar = server.before - new.eta_hat * direction
        return Server(xbar, new.prox(xbar, new.eta_hat), server.before)

    def init_client(self, x0: Vector) -> Client:
        return Client(x0, x0.zeros())  # gives c_i = 0 in the first round

    def broadcast(self, server: Server) -> Vector:
        return server.xbar

    def begin(self, message: Vector, client: Client) -> Local:
        # line 18: c_i = (P_{t-1} - xbar_t)/eta_hat - (1/Q) sum_l g_i, mean over the clients zero
        c = (client.p - message) / self.eta_hat - client.h
        p = self.prox(message, self.eta_hat)
        return Local(p, p, c)

    def query(self, local: Local, l: Number) -> Vector:
        return self.prox(local.zhat, l * self.local_lr)  # z^l; at l = 0 it is P itself

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        return local._replace(zhat=local.zhat - self.local_lr * (gradient + local.c))

    def finish(self, local: Local, steps: Number) -> tuple[Vector, Client]:
        h = (local.p - local.zhat) / (self.local_lr * steps) - local.c
        return local.zhat, Client(local.p, h)

    def update(self, server: Server, mean_upload: Vector, participation: Number) -> Server:
        xbar = server.p + self.server_lr * (mean_upload - server.p)
        return Server(xbar, self.prox(xbar, self.eta_hat), server.p)

    def model(self, server: Server) -> Vector:
        return server.p
