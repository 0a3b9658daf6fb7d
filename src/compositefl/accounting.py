"""What one round costs: messages and prox evaluations, counted from the algorithm itself."""

from typing import Any, NamedTuple

import jax

from compositefl.algorithms.base import Algorithm
from compositefl.component import component, replace, static
from compositefl.regularizers.base import Regularizer
from compositefl.vector import Vector


class RoundCost(NamedTuple):
    """Per round: bytes and prox evaluations of one client, prox evaluations of the server."""

    bytes_down: int
    bytes_up: int
    prox_client: int
    prox_server: int
    gradients: int  # gradient calls of one client


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
    def rho(self) -> Any:
        return self.inner.rho

    def value(self, x: Any) -> Any:
        return self.inner.value(x)

    def prox(self, z: Any, t: Any) -> Any:
        self.counter.calls += 1
        return self.inner.prox(z, t)


def message_bytes(message: Any) -> int:
    """Bytes of all arrays in a message."""
    return sum(a.size * a.dtype.itemsize for a in jax.tree.leaves(message))


def round_cost(algorithm: Algorithm, x0: Any) -> RoundCost:
    """Trace one round of `algorithm` from parameters like `x0`, and count."""
    counter = _Counter()
    counts: dict[str, int] = {}
    steps = int(algorithm.steps)

    def counted(name: str, function: Any, *args: Any) -> Any:
        before = counter.calls
        out = function(*args)
        counts[name] = counter.calls - before
        return out

    def trace(start: Vector) -> Any:
        method = replace(algorithm, regularizer=_Counted(algorithm.regularizer, counter))
        server, client = method.init_server(start), method.init_client(start)
        message = counted("broadcast", method.broadcast, server)
        local = counted("begin", method.begin, message, client)
        point = counted("query", method.query, local, 0)
        local = counted("step", method.step, local, point, 0)
        upload, _ = counted("finish", method.finish, local, steps)
        server = counted("update", method.update, server, upload, 1.0)
        counted("model", method.model, server)
        return message, upload

    message, upload = jax.eval_shape(trace, Vector(x0))
    return RoundCost(
        bytes_down=message_bytes(message),
        bytes_up=message_bytes(upload),
        prox_client=counts["begin"] + steps * (counts["query"] + counts["step"]) + counts["finish"],
        prox_server=counts["broadcast"] + counts["update"] + counts["model"],
        gradients=steps,
    )
