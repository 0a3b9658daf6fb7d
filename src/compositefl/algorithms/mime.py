"""Mime and MimeLite: centralised optimisers on clients (Karimireddy et al. 2020)."""

from dataclasses import KW_ONLY
from typing import TYPE_CHECKING, NamedTuple

from compositefl.algorithms.base import SmoothAlgorithm
from compositefl.core.component import component, static
from compositefl.core.errors import (
    is_concrete,
    require_nonnegative,
    unknown_name,
    wrong_value,
)
from compositefl.core.trees import tree_bytes
from compositefl.core.types import Answers, ClientState, Number, Points, PyTree
from compositefl.core.vector import Vector

if TYPE_CHECKING:
    import optax


class State(NamedTuple):
    """What the server keeps, and what it broadcasts."""

    x: Vector
    statistics: PyTree  # of the base optimiser


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    start: State
    gradient: Vector  # a full gradient at the start: the mean (Mime), the client's (MimeLite)


class Upload(NamedTuple):
    """What a client sends back."""

    dx: Vector
    gradient: Vector


@component
class Mime(SmoothAlgorithm):
    """Q steps of a base optimiser on the clients, with statistics s that only the server moves.

        c = mean of the full gradients of the round's clients at x (a round trip of its own)
        x_i <- x_i - eta_a U(g_i(x_i) - g_i(x) + c, s)     (both gradients on one minibatch)
        x <- x + eta_s mean(x_i - x);  s <- V(c, s)

    optimizer: "sgd" (U is the identity), "momentum" (U and V are beta1 s + (1 - beta1) g) or
    "adam" (with bias correction). The paper treats sampled clients, who carry no state.
    """

    paper = "Karimireddy et al. (2020), Mime"
    covers = "smooth nonconvex"
    prox_counts_steps = True
    needs = frozenset({"mean_full_gradient"})

    _: KW_ONLY
    optimizer: str = static(default="sgd")
    beta1: float = 0.9
    beta2: float = 0.99
    epsilon: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta1", "beta2"):
            value = getattr(self, name)
            if is_concrete(value) and not 0 <= value < 1:
                raise wrong_value(name, value, "in [0, 1)")
        require_nonnegative(epsilon=self.epsilon)

    def check(self) -> None:
        super().check()
        if self.optimizer not in ("sgd", "momentum", "adam"):
            raise unknown_name("optimizer", self.optimizer, ("sgd", "momentum", "adam"))

    @property
    def base(self) -> "optax.GradientTransformation":
        """The base optimiser: `update` is (U, V) at once."""
        import optax  # here: it takes as long to load as all methods

        if self.optimizer == "momentum":
            return optax.ema(self.beta1, debias=False)
        if self.optimizer == "adam":
            return optax.scale_by_adam(self.beta1, self.beta2, self.epsilon)
        return optax.identity()

    def init_server(self, x0: Vector) -> State:
        return State(x0, self.base.init(x0))

    def broadcast(self, server: State) -> State:
        return server

    def anchor(self, message: State) -> Vector:
        return message.x

    def begin(self, message: State, client: ClientState, **extras: Vector) -> Local:
        return Local(message.x, message, extras["mean_full_gradient"])

    def query(self, local: Local, l: Number) -> Points:
        return local.x, local.start.x

    def step(self, local: Local, gradient: Answers, l: Number) -> Local:
        here, at_start = gradient
        return self.base_step(local, here - at_start + local.gradient)

    def base_step(self, local: Local, gradient: Vector) -> Local:
        gradient = self.total_gradient(gradient, local.x)
        direction, _ = self.base.update(gradient, local.start.statistics)
        return local._replace(x=local.x - self.local_lr * direction)

    def finish(self, local: Local, steps: Number) -> tuple[Upload, ClientState]:
        return Upload(local.x - local.start.x, local.gradient), ()

    def update(self, server: State, mean_upload: Upload, participation: Number) -> State:
        gradient = self.total_gradient(mean_upload.gradient, server.x)
        _, statistics = self.base.update(gradient, server.statistics)
        return State(self.server_prox(server.x + self.server_lr * mean_upload.dx), statistics)

    def model(self, server: State) -> Vector:
        return server.x

    def upload_bytes(self, upload: Upload) -> int:
        return tree_bytes(upload.dx)  # the server has c since the first round trip


@component
class MimeLite(Mime):
    """Mime without the correction: x_i <- x_i - eta_a U(g_i(x_i), s).

    The full gradients at x come with the upload and serve the statistics only. With "sgd" it is
    FedAvg.
    """

    paper = "Karimireddy et al. (2020), MimeLite"
    needs = frozenset({"full_gradient"})

    def begin(self, message: State, client: ClientState, **extras: Vector) -> Local:
        return Local(message.x, message, extras["full_gradient"])

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        return self.base_step(local, gradient)

    def upload_bytes(self, upload: Upload) -> int:
        return tree_bytes(upload)
