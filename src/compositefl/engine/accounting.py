"""What one round costs: messages and prox evaluations, counted from the algorithm itself."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from compositefl.algorithms.base import Algorithm
from compositefl.core.component import component, replace, static
from compositefl.core.trees import tree_bytes
from compositefl.core.types import Broadcast, Extras, LocalState, Number, Params, PyTree, Upload
from compositefl.core.vector import Vector
from compositefl.regularizers.base import Regularizer


class RoundCost(NamedTuple):
    """What one visit of one client costs, one of its local steps, and one round of the server."""

    bytes_down: int
    bytes_up: int
    prox_visit: int  # prox evaluations of a client outside its local steps
    prox_step: int  # ... in each local step
    prox_server: int
    gradients_visit: int  # full gradients at the start of a round
    gradients_step: int
    steps: int  # local steps of a visit, as a rule
    hessians_visit: int = 0

    @property
    def prox_client(self) -> int:
        """Prox evaluations of a client in a round."""
        return self.prox_visit + self.steps * self.prox_step

    def so_far(self, rounds: int, visits: int, steps: int) -> dict[str, int]:
        """Columns of the history after so many rounds, visits of clients and local steps."""
        counts = {
            "gradients": visits * self.gradients_visit + steps * self.gradients_step,
            "prox_clients": visits * self.prox_visit + steps * self.prox_step,
            "prox_server": rounds * self.prox_server,
            "bytes_up": visits * self.bytes_up,
            "bytes_down": visits * self.bytes_down,
        }
        return counts | ({"hessians": visits * self.hessians_visit} if self.hessians_visit else {})


class _Counter:
    """Counts calls while an algorithm is traced."""

    def __init__(self) -> None:
        self.calls = 0


@component
class _Counted(Regularizer):
    """A regulariser that reports every prox call."""

    inner: Regularizer
    counter: _Counter = static()

    @property
    def is_separable(self) -> bool:  # type: ignore[override]
        return self.inner.is_separable

    @property
    def rho(self) -> Number:
        return self.inner.rho

    def value(self, x: Params) -> Number:
        return self.inner.value(x)

    def prox(self, z: Params, t: Number) -> Params:
        self.counter.calls += 1
        return self.inner.prox(z, t)


def example_extras(algorithm: Algorithm, start: Vector) -> Extras:
    """Arguments of `algorithm.begin` that look like those of a round, for tracing."""
    flat, _ = ravel_pytree(start)
    there = {
        "key": jax.random.key(0),
        "shared_key": jax.random.key(0),
        "full_loss": jnp.zeros((), flat.dtype),
        "full_gradient": start,
        "mean_full_gradient": start,
    }
    if "hessian" in algorithm.needs:
        there["hessian"] = jnp.zeros((flat.size, flat.size), flat.dtype)
    return {name: there[name] for name in algorithm.needs}


def round_cost(algorithm: Algorithm, x0: Params) -> RoundCost:
    """Trace one round of `algorithm` from parameters like `x0`, and count."""
    counter = _Counter()
    counts = {"query": 0, "step": 0, "points": 0}
    steps = int(algorithm.steps)

    def counted(name: str, function: Callable[..., PyTree], *args: PyTree) -> PyTree:
        before = counter.calls
        out = function(*args)
        counts[name] = counter.calls - before
        return out

    def counted_step(method: Algorithm, local: LocalState) -> LocalState:
        points = counted("query", method.query, local, 0)
        counts["points"] = len(points) if isinstance(points, tuple) else 1
        gradient = jax.tree.map(
            lambda p: (jnp.zeros(()), p) if method.wants_values else p,
            points,
            is_leaf=lambda node: isinstance(node, Vector),
        )
        return counted("step", method.step, local, gradient, 0)

    def trace(start: Vector) -> tuple[Broadcast, Upload]:
        method = replace(algorithm, regularizer=_Counted(algorithm.regularizer, counter))
        server, client = method.init_server(start), method.init_client(start)
        message = counted("broadcast", method.broadcast, server)
        extras = example_extras(method, start)
        local = counted("begin", partial(method.begin, **extras), message, client)
        if method.takes_steps:
            local = counted_step(method, local)
        upload, _ = counted("finish", method.finish, local, steps)
        server = counted("update", method.update, server, upload, 1.0)
        if method.prox_of_update is not None:
            counts["update"] = method.prox_of_update
        counted("model", method.model, server)
        return message, upload

    start = jax.eval_shape(lambda: Vector(x0))
    message, upload = jax.eval_shape(trace, start)
    # The mean of the full gradients takes a round trip of its own before the local steps.
    opening = tree_bytes(start) if "mean_full_gradient" in algorithm.needs else 0
    return RoundCost(
        bytes_down=tree_bytes(message) + opening,
        bytes_up=algorithm.upload_bytes(upload) + opening,
        prox_visit=counts["begin"] + counts["finish"],
        prox_step=counts["query"] + counts["step"],
        prox_server=counts["broadcast"] + counts["update"] + counts["model"],
        gradients_visit=len(algorithm.needs & {"full_gradient", "mean_full_gradient"}),
        gradients_step=counts["points"],
        steps=steps,
        hessians_visit=int("hessian" in algorithm.needs),
    )
