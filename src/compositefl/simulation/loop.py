"""Rounds in a Python loop, for a loss that JAX cannot compile, such as that of a PyTorch module.

Participants are drawn with the keys of the compiled rounds, so both follow the same trajectory.
"""

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from compositefl.algorithms.base import Algorithm
from compositefl.core.trees import WeightedMean, as_number, floats_to
from compositefl.core.types import (
    Array,
    Batch,
    Broadcast,
    ClientState,
    DType,
    Extras,
    Number,
    Upload,
)
from compositefl.core.vector import Vector
from compositefl.data import take
from compositefl.engine.client import AT_ANCHOR, Keys, answers_at_anchor, round_keys
from compositefl.engine.curvature import CLIENTS, curvature_by_differences, direction
from compositefl.engine.eager import (
    LoopOracle,
    SideBySideOracle,
    anchor,
    broadcast,
    client_round,
    client_rounds,
    external,
    full_mean,
    mean_value,
    model,
    normal_map_point,
    rescale,
    update,
)
from compositefl.engine.samples import all_samples, converted_test, gather
from compositefl.engine.sampling import Stream, participants, round_key, trial_key
from compositefl.engine.stationarity import prox_point, stationarity
from compositefl.problem import ByNumber, OnDemand, Problem, Stacked
from compositefl.simulation.participation import draw_faults
from compositefl.simulation.program import RELIABLE, ClientSampling, Conditions, RunState, Work
from compositefl.simulation.rounds import initial_state, is_finite
from compositefl.simulation.states import SelfContained

SIDE_BY_SIDE = 2**22  # parameters of all clients worked on at the same time
# (clients, their uploads and new states with the clients in front, steps each of them took)
Visits = Iterator[tuple[np.ndarray, Upload, ClientState, int]]


def keep_freed_memory() -> None:
    """Let the C library use freed blocks again instead of giving them back to the system.

    Arrays of several MB come and go at every step, and new pages take as long as the products.
    glibc keeps blocks up to the largest mapped one that was freed, at most 32 MB; freeing one of
    nearly that size is all it takes. Elsewhere this does nothing.
    """
    np.empty(2**25 - 2**16, np.uint8)


def same_steps(algorithm: Algorithm, steps: list[int]) -> bool:
    """Whether all clients of a round take the same number of steps."""
    return algorithm.takes_steps and not algorithm.stops_early and len(set(steps)) == 1


def _rows(ids: np.ndarray) -> np.ndarray | slice:
    """The same rows, which rise: as a slice, read without a copy, where they are neighbours."""
    first, last = int(ids[0]), int(ids[-1])
    return slice(first, last + 1) if last - first == len(ids) - 1 else ids


class TypedClients(ByNumber):
    """The samples of each client, in the types of a run, when they are asked for."""

    def __init__(self, problem: Problem, dtype: DType):
        self.problem, self.dtype, self.sizes = problem, dtype, problem.sizes

    def batch(self, number: int) -> Batch:
        """The samples of one client."""
        return gather(self.problem, [number], int(self.sizes[number]), self.dtype)


class LoopSimulation(SelfContained):
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
        dtype: DType,
        replacement: bool = False,
        conditions: Conditions = RELIABLE,
    ):
        self.loss: Any = problem.loss
        self.accuracy: Any = None if problem.test is None else problem.accuracy
        self.batch_size = batch_size
        self.dtype = np.dtype(dtype)
        self.round = 0
        self.sampling = ClientSampling(len(problem.sizes), count, replacement)
        self.conditions = conditions
        self.weights = weights.astype(self.dtype)
        self.samples = self._samples(problem)
        evaluated = problem.for_evaluation()
        self.evaluated = self.samples if evaluated is problem else self._samples(evaluated)
        self.evaluated_weights = self.weights[problem.evaluated_clients]
        self.test = converted_test(problem, self.dtype)
        self.together = self._block(problem)
        self.keys = [trial_key(np.uint32(seed), np.int32(trial)) for trial in trials]
        self.seed, self.start = seed, problem.start(self.dtype)
        self.begin(algorithms)

    def begin(self, algorithms: Sequence[Algorithm]) -> None:
        """Stand at the start, with these algorithms."""
        self.round = 0
        self.algorithms = self._numbers(algorithms)
        states = [_initial(a, self.start, self.sampling.clients) for a in self.algorithms]
        self.servers = [jax.tree.map(self._owned, server) for server, _ in states]
        self.clients = [jax.tree.map(self._owned, clients) for _, clients in states]
        self.diverged = np.full(len(algorithms), -1, np.int32)
        self.work = Work(np.zeros(len(algorithms), int), np.zeros(len(algorithms), int))

    def renumber(self, algorithms: Sequence[Algorithm]) -> None:
        """Go on from the present models with other numbers of the same algorithms."""
        new = self._numbers(algorithms)
        for run, (old, other) in enumerate(zip(self.algorithms, new, strict=True)):
            server = rescale(old, self.servers[run], other)
            self.servers[run] = jax.tree.map(self._owned, server)
        self.algorithms = new

    def curvature(self) -> float:
        """The largest curvature of a client's loss at the start, by differences of gradients."""
        x, found = Vector(self.start), 0.0
        key = round_key(self.keys[0], Stream.MINIBATCH, 0)
        for i, samples in enumerate(self.samples[:CLIENTS]):
            oracle = LoopOracle(self.loss, self.batch_size, key, i, samples)
            gradient = lambda point, oracle=oracle: jax.device_get(oracle(point, 0)[1])  # noqa: E731
            found = max(found, curvature_by_differences(gradient, x, direction(self.seed, x)))
        return found

    def _numbers(self, algorithms: Sequence[Algorithm]) -> list[Algorithm]:
        return [jax.tree.map(partial(as_number, self.dtype), a) for a in algorithms]

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

    def models(self) -> Vector:
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
        planned = algorithm.draw_steps(_round_key(key, Stream.SHARED, np.int32(t)))
        who, times = self._drawn(_round_key(key, Stream.PARTICIPANTS, np.int32(t)))
        able, arrived = _draw_faults(self.conditions, key, np.int32(t), who, planned)
        steps = dict(zip(who, np.broadcast_to(able, who.shape).tolist(), strict=True))
        came = who if arrived is None else who[np.asarray(arrived)]
        here = [int(i) for i in who]
        weight = self.weights * times.astype(self.dtype)
        keys = _round_keys(key, np.int32(t))
        oracles = {
            i: LoopOracle(self.loss, self.batch_size, keys.minibatch, i, self.samples[i])
            for i in here
        }
        opening = WeightedMean()
        if "mean_full_gradient" in algorithm.needs:  # a round trip before the local steps
            point = anchor(algorithm, message)
            for i in here:
                opening.add(weight[i], oracles[i].full(point)[1])
        own = _own_keys if "key" in algorithm.needs else lambda keys, _: keys
        extras = {i: own(keys, np.int32(i)).extras(algorithm, opening.value()) for i in here}

        mean = WeightedMean()
        visits = self._one_by_one
        if self.together and same_steps(algorithm, list(steps.values())):
            visits = self._side_by_side
        for ids, uploads, new, taken in visits(algorithm, steps, message, clients, oracles, extras):
            self.work.visits[run] += len(ids)
            self.work.steps[run] += taken * len(ids)
            # A state whose upload is lost would drift away from what the server believes.
            there = np.isin(ids, came)
            if not there.all():
                ids, (uploads, new) = ids[there], take((uploads, new), there)
            if len(ids):
                jax.tree.map(lambda a, b, ids=ids: a.__setitem__(_rows(ids), b), clients, new)
                mean.add_all(weight[ids], uploads)
        if mean.total is None:  # every upload was lost: then nothing happens
            return
        share = self.dtype.type(mean.weight / self.weights.sum())
        updated = update(algorithm, server, mean.value(), share)
        if _is_finite(updated):
            self.servers[run] = jax.tree.map(self._owned, updated)
        else:  # the run keeps the server state of its last finite round
            self.diverged[run] = t

    def _one_by_one(
        self,
        algorithm: Algorithm,
        steps: dict[int, int],
        message: Broadcast,
        clients: ClientState,
        oracles: dict[int, LoopOracle],
        extras: dict[int, Extras],
    ) -> Visits:
        """One client after the other."""
        for i, oracle in oracles.items():
            state = jax.tree.map(lambda a, i=i: a[i], clients)
            *found, taken = client_round(algorithm, oracle, steps[i], message, state, extras[i])
            upload, new = jax.tree.map(lambda a: a[None], jax.device_get(found))
            yield np.array([i]), upload, new, taken

    def _side_by_side(
        self,
        algorithm: Algorithm,
        steps: dict[int, int],
        message: Broadcast,
        clients: ClientState,
        oracles: dict[int, LoopOracle],
        extras: dict[int, Extras],
    ) -> Visits:
        """Some clients at a time: a bound of the memory."""
        everyone = list(oracles)
        for first in range(0, len(everyone), self.together):
            here = everyone[first : first + self.together]
            if algorithm.needs & AT_ANCHOR:
                point = anchor(algorithm, message)
                for i in here:
                    extras[i] = extras[i] | answers_at_anchor(algorithm, oracles[i], point)
            ids, of_all = np.array(here, np.int32), self._together([oracles[i] for i in here])
            oracle = SideBySideOracle(
                self.loss, self.batch_size or 0, oracles[here[0]].key, steps[here[0]], ids, *of_all
            )
            found = client_rounds(
                algorithm,
                oracle,
                steps[here[0]],
                message,
                jax.tree.map(lambda a, ids=ids: a[_rows(ids)], clients),
                [extras[i] for i in here],
            )
            yield ids, *jax.device_get(found), steps[here[0]]

    def _together(self, oracles: list[LoopOracle]) -> tuple[Batch, np.ndarray, np.ndarray]:
        """A batch with the samples of some clients, where each one's begin, and how many."""
        who = [oracle.client for oracle in oracles]
        sizes = self.samples.sizes[who]
        if isinstance(self.samples, Stacked):
            return self.samples.data, self.samples.offsets[who], sizes
        samples = jax.tree.map(lambda *a: np.concatenate(a), *(o.samples for o in oracles))
        return samples, np.cumsum(sizes) - sizes, sizes

    def _block(self, problem: Problem) -> int:
        """How many clients work side by side; 0: one after the other, which is told."""
        if self.batch_size is None:
            return 0  # full gradients of clients of unequal size
        why = external(self.loss).side_by_side(
            jax.tree.map(partial(floats_to, self.dtype), problem.params), self.samples[0]
        )
        if why:
            warnings.warn(
                f"clients work one after the other and not side by side: {why}",
                RuntimeWarning,
                stacklevel=2,
            )
            return 0
        keep_freed_memory()
        return max(1, SIDE_BY_SIDE // problem.parameter_count)

    def _drawn(self, key: jax.Array) -> tuple[np.ndarray, np.ndarray]:
        """The clients of a round in rising order, and how often each of all clients was drawn."""
        sampling = self.sampling
        times = np.ones(sampling.clients, np.int32)
        if not sampling.everyone:
            who, drawn = _participants(key, sampling.clients, sampling.count, sampling.replacement)
            times = np.bincount(who, drawn, sampling.clients).astype(np.int32)
        return np.flatnonzero(times), times

    def _measure(self, run: int, gamma: Number) -> dict[str, float]:
        algorithm, phi = self.algorithms[run], self.algorithms[run].regularizer
        x = jax.device_get(model(algorithm, self.servers[run]))
        value, gradient = self._objective(x)
        own, gradient_z = normal_map_point(algorithm, self.servers[run]), None
        if own is None:
            _, gradient_z = self._objective(jax.device_get(_prox_point(phi, gamma, x, gradient)))
        row = _stationarity(phi, gamma, x, value, gradient, own, gradient_z)
        if self.accuracy is not None:
            row["accuracy"] = mean_value(self.accuracy, x.tree, self.test)
        return {name: float(number) for name, number in row.items()}

    def _objective(self, x: Vector) -> tuple[Array, Vector]:
        """f(x) and its gradient."""
        mean = WeightedMean()
        for weight, samples in zip(self.evaluated_weights, self.evaluated, strict=True):
            mean.add(weight, full_mean(self.loss, x.tree, samples))
        value, gradient = mean.value()
        return value, Vector(gradient)

    def _samples(self, problem: Problem) -> ByNumber:
        if isinstance(problem.clients, OnDemand):
            return TypedClients(problem, self.dtype)
        # One behind the other: minibatches of many clients are then cut in one call.
        return Stacked(all_samples(problem, self.dtype), sizes=problem.sizes)

    def _owned(self, a: Array) -> np.ndarray:
        return np.array(floats_to(self.dtype, a))


_initial = jax.jit(initial_state, static_argnums=2)
_round_key, _is_finite = jax.jit(round_key, static_argnums=1), jax.jit(is_finite)
_round_keys, _own_keys = jax.jit(round_keys), jax.jit(Keys.of)
_participants = jax.jit(participants, static_argnums=(1, 2, 3))
_draw_faults = jax.jit(draw_faults)
_prox_point, _stationarity = jax.jit(prox_point), jax.jit(stationarity)
