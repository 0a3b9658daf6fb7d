"""FedNMap: federated learning with normal-map updates (Huang, Pu, Johansson, arXiv 2602.03357).

Written so that it also works when only some clients take part. Client i stores h_i, the mean of
its own last local gradients, and the server cbar, the mean of all h_i. The correction of the paper
is c_i = cbar - h_i, and the frozen normal-map term and cbar travel as one vector,

    direction = (z_t - x_t) / gamma + cbar,

so that a client needs no prox for it. With everyone taking part this is Algorithm 1 exactly.
"""

from dataclasses import KW_ONLY
from typing import Any, NamedTuple, Self

import jax.numpy as jnp

from compositefl.algorithms.base import (
    AUTO,
    WITHIN,
    FederatedAlgorithm,
    Knobs,
    StepSize,
    automatic,
    is_auto,
    overshoot_of_zeros,
    wants_theory,
)
from compositefl.core.component import component, replace
from compositefl.core.errors import wrong_value
from compositefl.core.types import Number
from compositefl.core.vector import Vector

BY_LOCAL_LR: Any = None  # gamma that was not given: "auto" where local_lr is, else 1


class Server(NamedTuple):
    """What the server keeps."""

    z: Vector
    x: Vector  # prox_gamma(z)
    cbar: Vector  # mean of all clients' h_i


class Message(NamedTuple):
    """What the server sends to the clients."""

    z: Vector
    direction: Vector


class Client(NamedTuple):
    """What a client keeps from round to round."""

    h: Vector  # mean of the client's own gradients in its last accepted round


class Local(NamedTuple):
    """A client's state within a round."""

    z: Vector
    start: Message
    h: Vector


@component
class FedNMap(FederatedAlgorithm):
    """Normal-map updates with gradient correction: linear speed-up in clients and local steps.

    The start `params` is z_0. gamma, the parameter of the prox, is independent of the steps and
    must be below 1/rho. The paper treats full participation; the (h_i, cbar) form extends it to
    sampled clients and lost uploads.
    """

    paper = "Huang, Pu, Johansson (2026), Algorithm 1"
    covers = "nonconvex f, weakly convex phi"
    allows_noise = True
    divides_by_step = True

    _: KW_ONLY
    gamma: StepSize = BY_LOCAL_LR

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.gamma is BY_LOCAL_LR:
            object.__setattr__(self, "gamma", AUTO if is_auto(self.local_lr) else 1.0)
        if isinstance(self.gamma, str) and not is_auto(self.gamma):
            raise wrong_value("gamma", self.gamma, "a number or 'auto'")

    def at(self, knobs: Knobs) -> Self:
        """gamma = eta_hat where it is "auto": the longest step without overshooting zeros.

        With memory m it is m eta_hat, so that noise passes the prox as a mean over m rounds.
        """
        chosen = super().at(knobs)
        if not is_auto(chosen.gamma):
            return chosen
        most = WITHIN * float(jnp.min(jnp.asarray(self.regularizer.max_prox)))
        return replace(chosen, gamma=min(knobs.memory * chosen.eta_hat, most))

    def rescale(self, server: Server, new: "FedNMap") -> Server:  # type: ignore[override]
        # The same x and the same subgradient (z - x)/gamma.
        z = server.x + (new.gamma / self.gamma) * (server.z - server.x)
        return server._replace(z=z)

    def check(self) -> None:
        self.regularizer.check_prox("gamma", self.gamma)

    def cautions(self, dtype: str) -> list[str]:
        if wants_theory(self) or automatic(self):
            return []
        zeros = overshoot_of_zeros("eta_hat", self.eta_hat, self.gamma, self.regularizer)
        return super().cautions(dtype) + zeros

    def init_server(self, x0: Vector) -> Server:
        return Server(x0, self.prox(x0, self.gamma), x0.zeros())

    def init_client(self, x0: Vector) -> Client:
        return Client(x0.zeros())

    def broadcast(self, server: Server) -> Message:
        return Message(server.z, (server.z - server.x) / self.gamma + server.cbar)

    def begin(self, message: Message, client: Client) -> Local:
        return Local(message.z, message, client.h)

    def query(self, local: Local, l: Number) -> Vector:
        return self.prox(local.z, self.gamma)  # line 12

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        # line 14: z <- z - eta_a [g + (z_t - x_t)/gamma + c_i]
        z = local.z - self.local_lr * (gradient + local.start.direction - local.h)
        return local._replace(z=z)

    def finish(self, local: Local, steps: Number) -> tuple[Vector, Client]:
        y = (local.start.z - local.z) / (self.local_lr * steps)  # line 16
        return y, self.state_after(local.start, Client(local.h), y)

    def state_after(self, message: Message, client: Client, sent: Vector) -> Client:
        return Client(sent - message.direction + client.h)

    def update(self, server: Server, mean_upload: Vector, participation: Number) -> Server:
        # y_i = (new h_i) + direction - (old h_i), so the mean change of the h_i is seen in y.
        change = mean_upload - self.broadcast(server).direction
        z = server.z - self.eta_hat * mean_upload  # line 19
        return Server(z, self.prox(z, self.gamma), server.cbar + participation * change)

    def model(self, server: Server) -> Vector:
        return server.x

    def normal_map_point(self, server: Server) -> tuple[Vector, Number]:
        return server.z, self.gamma
