"""FedProx for nonsmooth weakly convex losses, as hinge and absolute (Yuan and Li, Theorem 2)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

import jax
import jax.numpy as jnp

from compositefl.algorithms.base import CompositeVariants
from compositefl.algorithms.certified import Solve, begin_solve, improve
from compositefl.core.component import component
from compositefl.core.errors import (
    is_concrete,
    require_integer,
    require_nonnegative,
    require_positive,
    wrong_value,
)
from compositefl.core.types import Array, ClientState, Number
from compositefl.core.vector import Vector


class State(NamedTuple):
    """What the server keeps."""

    x: Vector
    gap: Number  # mean certified gap of the last round's clients
    unsolved: Number  # share of them that ran out of steps


class Upload(NamedTuple):
    """What a client sends back."""

    dx: Vector
    gap: Number
    unsolved: Number


@component
class FedProxNonsmooth(CompositeVariants):
    """x_i ~ argmin_u f_i(u) + ||u - x||^2/(2 eta), solved to a certified accuracy; x = mean(x_i).

    f_i may be nonsmooth but must be weakly convex with modulus nu = weak_convexity (0: convex),
    and eta < 1/nu; the theorem has eta = r/sqrt(T) with r < 1/(2 nu). See `certified` for the
    local solver. It stops when the objective gap of Definition 2 is proved to be at most
    `accuracy`, or after local_steps evaluations; the server state tells the mean gap and the share
    of clients that were cut off. A negative gap means that nu was too small.

    The subgradient variant puts phi into the loss, value and all, and adds its rho to nu; the
    server's prox has parameter eta. Stateless clients: the theorems sample them with replacement
    and allow any number of them.
    """

    paper = "Yuan, Li (2022), Theorem 2"
    covers = "nonsmooth weakly convex"
    eta_hat_formula = "eta"
    exact_gradients = True  # the cuts must belong to one function
    wants_values = True
    stops_early = True

    _: KW_ONLY
    local_steps: int
    eta: float
    accuracy: float
    weak_convexity: float = 0.0

    def __post_init__(self) -> None:
        require_integer(local_steps=self.local_steps)
        require_positive(eta=self.eta)
        require_nonnegative(accuracy=self.accuracy, weak_convexity=self.weak_convexity)

    def check(self) -> None:
        super().check()
        if is_concrete(self.nu) and not self.eta * self.nu < 1:
            raise wrong_value("eta", self.eta, f"below 1/nu = {1 / self.nu:.6g}")

    @property
    def nu(self) -> Number:
        inside = self.composite == "subgradient"
        return self.weak_convexity + (self.regularizer.rho if inside else 0.0)

    @property
    def eta_hat(self) -> Number:
        return self.eta

    @property
    def steps(self) -> Number:
        return self.local_steps

    def init_server(self, x0: Vector) -> State:
        return State(x0, jnp.zeros(()), jnp.zeros(()))

    def broadcast(self, server: State) -> Vector:
        return server.x

    def begin(self, message: Vector, client: ClientState) -> Solve:
        return begin_solve(message)

    def query(self, local: Solve, l: Number) -> Vector:
        return local.u

    def step(self, local: Solve, gradient: tuple[Array, Vector], l: Number) -> Solve:
        loss, slope = gradient
        if self.composite == "subgradient":
            loss = loss + self.regularizer.value(local.u.tree)
        slope = self.total_gradient(slope, local.u)
        return improve(local, loss, slope, self.nu, 1 / self.eta - self.nu, l == 0)

    def finished(self, local: Solve) -> jax.Array:
        return local.gap <= self.accuracy

    def finish(self, local: Solve, steps: Number) -> tuple[Upload, ClientState]:
        unsolved = jnp.where(self.finished(local), 0.0, 1.0)
        return Upload(local.best - local.centre, local.gap, unsolved), ()

    def update(self, server: State, mean_upload: Upload, participation: Number) -> State:
        x = self.server_prox(server.x + mean_upload.dx)
        return State(x, mean_upload.gap, mean_upload.unsolved)

    def model(self, server: State) -> Vector:
        return server.x
