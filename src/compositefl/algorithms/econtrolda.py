"""EControlDA: dual averaging with compressed uploads (Gao, Rodomanov, Rack, Stich 2025)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

import jax
import jax.numpy as jnp

from compositefl.algorithms.base import Algorithm
from compositefl.algorithms.compressors import Compressor, parse
from compositefl.core.component import component, static
from compositefl.core.errors import CompositeFLError, require_positive, require_share, wrong_value
from compositefl.core.types import Number
from compositefl.core.vector import Vector


class Server(NamedTuple):
    """What the server keeps."""

    x0: Vector
    h: Vector  # mean of all clients' h_i
    total: Vector  # G, the sum of all h so far
    x: Vector
    average: Vector  # of x_1, ..., x_t
    round: Number


class Client(NamedTuple):
    """What a client keeps from round to round."""

    h: Vector  # what the server knows of the client's gradient
    error: Vector  # e_i, the sum of all g_i - h_i


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    gradient: Vector
    client: Client
    key: jax.Array


@component
class EControlDA(Algorithm):
    """Clients send compressed corrections to h_i; the server averages duals, one prox a round.

        D_i = C(g_i(x_t) - h_i + kappa e_i);  h_i <- h_i + D_i;  e_i <- e_i + g_i(x_t) - h_i
        h <- h + mean D_i;  G <- G + h;  x_{t+1} = prox_{(t+1)/lam}(x_0 - G/lam)

    lam = 1/lr, times sqrt(t+1) with schedule="sqrt". kappa = control_gain must be of the order of
    the compressor's delta, which is the default. One gradient a client and round (Q = 1), h_i and
    e_i start at 0. output="average" hands out the mean of x_1, ..., x_t, as the theory does,
    instead of the last x. The prox parameter grows without bound, so phi must be convex.

    compressor: TopK, RandomK or Identity, or a text such as "top-k:0.1". The paper treats full
    participation only.
    """

    paper = "Gao, Rodomanov, Rack, Stich (2025)"
    covers = "convex f and phi, compressed uploads"
    needs = frozenset({"key"})
    needs_everyone = "the server uses h_i, and so e_i must grow, in every round"

    _: KW_ONLY
    lr: float
    compressor: Compressor | str = static(default="top-k:0.1")
    control_gain: float | None = None
    schedule: str = static(default="constant")
    output: str = static(default="last")

    def __post_init__(self) -> None:
        require_positive(lr=self.lr)
        if self.control_gain is not None:
            require_share(control_gain=self.control_gain)
        _ = self.compress  # an unknown name is an error here

    def check(self) -> None:
        if self.schedule not in ("constant", "sqrt"):
            raise wrong_value(
                "schedule", self.schedule, "'constant' or 'sqrt'", shown=repr(self.schedule)
            )
        if self.output not in ("last", "average"):
            raise wrong_value("output", self.output, "'last' or 'average'", shown=repr(self.output))
        if not self.regularizer.convex:
            raise CompositeFLError(
                f"EControlDA needs a convex regulariser: its prox parameter grows past 1/rho of "
                f"{self.regularizer!r}"
            )

    @property
    def compress(self) -> Compressor:
        return parse(self.compressor) if isinstance(self.compressor, str) else self.compressor

    def gain(self, v: Vector) -> Number:
        """kappa for vectors like v."""
        if self.control_gain is not None:
            return self.control_gain
        return self.compress.delta(sum(a.size for a in jax.tree.leaves(v)))

    def init_server(self, x0: Vector) -> Server:
        return Server(x0, x0.zeros(), x0.zeros(), x0, x0, jnp.zeros((), jnp.int32))

    def init_client(self, x0: Vector) -> Client:
        return Client(x0.zeros(), x0.zeros())

    def broadcast(self, server: Server) -> Vector:
        return server.x

    def begin(self, message: Vector, client: Client, *, key: jax.Array) -> Local:  # type: ignore[override]
        return Local(message, message.zeros(), client, key)

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        return local._replace(gradient=gradient)

    def finish(self, local: Local, steps: Number) -> tuple[Vector, Client]:
        g, (h, error) = local.gradient, local.client
        delta = self.compress(g - h + self.gain(g) * error, local.key)
        h = h + delta
        return delta, Client(h, error + g - h)

    def update(self, server: Server, mean_upload: Vector, participation: Number) -> Server:
        h = server.h + mean_upload
        total = server.total + h
        rounds = server.round + 1
        lr = self.lr * rounds**-0.5 if self.schedule == "sqrt" else self.lr  # 1/lam
        x = self.prox(server.x0 - lr * total, rounds * lr)
        average = server.average + (x - server.average) / rounds
        return Server(server.x0, h, total, x, average, rounds)

    def model(self, server: Server) -> Vector:
        return server.average if self.output == "average" else server.x

    def upload_bytes(self, upload: Vector) -> int:
        return self.compress.message_bytes(upload)
