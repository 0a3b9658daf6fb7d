"""Rounds whose participants come from outside the devices and go back: their states from memory or
from a file, and where nobody holds all samples, their samples too.

The compiled round is the one of a simulation in memory in which everyone takes part: everyone who
was drawn. So its cost in memory, too, is that of the participants, and the trajectory is the same.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from compositefl import cluster
from compositefl.algorithms.base import Algorithm
from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Array, PyTree
from compositefl.core.vector import Vector
from compositefl.engine.client import CHUNK
from compositefl.engine.curvature import CLIENTS, direction
from compositefl.engine.sampling import Stream, participants, round_key, trial_key
from compositefl.problem import OnDemand, Problem
from compositefl.simulation import device_sum
from compositefl.simulation.curvature import curvatures
from compositefl.simulation.evaluation import measure, part_of_objective, prox_points
from compositefl.simulation.placement import AXIS, Bringer, Placed
from compositefl.simulation.program import ClientSampling, RunState, Work
from compositefl.simulation.rounds import run_rounds
from compositefl.simulation.simulation import Group, Simulation, concatenate, initial
from compositefl.simulation.states import DiskStates, MemoryStates, Seal


class StreamedSimulation(Simulation):
    """A `Simulation` that keeps clients' states in a store, and asks for samples round by round
    where the problem has its clients on demand. Runs go one after the other."""

    groups: "Sequence[StreamedGroup]"

    def __init__(
        self, problem: Problem, *arguments: Any, store: MemoryStates | DiskStates, **options: Any
    ):
        if cluster.together():
            raise CompositeFLError(
                "clients on demand and states outside the devices are for one process"
            )
        self.store = store
        super().__init__(problem, *arguments, **options)

    def begin(self, algorithms: Sequence[Algorithm]) -> None:
        """Stand at the start, with these algorithms."""
        super().begin(algorithms)
        for run, group in enumerate(self.groups):
            group.run = run
        self.store.begin([group.start for group in self.groups])

    def curvature(self) -> float:
        """The largest curvature of a client's loss at the start, on a minibatch where there are."""
        if self.placed is not None:
            return super().curvature()
        clients, devices = len(self.problem.sizes), self.layout.mesh.size
        share = min(CLIENTS, clients)
        first = np.minimum(np.arange(devices) * self.program.rows, clients - share)
        who = (first[:, None] + np.arange(share)).reshape(-1)
        bring = Bringer(self.problem, self.layout.mesh, share, self.weights, self.dtype)
        placed = bring(who, np.ones(len(who), int))
        x = Vector(self.problem.start(self.dtype))
        key = round_key(trial_key(self.seed, 0), Stream.MINIBATCH, 0)
        found = curvatures(self.program, placed, key, x, direction(self.seed, x))
        return float(np.max(np.asarray(found)))

    def evaluate(self, gamma: float) -> dict[str, np.ndarray]:
        """Metrics of every run's model at the present round."""
        if self.evaluated is not None:
            return super().evaluate(gamma)
        number, mesh = self.dtype.type(gamma), self.layout.mesh
        accuracy = self.problem.accuracy if self.problem.test is not None else None
        rows = []
        for group in self.groups:
            phi = group.algorithms.regularizer
            models, own = group.evaluated()
            values, gradients = self._objective(models)
            gradients_z = None
            if own is None:
                _, gradients_z = self._objective(prox_points(number, phi, models, gradients))
            found = values, gradients, gradients_z
            rows.append(measure(accuracy, mesh, self.test, number, phi, models, own, *found))
        return {k: np.concatenate([np.asarray(r[k]) for r in rows]) for k in rows[0]}

    def state(self) -> RunState:
        """All state as numpy arrays. Of clients' states in a file, where they are in it."""
        servers = [jax.device_get(group.state.server) for group in self.groups]
        return RunState(concatenate(servers), self.store.snapshot(), np.array(self.diverged))

    def restore(self, state: RunState, work: Work, round_: int) -> None:
        """Continue from what `state` and `work` were at round `round_`."""
        super().restore(state._replace(clients=()), work, round_)
        self.store.restore(state.clients)

    def hold(self, states: Sequence[RunState]) -> None:
        """Of all that `state` gave, these may still be restored."""
        if isinstance(self.store, DiskStates):
            self.store.hold([state.clients for state in states])

    def seal(self) -> Seal:
        """What a checkpoint must say of the file of the states."""
        return self.store.seal() if isinstance(self.store, DiskStates) else {}

    def commit(self) -> None:
        """The checkpoint is there."""
        if isinstance(self.store, DiskStates):
            self.store.commit()

    def resume(self, seal: Seal) -> None:
        """Go on from a checkpoint with this seal, after `hold` and `restore`."""
        if isinstance(self.store, DiskStates):
            self.store.resume(seal)

    def release(self) -> None:
        """The run is over: others may go on with the file of the states."""
        if isinstance(self.store, DiskStates):
            self.store.release()

    def _objective(self, models: Vector) -> PyTree:
        """f and its gradient at each run's model, some clients at a time."""
        bring, total = self.pass_over, None
        clients, at_once = len(bring.problem.sizes), bring.share * self.layout.mesh.size
        for first in range(0, clients, at_once):
            who = np.arange(first, first + at_once)
            part = part_of_objective(
                self.problem.loss,
                self.layout.mesh,
                bring(np.minimum(who, clients - 1), (who < clients).astype(int)),
                models,
            )
            total = part if total is None else jax.tree.map(np.add, total, part)
        return total

    def _placed(self, weights: np.ndarray) -> Placed | None:
        """The problem's data on the devices; None: they come round by round."""
        self.weights, mesh = weights, self.layout.mesh
        sampling = self.program.sampling
        share = -(-sampling.count // mesh.size)
        self.round_program = replace(
            self.program,
            rows=share,
            sampling=ClientSampling(share * mesh.size, share * mesh.size, replacement=False),
            brought=True,
        )
        self.starts = np.cumsum(self.problem.sizes) - self.problem.sizes
        self.bring = Bringer(self.problem, mesh, share, weights, self.dtype)
        on_demand = isinstance(self.problem.clients, OnDemand)
        return None if on_demand or not self.shared else super()._placed(weights)

    def _evaluated(self, weights: np.ndarray) -> Placed | None:
        """The data of the history on the devices; None: a pass over the clients brings them."""
        other, who = self.problem.for_evaluation(), self.problem.evaluated_clients
        if not isinstance(other.clients, OnDemand):
            known = other is self.problem and self.placed is not None
            return self.placed if known else self._place(other, weights[who])
        share = int(np.clip(CHUNK // other.sizes.mean(), 1, -(-len(who) // self.layout.mesh.size)))
        self.pass_over = Bringer(other, self.layout.mesh, share, weights[who], self.dtype)
        return None

    def _group_size(self, total: int, most: int) -> int:  # noqa: ARG002
        return 1  # runs draw different participants

    def _group(self, algorithms: Sequence[Algorithm], trials: Sequence[int]) -> "StreamedGroup":
        return StreamedGroup(self, algorithms, trials)


class StreamedGroup(Group):
    """One run whose participants' states come from the store of its simulation."""

    sim: StreamedSimulation
    run = 0  # its number

    def _first_state(self, start: PyTree, diverged: Array) -> RunState:
        server, clients = initial(self.sim.layout.mesh, 1, self.algorithms, start)
        self.start = jax.tree.map(lambda a: np.asarray(a)[0, 0], clients)  # of every client
        return RunState(server, (), diverged)

    def advance(self, start: int, stop: int) -> None:
        """Run rounds start, ..., stop - 1; none of them compiles only."""
        if start == stop:
            self._round(start, start)
        for t in range(start, stop):
            if int(np.asarray(self.state.diverged)[0]) >= 0:
                break
            self._round(t, t + 1)

    def _round(self, t: int, stop: int) -> None:
        sim, run = self.sim, self.run
        who, times = self._drawn(t)
        placed = self._participants(who, times)
        rows = NamedSharding(sim.layout.mesh, PartitionSpec(None, AXIS))
        states = jax.tree.map(lambda a: jax.device_put(a[None], rows), sim.store.read(run, who))
        with device_sum.shared_buffer(sim.layout.mesh) as ranks:
            state, made = run_rounds(
                sim.round_program,
                placed,
                ranks,
                sim.conditions,
                self.algorithms,
                self.trials,
                np.uint32(sim.seed),
                self.state._replace(clients=states),
                np.int32(t),
                np.int32(stop),
            )
            made = jax.device_get(made)  # waits for the program's end
        self.state = state._replace(clients=())
        self.work = jax.tree.map(np.add, self.work, made)
        if t < stop:
            new = jax.tree.map(lambda a: np.asarray(a)[0][times > 0], state.clients)
            sim.store.write(run, who[times > 0], new)

    def _drawn(self, t: int) -> tuple[np.ndarray, np.ndarray]:
        """(who, times): the participants of round t, as many as the devices have places."""
        sampling = self.sim.program.sampling
        places = self.sim.round_program.sampling.count
        if sampling.everyone:
            who, times = np.arange(sampling.clients), np.ones(sampling.clients, int)
        else:
            drawn = _draw(np.uint32(self.sim.seed), self.trials[0], np.int32(t), sampling)
            who, times = map(np.asarray, jax.device_get(drawn))
        extra = places - len(who)
        return (
            np.concatenate([who, np.repeat(who[:1], extra)]),
            np.concatenate([times, np.zeros(extra, times.dtype)]),
        )

    def _participants(self, who: np.ndarray, times: np.ndarray) -> Placed:
        placed, bring = self.sim.placed, self.sim.bring
        if placed is None:
            return bring(who.copy(), times)
        start = self.sim.starts[who]
        return placed._replace(info=bring.clients(who, times, start), sample_weight=())


@partial(jax.jit, static_argnums=3)
def _draw(
    seed: Array, trial: Array, t: Array, sampling: ClientSampling
) -> tuple[jax.Array, jax.Array]:
    key = round_key(trial_key(seed, trial), Stream.PARTICIPANTS, t)
    return participants(key, sampling.clients, sampling.count, sampling.replacement)
