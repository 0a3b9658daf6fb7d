"""Fast-FedDA: dual averaging that uses strong convexity (Bao, Crawshaw, Luo, Liu 2022)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

import jax.numpy as jnp

from compositefl.algorithms.base import Algorithm
from compositefl.core.component import component, static
from compositefl.core.errors import require_integer, require_positive
from compositefl.core.types import Array, ClientState, Number
from compositefl.core.vector import Vector


class Sums(NamedTuple):
    """Sums over the steps so far."""

    gradients: Vector  # G
    pull: Vector  # mu_s X + Gam x_0, X the sum of the points where the gradients were taken


class State(NamedTuple):
    """What the server keeps, and what it broadcasts."""

    sums: Sums
    w: Vector
    count: Array  # N, the number of gradients in G


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

    Partial participation: the theory has everyone; the authors' program samples clients and
    averages them, and clients are stateless.
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
    def steps(self) -> Number:
        return self.local_steps

    @property
    def mu_s(self) -> float:
        return 0.5 * self.strong_convexity

    def argmin(self, sums: Sums, count: Number) -> Vector:
        """The argmin above, a prox with parameter N / (mu_s N + Gam)."""
        curvature = self.mu_s * count + self.proximity
        return self.prox((sums.pull - sums.gradients) / curvature, count / curvature)

    def init_server(self, x0: Vector) -> State:
        return State(Sums(x0.zeros(), self.proximity * x0), x0, jnp.zeros((), jnp.int32))

    def broadcast(self, server: State) -> State:
        return server

    def begin(self, message: State, client: ClientState) -> State:
        return message

    def query(self, local: State, l: Number) -> Vector:
        return local.w

    def step(self, local: State, gradient: Vector, l: Number) -> State:
        sums = Sums(local.sums.gradients + gradient, local.sums.pull + self.mu_s * local.w)
        count = local.count + 1
        return State(sums, self.argmin(sums, count), count)

    def finish(self, local: State, steps: Number) -> tuple[Sums, ClientState]:
        sums = local.sums
        if self.as_in_code:
            sums = sums._replace(pull=sums.pull + self.mu_s * local.w)
        return sums, ()

    def update(self, server: State, mean_upload: Sums, participation: Number) -> State:
        count = server.count + self.local_steps
        return State(mean_upload, self.argmin(mean_upload, count), count)

    def model(self, server: State) -> Vector:
        return server.w
