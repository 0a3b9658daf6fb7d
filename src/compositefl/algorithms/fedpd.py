"""FedPD: a primal-dual method that may skip communication (Zhang et al. 2021)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

import jax
import jax.numpy as jnp

from compositefl.algorithms.base import AveragingAlgorithm
from compositefl.algorithms.geometric import geometric
from compositefl.core.component import component
from compositefl.core.errors import is_concrete, require_positive, wrong_value
from compositefl.core.types import Number
from compositefl.core.vector import Vector


class Client(NamedTuple):
    """What a client keeps from round to round."""

    x: Vector
    dual: Vector


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    dual: Vector
    x0: Vector  # the client's own copy of the model


@component
class FedPD(AveragingAlgorithm):
    """Stages of a local augmented Lagrangian, with the mean taken after some of them.

        x_i ~ argmin_u f_i(u) + <lam_i, u - x0_i> + ||u - x0_i||^2/(2 eta)   (local_steps steps)
        lam_i <- lam_i + (x_i - x0_i)/eta;   x0_i <- x_i + eta lam_i

    Then, with probability 1 - skip, all clients send x0_i and get x0_i = x0 = mean(x0_i); else
    nobody does and the next stage begins. A round here ends with a communication, so it has a
    random number of stages, the same for all. Local steps start at the old x_i, as in the authors'
    code. The server's prox has parameter eta; with skip = 0 that variant is FedADMM. The paper
    wants all clients or none; a straggler makes its last dual step from where it is.
    """

    paper = "Zhang, Hong, Dhople, Yin, Liu (2021)"
    covers = "smooth nonconvex"
    eta_hat_formula = "eta"
    needs_everyone = "they communicate all or none"

    _: KW_ONLY
    eta: float
    skip: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        require_positive(eta=self.eta)
        if is_concrete(self.skip) and not 0 <= self.skip < 1:
            raise wrong_value("skip", self.skip, "a probability in [0, 1)")

    @property
    def eta_hat(self) -> Number:
        return self.eta

    def draw_steps(self, key: jax.Array) -> Number:
        return self.local_steps * geometric(key, 1 - self.skip)

    def init_server(self, x0: Vector) -> Vector:
        return x0

    def init_client(self, x0: Vector) -> Client:
        return Client(x0, x0.zeros())

    def broadcast(self, server: Vector) -> Vector:
        return server

    def begin(self, message: Vector, client: Client) -> Local:
        return Local(client.x, client.dual, message)

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        # The dual step that ends a stage leaves x alone, so it can wait for the next gradient.
        new_stage = (l > 0) & (l % self.local_steps == 0)
        ended = self.end_stage(local)
        local = jax.tree.map(lambda new, old: jnp.where(new_stage, new, old), ended, local)
        gradient = self.total_gradient(gradient, local.x)
        gradient = gradient + local.dual + (local.x - local.x0) / self.eta
        return local._replace(x=local.x - self.local_lr * gradient)

    def end_stage(self, local: Local) -> Local:
        dual = local.dual + (local.x - local.x0) / self.eta
        return Local(local.x, dual, local.x + self.eta * dual)

    def finish(self, local: Local, steps: Number) -> tuple[Vector, Client]:
        x, dual, x0 = self.end_stage(local)
        return x0, Client(x, dual)

    def update(self, server: Vector, mean_upload: Vector, participation: Number) -> Vector:
        return self.server_prox(mean_upload)

    def model(self, server: Vector) -> Vector:
        return server
