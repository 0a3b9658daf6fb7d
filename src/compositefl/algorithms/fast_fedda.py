"""Fast-FedDA: dual averaging that uses strong convexity (Bao, Crawshaw, Luo, Liu 2022)."""

from dataclasses import KW_ONLY
from typing import Any, NamedTuple

import jax.numpy as jnp

from compositefl.algorithms.base import Algorithm
from compositefl.component import component, static
from compositefl.errors import require_integer, require_positive
from compositefl.vector import Vector


class Sums(NamedTuple):
    gradients: Vector  # G
    points: Vector  # X, the sum of the points where the gradients of G were taken


class Server(NamedTuple):
    sums: Sums
    w: Vector
    x0: Vector
    count: Any  # N, the number of gradients in G


class Message(NamedTuple):
    sums: Sums
    w: Vector
    count: Any


class Client(NamedTuple):
    x0: Vector


class Local(NamedTuple):
    sums: Sums
    w: Vector
    x0: Vector
    count: Any


@component
class FastFedDA(Algorithm):
    """Every local step minimises the sum of all lower bounds of f so far, plus phi.

        G_i <- G_i + g_i(w_i);  X_i <- X_i + w_i;  N <- N + 1, Q times, each followed by
        w_i = argmin_w <G_i, w> + N phi(w) + (mu_s/2) sum_s ||w - w_s||^2 + (Gam/2)||w - x_0||^2

    with mu_s = strong_convexity/2 and Gam = proximity: the steps fall as 1/(mu_s N + Gam). The
    server averages G_i and X_i and minimises the same function. phi is convex in the paper; we
    ask for 1/mu_s < 1/rho, so that every argmin is unique.

    The authors' program also adds each client's last local model to X, once a round, without
    counting it in N. Its limit is then the solution for f + phi - (mu_s / 2Q) ||x||^2;
    as_in_code=True reproduces it.

    Partial participation: the theory has everyone; the program averages sampled clients, which
    stateless clients allow.
    """

    paper = "Bao, Crawshaw, Luo, Liu (2022)"
    covers = "strongly convex f, convex phi; drift fades as the steps decay"
    needs_all_steps = "its sums count Q gradients of every client"

    _: KW_ONLY
    local_steps: int
    strong_convexity: float  # mu of f
    proximity: float  # 1/proximity is about the first step
    as_in_code: bool = static(default=False)

    def __post_init__(self) -> None:
        require_integer(local_steps=self.local_steps)
        require_positive(strong_convexity=self.strong_convexity, proximity=self.proximity)

    def check(self) -> None:
        self.regularizer.check_prox("2/strong_convexity", 2.0 / self.strong_convexity)

    @property
    def steps(self) -> Any:
        return self.local_steps

    def argmin(self, sums: Sums, x0: Vector, count: Any) -> Vector:
        """The argmin above, a prox with parameter N / (mu_s N + Gam); x_0 for N = 0."""
        mu_s = 0.5 * self.strong_convexity
        total = mu_s * count + self.proximity
        centre = (mu_s * sums.points + self.proximity * x0 - sums.gradients) / total
        return self.prox(centre, count / total)

    def init_server(self, x0: Vector) -> Server:
        return Server(Sums(x0.zeros(), x0.zeros()), x0, x0, jnp.zeros((), jnp.int32))

    def init_client(self, x0: Vector) -> Client:
        return Client(x0)

    def broadcast(self, server: Server) -> Message:
        return Message(server.sums, server.w, server.count)

    def begin(self, message: Message, client: Client) -> Local:
        return Local(message.sums, message.w, client.x0, message.count)

    def query(self, local: Local, l: Any) -> Vector:
        return local.w

    def step(self, local: Local, gradient: Vector, l: Any) -> Local:
        sums = Sums(local.sums.gradients + gradient, local.sums.points + local.w)
        count = local.count + 1
        return local._replace(sums=sums, w=self.argmin(sums, local.x0, count), count=count)

    def finish(self, local: Local, steps: Any) -> tuple[Sums, Client]:
        sums = local.sums
        if self.as_in_code:
            sums = sums._replace(points=sums.points + local.w)
        return sums, Client(local.x0)

    def update(self, server: Server, mean_upload: Sums, participation: Any) -> Server:
        count = server.count + self.local_steps
        w = self.argmin(mean_upload, server.x0, count)
        return Server(mean_upload, w, server.x0, count)

    def model(self, server: Server) -> Vector:
        return server.w
