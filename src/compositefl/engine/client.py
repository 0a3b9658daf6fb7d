"""One client's part of a round: its gradients and its local steps.

The simulation maps it over clients; a site on a network runs it as it is.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from compositefl.algorithms.base import Algorithm
from compositefl.core.errors import CompositeFLError
from compositefl.core.types import (
    Answers,
    Array,
    Batch,
    Broadcast,
    ClientState,
    Extras,
    LocalState,
    Loss,
    Number,
    Params,
    Points,
    PyTree,
    Upload,
)
from compositefl.core.vector import Vector
from compositefl.engine.hessian import dense_hessian
from compositefl.engine.sampling import Stream, minibatch, round_key
from compositefl.problem import Coupled

if TYPE_CHECKING:
    from compositefl.engine.eager import LoopOracle, SideBySideOracle

AT_ANCHOR = frozenset({"full_loss", "full_gradient", "hessian"})  # of the client's own samples
CHUNK = 2048  # samples evaluated at the same time on one device; bounds memory


class ClientInfo(NamedTuple):
    """Where a client's samples lie. In the simulation one row per client; padding has weight 0."""

    id: Array
    start: Array  # first sample in the buffer
    size: Array
    weight: Array


class Keys(NamedTuple):
    """The keys of one client in one round, or of the round, before the client is folded in."""

    minibatch: jax.Array
    shared: jax.Array  # the same for all clients
    own: jax.Array

    def of(self, client: Number) -> "Keys":
        """The keys of a client, from those of the round."""
        return self._replace(own=jax.random.fold_in(self.own, client))

    def extras(self, algorithm: Algorithm, mean: PyTree) -> Extras:
        """What `algorithm.begin` asks for, but what the client's own samples answer."""
        there = {"key": self.own, "shared_key": self.shared, "mean_full_gradient": mean}
        return {name: there[name] for name in algorithm.needs if name in there}


def round_keys(key: jax.Array, t: Number) -> Keys:
    """The keys of round t of the trial that `key` belongs to."""
    return Keys(*(round_key(key, s, t) for s in (Stream.MINIBATCH, Stream.SHARED, Stream.CLIENT)))


def client_keys(key: jax.Array, t: Number, client: Number) -> Keys:
    """The keys of a client in round t of the trial that `key` belongs to."""
    return round_keys(key, t).of(client)


def weighted_loss(loss: Loss, params: Params, batch: Batch, weight: Array) -> jax.Array:
    """Sum over the samples of weight * loss, from a loss that is a mean over samples."""
    if isinstance(loss, Coupled):
        raise CompositeFLError("this needs a loss that is a mean over samples, not a coupled one")
    each = getattr(loss, "each", None)  # as the library's own networks have
    if each is not None:
        losses = each(params, batch)
    else:
        single = jax.tree.map(lambda a: a[:, None], batch)
        losses = jax.vmap(loss, in_axes=(None, 0))(params, single)
    # A padding sample may be anything: keep its loss, finite or not, out of the sum.
    return jnp.sum(jnp.where(weight > 0, losses * weight.astype(losses.dtype), 0.0))


def coupled_mean(
    loss: Coupled, params: Params, samples: Batch, info: ClientInfo
) -> tuple[Array, Params]:
    """Mean of a coupled loss over the batches of a client, and its gradient.

    A client with fewer samples than a batch repeats them.
    """
    count = (info.size + loss.size - 1) // loss.size

    def batch_of(j: Number) -> tuple[Array, Params]:
        first = jnp.clip(info.size - loss.size, 0, j * loss.size)
        rows = info.start + (first + jnp.arange(loss.size, dtype=jnp.int32)) % info.size
        batch = jax.tree.map(lambda a: a.at[rows].get(mode="promise_in_bounds"), samples)
        return jax.value_and_grad(loss)(params, batch)

    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(batch_of, 0))
    add = lambda j, total: jax.tree.map(jnp.add, total, batch_of(j))  # noqa: E731
    total = lax.fori_loop(0, count, add, zero)
    return jax.tree.map(lambda a: a / count.astype(a.dtype), total)


class Oracle(NamedTuple):
    """One client's gradients in one round."""

    loss: Loss
    batch_size: int | None  # None: full gradients
    largest: int  # samples of the largest client
    equal: bool  # all clients hold the same number of samples
    samples: Batch  # of all clients in the buffer, one after the other
    key: jax.Array  # of the round's minibatches
    info: ClientInfo

    def full(self, point: Vector) -> tuple[Array, Vector]:
        """Mean loss and gradient over all samples of the client."""
        if isinstance(self.loss, Coupled):
            loss, gradient = coupled_mean(self.loss, point.tree, self.samples, self.info)
        elif self.equal:
            loss, gradient = jax.value_and_grad(self.loss)(point.tree, self._all()[0])
        else:
            loss, gradient = jax.value_and_grad(weighted_loss, argnums=1)(
                self.loss, point.tree, *self._all()
            )
        return loss, Vector(gradient)

    def hessian(self, point: Vector) -> jax.Array:
        """Hessian of the mean loss over all samples of the client."""
        batch, weight = self._all()
        own = getattr(self.loss, "hessian", None)  # as the linear models have
        if own is not None:
            return own(point.tree, batch, weight)
        return dense_hessian(lambda x: weighted_loss(self.loss, x, batch, weight), point.tree)

    def _all(self) -> tuple[Batch, jax.Array]:
        """All samples of the client, and the weight of each in their mean."""
        info = self.info
        offset = jnp.arange(self.largest, dtype=jnp.int32)
        weight = jnp.where(offset < info.size, 1.0 / info.size, 0.0)
        if self.equal:
            cut = lambda a: lax.dynamic_slice_in_dim(a, info.start, self.largest)  # noqa: E731
            return jax.tree.map(cut, self.samples), weight
        # Smaller clients read on into their neighbours' samples, which get weight 0.
        rows = info.start + offset
        return jax.tree.map(lambda a: a.at[rows].get(mode="clip"), self.samples), weight

    def __call__(self, point: Vector, step: Number) -> tuple[Array, Vector]:
        """Loss and gradient for a local step: of its minibatch, or of all samples."""
        if self.batch_size is None:
            return self.full(point)
        info = self.info
        draws = info.start + minibatch(self.key, info.id, step, self.batch_size, info.size)
        batch = jax.tree.map(lambda a: a.at[draws].get(mode="promise_in_bounds"), self.samples)
        loss, gradient = jax.value_and_grad(self.loss)(point.tree, batch)
        return loss, Vector(gradient)


def gradients_at(
    algorithm: Algorithm,
    oracle: "Oracle | LoopOracle | SideBySideOracle",
    points: Points,
    l: Number,
) -> Answers:
    """What the oracle says at the points of the l-th query, as `algorithm.step` wants it."""
    at = 0 if algorithm.one_minibatch else l
    return jax.tree.map(
        lambda point: oracle(point, at) if algorithm.wants_values else oracle(point, at)[1],
        points,
        is_leaf=lambda node: isinstance(node, Vector),
    )


def answers_at_anchor(algorithm: Algorithm, oracle: "Oracle | LoopOracle", point: Vector) -> Extras:
    """What `algorithm.begin` asks of the client's own samples, at the anchor."""
    answers: Extras = {}
    if algorithm.needs & {"full_loss", "full_gradient"}:
        loss, gradient = oracle.full(point)
        answers = {"full_loss": loss, "full_gradient": gradient}
    if "hessian" in algorithm.needs:
        answers["hessian"] = oracle.hessian(point)
    return {name: answers[name] for name in answers if name in algorithm.needs}


def client_round(
    algorithm: Algorithm,
    oracle: Oracle,
    steps: Number,
    message: Broadcast,
    state: ClientState,
    extras: Extras,
) -> tuple[Upload, ClientState, jax.Array]:
    """(upload, new private state, local steps taken) of one client that may take `steps` steps."""
    if algorithm.needs & AT_ANCHOR:
        extras = extras | answers_at_anchor(algorithm, oracle, algorithm.anchor(message))
    local = algorithm.begin(message, state, **extras)
    if not algorithm.takes_steps:
        return *algorithm.finish(local, jnp.int32(0)), jnp.int32(0)

    def local_step(carry: tuple[jax.Array, LocalState]) -> tuple[jax.Array, LocalState]:
        l, local = carry
        answers = gradients_at(algorithm, oracle, algorithm.query(local, l), l)
        return l + 1, algorithm.step(local, answers, l)

    def goes_on(carry: tuple[jax.Array, LocalState]) -> jax.Array:
        l, local = carry
        return (l < steps) & ~algorithm.finished(local) if algorithm.stops_early else l < steps

    taken, local = lax.while_loop(goes_on, local_step, (jnp.int32(0), local))
    upload, new = algorithm.finish(local, taken)
    return upload, new, taken
