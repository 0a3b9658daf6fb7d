"""Centralised references: proximal gradient, proximal SGD and the normal-map SGD.

They see the clients as one pool: every client sends the gradient at the server's model, and the
server takes the step.
"""

from dataclasses import KW_ONLY
from typing import NamedTuple

from compositefl.algorithms.base import Algorithm, overshoot_of_zeros
from compositefl.core.component import component
from compositefl.core.errors import require_positive
from compositefl.core.types import ClientState, Number, ServerState
from compositefl.core.vector import Vector


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    gradient: Vector


@component
class ProxSGD(Algorithm):
    """x <- prox_s(x - s g(x)), s = lr (Ghadimi et al. 2016)."""

    paper = "Ghadimi, Lan, Zhang (2016)"
    covers = "centralised, nonconvex f, weakly convex phi"
    allows_noise = True

    _: KW_ONLY
    lr: float

    def __post_init__(self) -> None:
        require_positive(lr=self.lr)

    def check(self) -> None:
        self.regularizer.check_prox("lr", self.lr)

    def init_server(self, x0: Vector) -> ServerState:
        return x0

    def broadcast(self, server: ServerState) -> Vector:
        return self.model(server)

    def begin(self, message: Vector, client: ClientState) -> Local:
        return Local(message, message.zeros())

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        return local._replace(gradient=gradient)

    def finish(self, local: Local, steps: Number) -> tuple[Vector, ClientState]:
        return local.gradient, ()

    def update(
        self, server: ServerState, mean_upload: Vector, participation: Number
    ) -> ServerState:
        return self.prox(server - self.lr * mean_upload, self.lr)

    def model(self, server: ServerState) -> Vector:
        x: Vector = server
        return x


@component
class PGD(ProxSGD):
    """Proximal gradient: ProxSGD with full gradients. s <= 1/L, and s <= 1/(L + rho) is safe."""

    paper = "Beck, Teboulle (2009)"
    exact_gradients = True


class NormalMapState(NamedTuple):
    """What the server keeps, and what it broadcasts."""

    z: Vector
    x: Vector  # prox_gamma(z)


@component
class NormSGD(ProxSGD):
    """norM-SGD: x = prox_gamma(z); z <- z - s (g(x) + (z - x)/gamma). Keep s <= gamma.

    The start `params` is z_0. With s = gamma it is ProxSGD started at prox_gamma(z_0).
    """

    paper = "Qiu, Jiang, Milzarek (2023)"

    _: KW_ONLY
    gamma: float = 1.0

    def check(self) -> None:
        self.regularizer.check_prox("gamma", self.gamma)

    def cautions(self, dtype: str) -> list[str]:
        return overshoot_of_zeros("lr", self.lr, self.gamma, self.regularizer)

    def init_server(self, x0: Vector) -> NormalMapState:
        return NormalMapState(x0, self.prox(x0, self.gamma))

    def update(
        self, server: NormalMapState, mean_upload: Vector, participation: Number
    ) -> NormalMapState:
        z = server.z - self.lr * (mean_upload + (server.z - server.x) / self.gamma)
        return NormalMapState(z, self.prox(z, self.gamma))

    def model(self, server: NormalMapState) -> Vector:
        return server.x

    def normal_map_point(self, server: NormalMapState) -> tuple[Vector, Number]:
        return server.z, self.gamma
