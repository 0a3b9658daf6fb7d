"""One client's part of a round for a loss outside JAX, such as a PyTorch module's, in Python.

The equations are the algorithm's own, compiled one by one. Minibatches are drawn with the keys of
the compiled rounds, so both follow the same trajectory. The simulation of such losses and the sites
of a network share what is here.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

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

DRAWN = 16  # steps whose minibatches are drawn in one call, at most


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


class SideBySideOracle:
    """Minibatch gradients of several clients in one round; points have the client in front."""

    def __init__(
        self,
        loss: External | Coupled,
        batch_size: int,
        key: jax.Array,  # of the round's minibatches
        steps: int,
        clients: np.ndarray,
        samples: Batch,  # numpy arrays which hold the samples of all these clients
        starts: np.ndarray,  # where those of each begin
        sizes: np.ndarray,
    ):
        self.loss, self.batch_size, self.key, self.clients = loss, batch_size, key, clients
        self.samples, self.starts, self.sizes = samples, starts, sizes.astype(np.int32)
        self.at_once = min(DRAWN, 1 << (steps - 1).bit_length())  # few sizes to compile for
        self.rows: dict[int, np.ndarray] = {}  # of the steps that were drawn last
        self.cut: tuple[int, Batch] = (-1, None)  # the step whose minibatches were cut last

    def __call__(self, points: Vector, step: Number) -> tuple[Array, Vector]:
        """Losses and gradients for a local step, each client's of its own minibatch."""
        batch = self._batch(int(step))
        values, gradients = external(self.loss).values_and_gradients(points.tree, batch)
        return values, Vector(gradients)

    def _batch(self, step: int) -> Batch:
        """The minibatches of a step, the client in front; they last until the next one's."""
        last, batch = self.cut
        if last != step:
            rows = self._rows(step)
            if batch is None:
                batch = jax.tree.map(
                    lambda a: np.empty((*rows.shape, *a.shape[1:]), a.dtype), self.samples
                )
            # "raise" would copy once more
            jax.tree.map(lambda a, out: np.take(a, rows, 0, out, "clip"), self.samples, batch)
            self.cut = step, batch
        return batch

    def _rows(self, step: int) -> np.ndarray:
        """The rows of a step's minibatches. Several steps are drawn in one call."""
        if step not in self.rows:
            steps = np.arange(step, step + self.at_once, dtype=np.int32)
            draws = _minibatches(self.key, self.clients, steps, self.batch_size, self.sizes)
            rows = np.asarray(draws) + self.starts[:, None]
            self.rows = dict(zip(steps.tolist(), rows, strict=True))
        return self.rows[step]


def client_rounds(
    algorithm: Algorithm,
    oracle: SideBySideOracle,
    steps: int,
    message: Broadcast,
    states: ClientState,
    extras: Sequence[Extras],
) -> tuple[Upload, ClientState]:
    """(uploads, new private states) of several clients that take the same steps side by side."""
    clients = oracle.clients
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *extras)
    begun = _begin_all(algorithm, message, clients, states, stacked)
    locals_, points = _told(begun, Given(message, states), len(clients))
    for l in range(steps):
        answers = gradients_at(algorithm, oracle, points, l)
        stepped = _step_all(algorithm, *locals_, answers, np.int32(l), clients)
        given = Given(locals_.common, locals_.before)
        locals_, points = _told(stepped, given, len(clients))
    return _finish_all(algorithm, *locals_, np.int32(steps), clients)


class Given(NamedTuple):
    """What a local state may keep as it is, instead of a copy of it."""

    common: PyTree  # the message or parts of it: the same for all clients
    before: PyTree  # the private states before the round or parts of them, the client in front


class Locals(NamedTuple):
    """The local states of several clients: what they work on, and what they keep as it is.

    All three have the structure of a local state, with None for what is in another. Copies at each
    step of what does not change, or for each client of the message, are as large as all models.
    """

    own: LocalState  # the client in front
    common: LocalState  # as in `Given`
    before: LocalState


@jax.tree_util.register_static
@dataclass(frozen=True)
class Same:
    """In the place of an array: it is the leaf of this number in what is known."""

    number: int


Told: TypeAlias = tuple[LocalState, Points]  # with `Same` of `Given`, and of the local state


def _is_same(leaf: object) -> bool:
    return isinstance(leaf, Same)


def _but_known(tree: PyTree, known: PyTree) -> PyTree:
    """The tree, with `Same` for leaves that are leaves of `known`, and not only equal to them."""
    numbers = {id(leaf): number for number, leaf in enumerate(jax.tree.leaves(known))}
    return jax.tree.map(lambda a: Same(numbers[id(a)]) if id(a) in numbers else a, tree)


def _tell(algorithm: Algorithm, local: LocalState, l: Number, given: Given) -> Told:
    """A client's local state and its next points without what is known."""
    points = _but_known(algorithm.query(local, l), local)
    return _but_known(local, given), points


def _told(told: Told, given: Given, clients: int) -> tuple[Locals, Points]:
    """The local states and points of all clients, from what `_tell` left of them."""
    local, points = told
    every, common = jax.tree.leaves(given), len(jax.tree.leaves(given.common))

    def part(wanted: Callable[[Array | Same], bool]) -> LocalState:
        found = lambda a: every[a.number] if _is_same(a) else a  # noqa: E731
        return jax.tree.map(lambda a: found(a) if wanted(a) else None, local, is_leaf=_is_same)

    leaves = jax.tree.leaves(local, is_leaf=_is_same)

    def point(a: Array | Same) -> Array:
        found = leaves[a.number] if _is_same(a) else a
        if not _is_same(found):
            return found
        if found.number >= common:
            return every[found.number]
        one = np.asarray(every[found.number])
        return np.broadcast_to(one, (clients, *one.shape))  # no copies

    return Locals(
        part(lambda a: not _is_same(a)),
        part(lambda a: _is_same(a) and a.number < common),
        part(lambda a: _is_same(a) and a.number >= common),
    ), jax.tree.map(point, points, is_leaf=_is_same)


def _whole_state(*parts: LocalState) -> LocalState:
    """A client's local state from the parts of `Locals`."""

    def present(*leaves: Array | None) -> Array | None:
        return next((leaf for leaf in leaves if leaf is not None), None)

    return jax.tree.map(present, *parts, is_leaf=lambda leaf: leaf is None)


@jax.jit
def _begin_all(
    algorithm: Algorithm,
    message: Broadcast,
    clients: np.ndarray,
    states: ClientState,
    extras: Extras,
) -> Told:
    """`_begin` of several clients. There may be neither states nor extras, hence their numbers."""

    def one(_: Array, state: ClientState, extras: Extras) -> Told:
        local = algorithm.begin(message, state, **extras)
        return _tell(algorithm, local, jnp.int32(0), Given(message, state))

    return jax.vmap(one)(clients, states, extras)


@partial(jax.jit, donate_argnums=1)
def _step_all(
    algorithm: Algorithm,
    own: LocalState,
    common: LocalState,
    before: LocalState,
    answers: Answers,
    l: Number,
    clients: np.ndarray,
) -> Told:
    """`_step` of several clients, in the memory of the states before it."""

    def one(_: Array, own: LocalState, before: LocalState, answers: Answers) -> Told:
        local = algorithm.step(_whole_state(own, common, before), answers, l)
        return _tell(algorithm, local, l + 1, Given(common, before))

    return jax.vmap(one)(clients, own, before, answers)


@jax.jit
def _finish_all(
    algorithm: Algorithm,
    own: LocalState,
    common: LocalState,
    before: LocalState,
    steps: Number,
    clients: np.ndarray,
) -> tuple[Upload, ClientState]:
    """`_finish` of several clients."""

    def one(_: Array, own: LocalState, before: LocalState) -> tuple[Upload, ClientState]:
        return algorithm.finish(_whole_state(own, common, before), steps)

    return jax.vmap(one)(clients, own, before)


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
# of several steps, and in each of several clients
_minibatches = jax.jit(
    jax.vmap(
        jax.vmap(minibatch, in_axes=(None, 0, None, None, 0)), in_axes=(None, None, 0, None, None)
    ),
    static_argnums=3,
)
