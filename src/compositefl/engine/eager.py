"""One client's part of a round for a loss outside JAX, such as a PyTorch module's, in Python.

The equations are the algorithm's own, compiled one by one. Minibatches are drawn with the keys of
the compiled rounds, so both follow the same trajectory. The simulation of such losses and the sites
of a network share what is here.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

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
    Number,
    Params,
    Points,
    PyTree,
    Upload,
)
from compositefl.core.vector import Vector
from compositefl.data import take
from compositefl.engine.client import AT_ANCHOR, CHUNK, answers_at_anchor, gradients_at
from compositefl.engine.sampling import minibatch
from compositefl.problem import Coupled, External, uncoupled


def parts(loss: External | Coupled, size: int) -> Iterator[tuple[np.ndarray, float]]:
    """(rows, share) of the batches whose mean is the mean over `size` samples."""
    if isinstance(loss, Coupled):
        count = -(-size // loss.size)
        for j in range(count):
            first = min(max(size - loss.size, 0), j * loss.size)
            yield (first + np.arange(loss.size)) % size, 1 / count
        return
    for first in range(0, size, CHUNK):  # bounds memory
        rows = np.arange(first, min(size, first + CHUNK))
        yield rows, len(rows) / size


def mean_over_parts(
    function: Callable[[Batch], PyTree], loss: External | Coupled, samples: Batch
) -> PyTree:
    """The mean over samples of a function that is a mean over a batch, in the parts of `loss`."""
    total = None
    for rows, share in parts(loss, len(jax.tree.leaves(samples)[0])):
        part = jax.tree.map(lambda a, share=share: a * share, function(take(samples, rows)))
        total = part if total is None else jax.tree.map(operator.add, total, part)
    return total


def full_mean(loss: External | Coupled, params: Params, samples: Batch) -> tuple[Array, Params]:
    """Mean of a loss over all samples, and its gradient."""
    return mean_over_parts(partial(external(loss).value_and_gradient, params), loss, samples)


def mean_value(function: External | Coupled, params: Params, samples: Batch) -> float:
    """Mean of an accuracy over all samples."""
    return float(mean_over_parts(partial(external(function), params), function, samples))


def external(loss: External | Coupled) -> External:
    """The function itself, which is one outside JAX."""
    own: External = uncoupled(loss)
    return own


class LoopOracle(NamedTuple):
    """One client's gradients in one round."""

    loss: External | Coupled
    batch_size: int | None  # None: full gradients
    key: jax.Array  # of the round's minibatches
    client: int
    samples: Batch  # the client's own, numpy arrays

    def full(self, point: Vector) -> tuple[Array, Vector]:
        """Mean loss and gradient over all samples of the client."""
        value, gradient = full_mean(self.loss, jax.device_get(point.tree), self.samples)
        return value, Vector(gradient)

    def hessian(self, _: Vector) -> jax.Array:
        """A loss outside JAX has no second derivatives; `check_hessian` says so earlier."""
        raise CompositeFLError("a loss outside JAX has no Hessian")

    def __call__(self, point: Vector, step: Number) -> tuple[Array, Vector]:
        """Loss and gradient for a local step: of its minibatch, or of all samples."""
        if self.batch_size is None:
            return self.full(point)
        size = np.int32(len(jax.tree.leaves(self.samples)[0]))
        draws = _minibatch(self.key, np.int32(self.client), np.int32(step), self.batch_size, size)
        batch = take(self.samples, np.asarray(draws))
        value, gradient = external(self.loss).value_and_gradient(jax.device_get(point.tree), batch)
        return value, Vector(gradient)


def client_round(
    algorithm: Algorithm,
    oracle: LoopOracle,
    steps: int,
    message: Broadcast,
    state: ClientState,
    extras: Extras,
) -> tuple[Upload, ClientState, int]:
    """(upload, new private state, local steps taken), as `engine.client.client_round`."""
    if algorithm.needs & AT_ANCHOR:
        extras = extras | answers_at_anchor(algorithm, oracle, anchor(algorithm, message))
    if not algorithm.takes_steps:
        return *_whole(algorithm, message, state, extras), 0
    local, points = _begin(algorithm, message, state, extras)
    l = 0
    while l < steps and not (algorithm.stops_early and _finished(algorithm, local)):
        answers = gradients_at(algorithm, oracle, points, l)
        local, points = _step(algorithm, local, answers, np.int32(l))
        l += 1
    upload, new = _finish(algorithm, local, np.int32(l))
    return upload, new, l


def taken(samples: Sequence[Batch], rows: np.ndarray) -> Batch:
    """The rows of each client's samples, the client in front."""

    def of(*leaves: np.ndarray) -> np.ndarray:
        batch = np.empty((*rows.shape, *leaves[0].shape[1:]), leaves[0].dtype)
        for leaf, own, place in zip(leaves, rows, batch, strict=True):
            np.take(leaf, own, 0, place, "clip")  # "raise" would copy once more
        return batch

    return jax.tree.map(of, *samples)


class SideBySideOracle(NamedTuple):
    """Minibatch gradients of several clients in one round; points have the client in front."""

    loss: External | Coupled
    batch_size: int
    key: jax.Array  # of the round's minibatches
    clients: np.ndarray
    samples: Sequence[Batch]  # of each client, numpy arrays

    def __call__(self, points: Vector, step: Number) -> tuple[Array, Vector]:
        """Losses and gradients for a local step, each client's of its own minibatch."""
        sizes = np.array([len(jax.tree.leaves(own)[0]) for own in self.samples], np.int32)
        draws = _minibatches(self.key, self.clients, np.int32(step), self.batch_size, sizes)
        batch = taken(self.samples, np.asarray(draws))
        values, gradients = external(self.loss).values_and_gradients(points.tree, batch)
        return values, Vector(gradients)


def client_rounds(
    algorithm: Algorithm,
    oracle: SideBySideOracle,
    steps: int,
    message: Broadcast,
    states: ClientState,
    extras: Sequence[Extras],
) -> tuple[Upload, ClientState]:
    """(uploads, new private states) of several clients that take the same steps side by side."""
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *extras)
    local, points = _begin_all(algorithm, message, oracle.clients, states, stacked)
    for l in range(steps):
        answers = gradients_at(algorithm, oracle, points, l)
        local, points = _step_all(algorithm, local, answers, np.int32(l))
    return _finish_all(algorithm, local, np.int32(steps))


@jax.jit
def _begin_all(
    algorithm: Algorithm,
    message: Broadcast,
    numbers: np.ndarray,
    states: ClientState,
    extras: Extras,
) -> tuple[LocalState, Points]:
    """`_begin` of several clients. There may be neither states nor extras, hence the numbers."""

    def one(_: Array, state: ClientState, extras: Extras) -> tuple[LocalState, Points]:
        return _begin(algorithm, message, state, extras)

    return jax.vmap(one)(numbers, states, extras)


@partial(jax.jit, donate_argnums=1)
def _step_all(
    algorithm: Algorithm, local: LocalState, answers: Answers, l: Number
) -> tuple[LocalState, Points]:
    """`_step` of several clients, in the memory of the state before it."""
    return jax.vmap(lambda local, answers: _step(algorithm, local, answers, l))(local, answers)


@jax.jit
def _finish_all(
    algorithm: Algorithm, local: LocalState, steps: Number
) -> tuple[Upload, ClientState]:
    """`_finish` of several clients."""
    return jax.vmap(lambda local: algorithm.finish(local, steps))(local)


def _compiled(name: str) -> Callable[..., PyTree]:
    """A method of an algorithm, compiled once for each class and shape."""
    return jax.jit(lambda algorithm, *arguments: getattr(algorithm, name)(*arguments))


@jax.jit
def _begin(
    algorithm: Algorithm, message: Broadcast, client: ClientState, extras: Extras
) -> tuple[LocalState, Points]:
    """The local state, and where the first gradient is wanted."""
    local = algorithm.begin(message, client, **extras)
    return local, algorithm.query(local, jnp.int32(0))


@jax.jit
def _whole(
    algorithm: Algorithm, message: Broadcast, client: ClientState, extras: Extras
) -> tuple[Upload, ClientState]:
    """A round without local steps."""
    return algorithm.finish(algorithm.begin(message, client, **extras), jnp.int32(0))


@jax.jit
def _step(
    algorithm: Algorithm, local: LocalState, answers: Answers, l: Number
) -> tuple[LocalState, Points]:
    """The local state after step l, and where the next gradient is wanted."""
    local = algorithm.step(local, answers, l)
    return local, algorithm.query(local, l + 1)


broadcast, anchor = _compiled("broadcast"), _compiled("anchor")
_finish, _finished = _compiled("finish"), _compiled("finished")
update, model = _compiled("update"), _compiled("model")
rescale = _compiled("rescale")
normal_map_point = _compiled("normal_map_point")
_minibatch = jax.jit(minibatch, static_argnums=3)
_minibatches = jax.jit(jax.vmap(minibatch, in_axes=(None, 0, None, None, 0)), static_argnums=3)
