"""ProxSkip: a proximal gradient method that skips most proxes (Mishchenko et al., ICML 2022)."""

from dataclasses import KW_ONLY
from typing import NamedTuple

import jax
import jax.numpy as jnp

from compositefl.algorithms.base import Algorithm
from compositefl.core.component import component
from compositefl.core.errors import require_positive, require_share
from compositefl.core.types import ClientState, Number
from compositefl.core.vector import Vector


class Server(NamedTuple):
    """What the server keeps."""

    x: Vector
    h: Vector  # estimates the gradient of f at the solution
    last: Vector  # x after the last prox


class Local(NamedTuple):
    """A client's state within a round."""

    x: Vector
    gradient: Vector
    coin: Number


class Upload(NamedTuple):
    """What a client sends back."""

    gradient: Vector
    coin: Number


@component
class ProxSkip(Algorithm):
    """Steps shifted by h, and a prox with probability p only. Centralised.

        xh = x - s (g(x) - h)
        with probability p: x <- prox_{s/p}(xh - (s/p) h), else x <- xh
        h <- h + (p/s) (x - xh)

    with s = lr <= 1/L and p = prox_probability, 1/sqrt(kappa) in the theory; p = 1 is proximal
    gradient. h starts at 0. The model is x after the last prox, so that its zeros are exact; it is
    x_0 until then.

    One round is one step and not one prox: every gradient is the mean over the clients at the
    server's x, and clients that went on by themselves between two proxes would follow their own
    f_i, which is another method. The coin comes from the key that all clients of the round share,
    and returns with the gradients. A round that skips still evaluates the prox in the simulation,
    and is counted with it. With minibatches or sampled clients it is the paper's SProxSkip.
    """

    paper = "Mishchenko, Malinovsky, Stich, Richtarik (2022)"
    covers = "centralised, strongly convex f, convex phi"
    needs = frozenset({"shared_key"})

    _: KW_ONLY
    lr: float
    prox_probability: float

    def __post_init__(self) -> None:
        require_positive(lr=self.lr)
        require_share(prox_probability=self.prox_probability)

    def check(self) -> None:
        self.regularizer.check_prox("lr/prox_probability", self.lr / self.prox_probability)

    def init_server(self, x0: Vector) -> Server:
        return Server(x0, x0.zeros(), x0)

    def broadcast(self, server: Server) -> Vector:
        return server.x

    def begin(self, message: Vector, client: ClientState, *, shared_key: jax.Array) -> Local:  # type: ignore[override]
        coin = jax.random.uniform(shared_key, dtype=jnp.float32) < self.prox_probability
        return Local(message, message.zeros(), coin.astype(jnp.float32))

    def query(self, local: Local, l: Number) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Number) -> Local:
        return local._replace(gradient=gradient)

    def finish(self, local: Local, steps: Number) -> tuple[Upload, ClientState]:
        return Upload(local.gradient, local.coin), ()

    def update(self, server: Server, mean_upload: Upload, participation: Number) -> Server:
        s, p, h = self.lr, self.prox_probability, server.h
        with_prox = mean_upload.coin > 0.5  # all coins are equal, up to rounding in their mean
        xh = server.x - s * (mean_upload.gradient - h)
        proxed = self.prox(xh - (s / p) * h, s / p)
        x = xh.map(lambda a, b: jnp.where(with_prox, b, a), proxed)
        last = server.last.map(lambda a, b: jnp.where(with_prox, b, a), proxed)
        return Server(x, h + (p / s) * (x - xh), last)

    def model(self, server: Server) -> Vector:
        return server.last
