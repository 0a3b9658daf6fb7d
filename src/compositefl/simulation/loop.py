"""Rounds in a Python loop, for a loss that JAX cannot compile, such as that of a PyTorch module.

The equations are the algorithm's own, compiled one by one. Participants and minibatches are drawn
with the keys of the compiled rounds, so both follow the same trajectory.
"""

import operator
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.algorithms.base import Algorithm
from compositefl.problem import Coupled, Foreign, Problem
from compositefl.simulation.client import ClientInfo, answer, client_keys
from compositefl.simulation.evaluation import CHUNK, prox_point, stationarity
from compositefl.simulation.rounds import (
    RELIABLE,
    Conditions,
    Crowd,
    RunState,
    Work,
    attendance,
    initial_state,
    is_finite,
)
from compositefl.simulation.sampling import Stream, minibatch, round_key, trial_key
from compositefl.vector import Vector


def parts(loss: Foreign | Coupled, size: int) -> Iterator[tuple[np.ndarray, float]]:
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


def mean_over_parts(function: Callable[[Any], Any], loss: Any, samples: Any) -> Any:
    """The mean over samples of a function that is a mean over a batch, in the parts of `loss`."""
    total = None
    for rows, share in parts(loss, len(jax.tree.leaves(samples)[0])):
        part = jax.tree.map(lambda a, share=share: a * share, function(take(samples, rows)))
        total = part if total is None else jax.tree.map(operator.add, total, part)
    return total


def full_mean(loss: Foreign | Coupled, params: Any, samples: Any) -> tuple[Any, Any]:
    """Mean of a loss over all samples, and its gradient."""
    return mean_over_parts(partial(foreign(loss).value_and_gradient, params), loss, samples)


def mean_value(function: Foreign | Coupled, params: Any, samples: Any) -> float:
    """Mean of an accuracy over all samples."""
    return float(mean_over_parts(partial(foreign(function), params), function, samples))


def take(samples: Any, rows: np.ndarray) -> Any:
    return jax.tree.map(lambda a: a[rows], samples)


def foreign(loss: Foreign | Coupled) -> Foreign:
    """The function itself, whether coupled or not."""
    return loss.function if isinstance(loss, Coupled) else loss  # type: ignore[return-value]


class LoopOracle(NamedTuple):
    """One client's gradients in one round."""

    loss: Foreign | Coupled
    batch_size: int | None  # None: full gradients
    key: jax.Array  # of the round's minibatches
    client: int
    samples: Any  # the client's own, numpy arrays

    def full(self, point: Vector) -> tuple[Any, Vector]:
        """Mean loss and gradient over all samples of the client."""
        value, gradient = full_mean(self.loss, jax.device_get(point.tree), self.samples)
        return value, Vector(gradient)

    def __call__(self, point: Vector, step: int) -> tuple[Any, Vector]:
        """Loss and gradient for a local step: of its minibatch, or of all samples."""
        if self.batch_size is None:
            return self.full(point)
        size = np.int32(len(jax.tree.leaves(self.samples)[0]))
        draws = _minibatch(self.key, np.int32(self.client), np.int32(step), self.batch_size, size)
        batch = take(self.samples, np.asarray(draws))
        value, gradient = foreign(self.loss).value_and_gradient(jax.device_get(point.tree), batch)
        return value, Vector(gradient)


def client_round(
    algorithm: Algorithm,
    oracle: LoopOracle,
    steps: int,
    message: Any,
    state: Any,
    extras: dict[str, Any],
) -> tuple[Any, Any, int]:
    """(upload, new private state, local steps taken), as `simulation.client.client_round`."""
    if "full_gradient" in algorithm.needs:
        extras = extras | {"full_gradient": oracle.full(anchor(algorithm, message))[1]}
    local, points = _begin(algorithm, message, state, extras)
    l = 0
    while l < steps and not (algorithm.stops_early and _finished(algorithm, local)):
        answers = answer(algorithm, oracle, points, l)
        local, points = _step(algorithm, local, answers, np.int32(l))
        l += 1
    upload, new = _finish(algorithm, local, np.int32(l))
    return upload, new, l


class LoopSimulation:
    """A `Simulation` whose runs and clients work one after the other."""

    def __init__(
        self,
        problem: Problem,
        algorithms: Sequence[Algorithm],
        trials: Sequence[int],
        *,
        seed: int,
        batch_size: int | None,
        count: int,
        weights: np.ndarray,
        dtype: Any,
        replacement: bool = False,
        conditions: Conditions = RELIABLE,
        devices: int | None = None,
        block: int | None = None,
    ):
        self.loss: Any = problem.loss
        self.accuracy: Any = None if problem.test is None else problem.accuracy
        self.batch_size = batch_size
        self.dtype = np.dtype(dtype)
        self.round = 0
        self.crowd = Crowd(len(problem.sizes), count, replacement)
        self.conditions = conditions
        self.weights = weights.astype(self.dtype)
        self.samples = self._samples(problem)
        evaluated = problem.for_evaluation()
        self.evaluated = self.samples if evaluated is problem else self._samples(evaluated)
        self.test = jax.tree.map(self._real, problem.test)
        self.algorithms = [jax.tree.map(self._number, a) for a in algorithms]
        self.keys = [trial_key(np.uint32(seed), np.int32(trial)) for trial in trials]
        start = problem.start(self.dtype)
        states = [_initial(a, start, self.crowd.clients) for a in self.algorithms]
        self.servers = [jax.tree.map(self._owned, server) for server, _ in states]
        self.clients = [jax.tree.map(self._owned, clients) for _, clients in states]
        self.diverged = np.full(len(algorithms), -1, np.int32)
        self.work = Work(np.zeros(len(algorithms), int), np.zeros(len(algorithms), int))

    def advance(self, stop: int) -> None:
        """Run all rounds before round `stop`."""
        for t in range(self.round, stop):
            for run in np.flatnonzero(self.diverged < 0):
                self._one_round(int(run), t)
        self.round = stop

    def block_until_ready(self) -> None:
        """Nothing is ever under way."""

    def evaluate(self, gamma: float) -> dict[str, np.ndarray]:
        """Metrics of every run's model at the present round."""
        rows = [self._measure(run, self.dtype.type(gamma)) for run in range(len(self.servers))]
        return {name: np.array([row[name] for row in rows]) for name in rows[0]}

    def models(self) -> Any:
        """Every run's model, as numpy arrays with the runs as leading axis."""
        models = [model(a, s) for a, s in zip(self.algorithms, self.servers, strict=True)]
        return jax.tree.map(lambda *a: np.stack(a), *models)

    def state(self) -> RunState:
        """All state as numpy arrays. `restore` takes it back."""
        stack = partial(jax.tree.map, lambda *a: np.stack(a))
        return RunState(stack(*self.servers), stack(*self.clients), self.diverged.copy())

    def restore(self, state: RunState, work: Work, round_: int) -> None:
        """Continue from what `state` and `work` were at round `round_`."""
        for run in range(len(self.servers)):
            cut = partial(jax.tree.map, lambda a, run=run: np.array(a[run]))
            self.servers[run], self.clients[run] = cut(state.server), cut(state.clients)
        self.diverged = np.array(state.diverged)
        self.work = jax.tree.map(np.array, work)
        self.round = round_

    def _one_round(self, run: int, t: int) -> None:
        algorithm, server, clients = self.algorithms[run], self.servers[run], self.clients[run]
        key = self.keys[run]
        message = broadcast(algorithm, server)
        steps = algorithm.draw_steps(round_key(key, Stream.SHARED, t))
        info = ClientInfo(np.arange(self.crowd.clients), None, None, self.weights)
        present = _attendance(self.crowd, self.conditions, key, np.int32(t), info, steps)
        times, steps = np.asarray(present.times), np.broadcast_to(present.steps, info.id.shape)
        here = [int(i) for i in np.flatnonzero(times)]
        weight = self.weights * times.astype(self.dtype)
        keys = {i: _keys(key, np.int32(t), np.int32(i)) for i in here}
        oracles = {
            i: LoopOracle(self.loss, self.batch_size, keys[i].minibatch, i, self.samples[i])
            for i in here
        }
        opening = WeightedMean()
        if "mean_full_gradient" in algorithm.needs:  # an exchange of its own before the local steps
            point = anchor(algorithm, message)
            for i in here:
                opening.add(weight[i], oracles[i].full(point)[1])
        extras = {i: keys[i].extras(algorithm, opening.value()) for i in here}

        mean = WeightedMean()
        for i in here:
            state = jax.tree.map(lambda a, i=i: a[i], clients)
            upload, new, taken = client_round(
                algorithm, oracles[i], int(steps[i]), message, state, extras[i]
            )
            self.work.visits[run] += 1
            self.work.steps[run] += taken
            if present.arrived is None or present.arrived[i]:
                # A state whose upload is lost would drift away from what the server believes.
                jax.tree.map(lambda a, b, i=i: a.__setitem__(i, b), clients, jax.device_get(new))
                mean.add(weight[i], jax.device_get(upload))
        if mean.total is None:  # every upload was lost: then nothing happens
            return
        share = self.dtype.type(mean.weight / self.weights.sum())
        updated = update(algorithm, server, mean.value(), share)
        if is_finite(updated):
            self.servers[run] = jax.tree.map(self._owned, updated)
        else:  # the run keeps the server state of its last finite round
            self.diverged[run] = t

    def _measure(self, run: int, gamma: Any) -> dict[str, float]:
        algorithm, phi = self.algorithms[run], self.algorithms[run].regularizer
        x = jax.device_get(model(algorithm, self.servers[run]))
        value, gradient = self._objective(x)
        x_z = jax.device_get(_prox_point(phi, gamma, x, gradient))
        _, gradient_z = self._objective(x_z)
        row = _stationarity(phi, gamma, x, value, gradient, gradient_z)
        if self.accuracy is not None:
            row["accuracy"] = mean_value(self.accuracy, x.tree, self.test)
        return {name: float(number) for name, number in row.items()}

    def _objective(self, x: Vector) -> tuple[Any, Vector]:
        """f(x) and its gradient."""
        mean = WeightedMean()
        for weight, samples in zip(self.weights, self.evaluated, strict=True):
            mean.add(weight, full_mean(self.loss, x.tree, samples))
        value, gradient = mean.value()
        return value, Vector(gradient)

    def _samples(self, problem: Problem) -> list[Any]:
        return [problem.gather([i], int(size), self.dtype) for i, size in enumerate(problem.sizes)]

    def _real(self, a: Any) -> np.ndarray:
        a = np.asarray(a)
        return a.astype(self.dtype) if np.issubdtype(a.dtype, np.floating) else a

    def _number(self, given: Any) -> np.ndarray:
        whole = isinstance(given, (int, np.integer))
        return np.asarray(given, np.int32 if whole else self.dtype)

    def _owned(self, a: Any) -> np.ndarray:
        return np.array(self._real(a))


class WeightedMean:
    """The mean of pytrees, added one after the other."""

    def __init__(self) -> None:
        self.total: Any = None
        self.weight = 0.0

    def add(self, weight: Any, tree: Any) -> None:
        part = jax.tree.map(lambda a: a * a.dtype.type(weight), tree)
        self.total = part if self.total is None else jax.tree.map(np.add, self.total, part)
        self.weight += float(weight)

    def value(self) -> Any:
        return jax.tree.map(lambda a: a / a.dtype.type(self.weight), self.total)


def _compiled(name: str) -> Callable[..., Any]:
    """A method of an algorithm, compiled once for each class and shape."""
    return jax.jit(lambda algorithm, *arguments: getattr(algorithm, name)(*arguments))


@jax.jit
def _begin(algorithm: Algorithm, message: Any, client: Any, extras: dict[str, Any]) -> Any:
    """The local state, and where the first gradient is wanted."""
    local = algorithm.begin(message, client, **extras)
    return local, algorithm.query(local, jnp.int32(0))


@jax.jit
def _step(algorithm: Algorithm, local: Any, answers: Any, l: Any) -> Any:
    """The local state after step l, and where the next gradient is wanted."""
    local = algorithm.step(local, answers, l)
    return local, algorithm.query(local, l + 1)


broadcast, anchor = _compiled("broadcast"), _compiled("anchor")
_finish, _finished = _compiled("finish"), _compiled("finished")
update, model = _compiled("update"), _compiled("model")
_initial = jax.jit(initial_state, static_argnums=2)
_keys = jax.jit(client_keys)
_minibatch = jax.jit(minibatch, static_argnums=3)
_attendance = jax.jit(attendance, static_argnums=0)
_prox_point, _stationarity = jax.jit(prox_point), jax.jit(stationarity)
