"""FedAvg-M: FedAvg with momentum in the local steps (Cheng, Huang, Wu, Yuan, ICLR 2024).

Not the FedAvgM of Hsu, Qi and Brown (2019), where only the server has momentum.
"""

from dataclasses import KW_ONLY
from typing import NamedTuple

from compositefl.algorithms.base import SmoothAlgorithm
from compositefl.core.component import component
from compositefl.core.errors import require_share
from compositefl.core.types import ClientState, Number
from compositefl.core.vector import Vector


class State(NamedTuple):
    """What the server keeps, and what it broadcasts."""

    x: Vector
    d: Vector  # the mean direction of the last round, g^r in the paper


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    start: State


@component
class FedAvgM(SmoothAlgorithm):
    """Local steps along b g_i + (1 - b) d, with d the mean direction of the round before.

        x_i <- x_i - eta_a (b g_i(x_i) + (1 - b) d), Q times
        d <- mean (x - x_i)/(eta_a Q);  x <- x - eta_hat d

    b = gradient_weight is the paper's beta; 1 gives FedAvg. d starts at 0. The same method is
    known as FedCM. The paper's theory has everyone taking part; clients are stateless, so any part
    of them may.
    """

    paper = "Cheng, Huang, Wu, Yuan (2024), not Hsu et al."
    covers = "smooth nonconvex"
    divides_by_step = True

    _: KW_ONLY
    gradient_weight: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_share(gradient_weight=self.gradient_weight)

    def init_server(self, x0: Vector) -> State:
        return State(x0, x0.zeros())

    def broadcast(self, server: State) -> State:
        return server

    def begin(self, message: State, client: ClientState) -> Local:
        return Local(message.x, message)

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        b = self.gradient_weight
        direction = b * self.total_gradient(gradient, local.x) + (1.0 - b) * local.start.d
        return local._replace(x=local.x - self.local_lr * direction)

    def finish(self, local: Local, steps: Number) -> tuple[Vector, ClientState]:
        return (local.start.x - local.x) / (self.local_lr * steps), ()

    def update(self, server: State, mean_upload: Vector, participation: Number) -> State:
        return State(self.server_prox(server.x - self.eta_hat * mean_upload), mean_upload)

    def model(self, server: State) -> Vector:
        return server.x
