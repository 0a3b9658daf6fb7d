"""A federated proximal Newton method: gradients and Hessians are summed, the server solves."""

from dataclasses import KW_ONLY
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from compositefl.algorithms.base import Algorithm
from compositefl.algorithms.quadratic_model import minimize_model, positive_definite
from compositefl.core.component import component
from compositefl.core.damping import ACCEPTED, FACTOR, FIRST, GOOD, POOR
from compositefl.core.errors import require_nonnegative
from compositefl.core.symmetric import from_triangle, to_triangle, triangle_size
from compositefl.core.types import ClientState, Number, PyTree
from compositefl.core.vector import Vector

NOISE = 10.0  # rounding errors of a loss, in units of eps


class Derivatives(NamedTuple):
    """What clients know of f at one point."""

    loss: jax.Array
    gradient: Vector
    hessian: jax.Array  # its lower triangle


class Server(NamedTuple):
    """The accepted point, what is known there, and the point that is tried next."""

    x: Vector  # the accepted point, out of a prox
    at_x: Derivatives
    trial: Vector
    promised: Number  # decrease of psi from x to the trial point, by the quadratic model
    damping: Number
    accepted: jax.Array  # points so far


@component
class ProxNewton(Algorithm):
    """Proximal Newton with Levenberg-Marquardt damping; no step size, no local steps.

    All clients send f_i, its gradient and its Hessian (a triangle) at the trial point y. With
    their means f, g, H at the accepted point x and D = diag(H), the next trial point is

        y = argmin_y g.(y - x) + 1/2 (y - x)'(H + damping D)(y - x) + phi(y),

    a prox in the metric of H, solved by the server to high accuracy. When the clients' losses at y
    are back, the real decrease of psi is compared with the one that the model with H promised. A
    share above 1e-4 accepts y; the damping falls after a good prediction and rises after a poor
    one. `damping` is the first one, 0 for Newton's own step. phi may be weakly convex, and f need
    not be convex: negative eigenvalues of H then count with their absolute values.

    The first round measures the start, so K rounds make at most K - 1 steps. For GLMs a handful
    of rounds gives what first-order methods need thousands for, at p (p + 1)/2 numbers per upload.
    Losses of two rounds are compared: float64 is advised, in float32 progress ends at about
    1e-6 of psi. Server state and uploads grow as p^2, hence the limit on p (`engine.hessian`).

    Lee, Sun and Saunders (2014) analyse the step; the damping instead of a line search keeps one
    round trip per round. Sending Hessians is the start of FedNL (Safaryan et al. 2022), which
    compresses their changes and has no phi. Zeng, Ouyang and Milzarek (2026) globalise a
    semismooth Newton method on the normal map, the map that FedNMap steps along, for one machine.
    """

    paper = "Lee, Sun, Saunders (2014)"
    covers = "f smooth, few parameters; phi weakly convex"
    exact_gradients = True
    takes_steps = False
    needs = frozenset({"full_loss", "full_gradient", "hessian"})
    needs_everyone = "it compares the losses of two rounds, which must be of the same clients"
    needs_all_steps = "it has none that a client could leave out"
    prox_of_update: ClassVar[int | None] = 1  # in the metric of H, by an inner solver

    _: KW_ONLY
    damping: float = 0.0

    def __post_init__(self) -> None:
        require_nonnegative(damping=self.damping)

    @property
    def steps(self) -> int:
        return 0

    def init_server(self, x0: Vector) -> Server:
        x = self.prox(x0, 0.0)  # x0 itself, or its projection on a constraint
        flat, _ = ravel_pytree(x)
        zero = jnp.zeros((), flat.dtype)
        nothing = Derivatives(zero, x.zeros(), jnp.zeros(triangle_size(flat.size), flat.dtype))
        return Server(x, nothing, x, zero, zero + self.damping, jnp.int32(0))

    def broadcast(self, server: Server) -> Vector:
        return server.trial

    def anchor(self, message: Vector) -> Vector:
        return message

    def begin(  # type: ignore[override]
        self,
        message: Vector,
        client: ClientState,
        full_loss: jax.Array,
        full_gradient: Vector,
        hessian: jax.Array,
    ) -> Derivatives:
        return Derivatives(full_loss, full_gradient, to_triangle(hessian))

    def finish(self, local: Derivatives, steps: Number) -> tuple[Derivatives, ClientState]:
        return local, ()

    def update(self, server: Server, mean_upload: Derivatives, participation: Number) -> Server:
        phi, old, new = self.regularizer.value, server.at_x.loss, mean_upload.loss
        decrease = old - new + phi(server.x.tree) - phi(server.trial.tree)
        finfo = jnp.finfo(new.dtype)
        noise = NOISE * finfo.eps * (jnp.abs(old) + jnp.abs(new)) + finfo.tiny
        kept = (decrease + noise) / (server.promised + noise)
        first = server.accepted == 0
        accept = first | (kept >= ACCEPTED)  # NaN is not

        def choose(a: PyTree, b: PyTree) -> PyTree:
            return jax.tree.map(lambda a, b: jnp.where(accept, a, b), a, b)

        x, at_x = choose((server.trial, mean_upload), (server.x, server.at_x))
        factor = jnp.where(kept > GOOD, 1 / FACTOR, jnp.where(kept < POOR, FACTOR, 1.0))
        raised = jnp.maximum(server.damping * FACTOR, FIRST)
        damping = jnp.where(accept, server.damping * jnp.where(first, 1.0, factor), raised)
        trial, promised, damping = self.next_trial(x, at_x, damping)
        return Server(x, at_x, trial, promised, damping, server.accepted + accept)

    def next_trial(
        self, x: Vector, at_x: Derivatives, damping: Number
    ) -> tuple[Vector, Number, jax.Array]:
        """The minimiser of the damped model at x, the decrease it promises, and its damping."""
        H, phi = from_triangle(at_x.hessian), self.regularizer
        B, damping = positive_definite(H, damping)
        found = minimize_model(phi, x, at_x.gradient, B)
        # Where the curvature is lost in rounding (separable classes) there is no step: x stays.
        solved = jnp.all(jnp.isfinite(ravel_pytree(found)[0]))
        trial = found.map(lambda a, b: jnp.where(solved, a, b), x)
        d, g = (ravel_pytree(v)[0] for v in (trial - x, at_x.gradient))
        model = jnp.vdot(g + 0.5 * (H @ d), d)
        return trial, phi.value(x.tree) - phi.value(trial.tree) - model, damping

    def model(self, server: Server) -> Vector:
        return server.x
