"""A simulation in memory: runs of one problem side by side, advanced a few rounds at a time."""

import hashlib
from collections.abc import Sequence
from functools import partial
from math import ceil
from weakref import WeakKeyDictionary

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from compositefl import cluster
from compositefl.algorithms.base import Algorithm
from compositefl.core.errors import CompositeFLError
from compositefl.core.trees import as_numbers
from compositefl.core.types import Array, Batch, ClientState, DType, Params, PyTree, ServerState
from compositefl.core.vector import Vector
from compositefl.engine.curvature import direction
from compositefl.engine.samples import converted_test
from compositefl.engine.sampling import Stream, round_key, trial_key
from compositefl.problem import DataIdentity, Problem
from compositefl.simulation import device_sum
from compositefl.simulation.curvature import curvatures
from compositefl.simulation.evaluation import evaluate
from compositefl.simulation.memory import make_room
from compositefl.simulation.placement import (
    AXIS,
    Layout,
    Placed,
    device_mesh,
    devices_with_threads,
    place,
    place_for_all,
    replicated,
    share_memory,
)
from compositefl.simulation.program import (
    RELIABLE,
    ClientSampling,
    Conditions,
    Program,
    RunState,
    Work,
)
from compositefl.simulation.rounds import initial_state, run_rounds
from compositefl.simulation.states import SelfContained
from compositefl.simulation.working_set import WORKING_SET, even_block, working_numbers

# Data on the devices, one copy of each, for the next simulation of the same data.
PLACED: WeakKeyDictionary[DataIdentity, tuple[tuple[Mesh, bool, np.dtype, bytes], Placed]] = (
    WeakKeyDictionary()
)


class Simulation(SelfContained):
    """Runs of several algorithms of one class, or of one with several trials, in lock-step.

    `algorithms` has one entry per run: the same class and regulariser, any numbers. Equal trials
    draw equal samples. Call inside `jax.enable_x64(True)` for float64.
    """

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
        devices: int | None = None,
        block: int | None = None,
    ):
        make_room()
        self.problem = problem
        self.dtype = np.dtype(dtype)
        self.seed = seed
        self.round = 0
        clients = len(problem.sizes)
        mesh = device_mesh(min(devices or devices_with_threads(), clients))
        if cluster.together() and mesh.size < len(jax.devices()):
            raise CompositeFLError(
                f"{mesh.size} devices of {len(jax.devices())} would work: several processes need "
                f"all of them, and a client for each (there are {clients})"
            )
        sampling = ClientSampling(clients, count, replacement)
        self.shared = share_memory(mesh) and not sampling.everyone
        self.layout = Layout(problem.sizes, mesh, in_order=self.shared)
        rows, size = self.layout.rows, working_numbers(problem, batch_size)
        if "hessian" in algorithms[0].needs:
            size = max(size, problem.parameter_count**2)
        self.program = Program(
            loss=problem.loss,
            mesh=mesh,
            rows=rows,
            sampling=sampling,
            shared=self.shared,
            largest=int(problem.sizes.max()),
            equal=bool(np.all(problem.sizes == problem.sizes[0])),
            batch_size=batch_size,
            block=block or self._block(count, WORKING_SET // size),
        )
        self.conditions = Conditions(
            *(None if c is None else self.dtype.type(c) for c in conditions)
        )
        self.placed = self._placed(weights)
        self.evaluated = self._evaluated(weights)  # the data of the history
        self.test = self._test()

        # Runs that together exceed the working set go in groups, one after the other.
        most = max(1, WORKING_SET // (size * min(rows, self.program.block)))
        self.trials = trials
        self.size = self._group_size(len(algorithms), most)
        self.begin(algorithms)

    def begin(self, algorithms: Sequence[Algorithm]) -> None:
        """Stand at the start, with these algorithms."""
        size, self.round = self.size, 0
        self.groups: Sequence[Group] = [
            self._group(algorithms[i : i + size], self.trials[i : i + size])
            for i in range(0, len(algorithms), size)
        ]

    def renumber(self, algorithms: Sequence[Algorithm]) -> None:
        """Go on from the present models with other numbers of the same algorithms."""
        at = 0
        for group in self.groups:
            group.renumber(algorithms[at : at + group.size])
            at += group.size

    def curvature(self) -> float:
        """The largest curvature of a client's loss at the start, on a minibatch where there are."""
        x = Vector(self.problem.start(self.dtype))
        key = round_key(trial_key(self.seed, 0), Stream.MINIBATCH, 0)
        found = curvatures(self.program, self.placed, key, x, direction(self.seed, x))
        return float(np.max(cluster.fetch(found)))

    def _group_size(self, total: int, most: int) -> int:
        """How many of the runs go together."""
        return max(g for g in range(1, total + 1) if total % g == 0 and g <= most)

    def _group(self, algorithms: Sequence[Algorithm], trials: Sequence[int]) -> "Group":
        return Group(self, algorithms, trials)

    def _block(self, count: int, most: int) -> int:
        """Clients worked on at the same time on a device, at most `most`.

        Of `count` clients drawn, the number that sits on one device varies, unless they are dealt
        evenly; the block has room for two standard deviations more than its share, so that a second
        block is rare.
        """
        rows, devices, clients = self.layout.rows, self.layout.mesh.size, len(self.problem.sizes)
        share = count / devices
        if self.shared:
            return even_block(ceil(share), most)
        spread = (share * (1 - 1 / devices) * (1 - count / clients)) ** 0.5
        return even_block(min(rows, ceil(share + 2 * spread)), most)

    def advance(self, stop: int) -> None:
        """Run all rounds before round `stop`."""
        for group in self.groups:
            group.advance(self.round, stop)
        self.round = stop

    def block_until_ready(self) -> None:
        """Wait until all rounds asked for are done."""
        jax.block_until_ready([group.state for group in self.groups])

    def evaluate(self, gamma: float) -> dict[str, np.ndarray]:
        """Metrics of every run's model at the present round."""
        rows = [
            evaluate(
                self.problem.loss,
                self.problem.accuracy if self.problem.test is not None else None,
                self.layout.mesh,
                self.evaluated,
                self.test,
                self.dtype.type(gamma),
                group.algorithms.regularizer,
                *group.evaluated(),
            )
            for group in self.groups
        ]
        return {k: np.concatenate([np.asarray(r[k]) for r in rows]) for k in rows[0]}

    @property
    def work(self) -> Work:
        """Visits of clients and local steps so far, one entry per run."""
        return concatenate([group.work for group in self.groups])

    @property
    def diverged(self) -> np.ndarray:
        """For every run the round in which it left the finite numbers, -1 if it did not."""
        return np.concatenate([np.asarray(group.state.diverged) for group in self.groups])

    def models(self) -> Vector:
        """Every run's model, as numpy arrays with the runs as leading axis."""
        return concatenate([jax.device_get(group.models()) for group in self.groups])

    def state(self) -> RunState:
        """All state as numpy arrays, clients in their own order. `restore` takes it back."""
        states = [
            RunState(
                jax.device_get(group.state.server),
                self.layout.from_rows(group.state.clients),
                np.asarray(group.state.diverged),
            )
            for group in self.groups
        ]
        return concatenate(states)

    def restore(self, state: RunState, work: Work, round_: int) -> None:
        """Continue from what `state` and `work` were at round `round_`."""
        at = 0
        for group in self.groups:
            cut = slice(at, at + group.size)
            part, group.work = jax.tree.map(lambda a, cut=cut: np.asarray(a)[cut], (state, work))
            group.state = RunState(
                replicated(self.layout.mesh, part.server),
                self.layout.to_rows(part.clients),
                replicated(self.layout.mesh, part.diverged),
            )
            at += group.size
        self.round = round_

    def _placed(self, weights: np.ndarray) -> Placed | None:
        """The problem's data on the devices; None where others bring them."""
        weighed = hashlib.sha256(weights.tobytes()).digest()
        key = (self.layout.mesh, self.shared, self.dtype, weighed)
        known, placed = PLACED.get(self.problem.data, (None, None))
        if placed is None or known != key:
            PLACED.pop(self.problem.data, None)  # one copy only
            placed = self._place(self.problem, weights)
            PLACED[self.problem.data] = key, placed
        return placed

    def _evaluated(self, weights: np.ndarray) -> Placed | None:
        """The data of the history on the devices."""
        other = self.problem.for_evaluation()
        if other is self.problem:
            return self.placed
        return self._place(other, weights[self.problem.evaluated_clients])

    def _place(self, problem: Problem, weights: np.ndarray) -> Placed:
        if self.shared:
            return place_for_all(problem, self.layout.mesh, weights, self.dtype)
        layout = self.layout
        if len(problem.sizes) < len(self.problem.sizes):
            layout = Layout(problem.sizes, layout.mesh)
        return place(problem, layout, weights, self.dtype)

    def _test(self) -> Batch:
        """The test set cut over the devices, with the weight of each sample."""
        if self.problem.test is None or self.problem.accuracy is None:
            return ()
        mesh = self.layout.mesh
        sharding = NamedSharding(mesh, PartitionSpec(AXIS))
        length = np.shape(jax.tree.leaves(self.problem.test)[0])[0]
        padded = -(-length // mesh.size) * mesh.size

        def put(a: Array) -> jax.Array:
            # Padding has weight 0; it is real samples, because a coupled accuracy sees it.
            return cluster.put(np.resize(a, (padded, *a.shape[1:])), sharding)

        weight = np.zeros(padded, self.dtype)
        weight[:length] = 1.0 / length
        return jax.tree.map(put, converted_test(self.problem, self.dtype)), put(weight)


class Group:
    """Runs that are advanced together as one array axis."""

    def __init__(self, sim: Simulation, algorithms: Sequence[Algorithm], trials: Sequence[int]):
        self.sim = sim
        self.size = len(algorithms)
        mesh, dtype = sim.layout.mesh, sim.dtype

        self.algorithms = self._numbers(algorithms)
        self.trials = replicated(mesh, np.asarray(trials, np.int32))
        start = jax.tree.map(np.asarray, sim.problem.start(dtype))
        self.state = self._first_state(start, replicated(mesh, np.full(self.size, -1, np.int32)))
        self.work = Work(np.zeros(self.size, int), np.zeros(self.size, int))

    def _first_state(self, start: PyTree, diverged: Array) -> RunState:
        """The state at the start."""
        layout = self.sim.layout
        server, clients = initial(layout.mesh, layout.rows, self.algorithms, start)
        return RunState(server, clients, diverged)

    def _numbers(self, algorithms: Sequence[Algorithm]) -> Algorithm:
        numbers = jax.tree.map(partial(as_numbers, self.sim.dtype), *algorithms)
        return replicated(self.sim.layout.mesh, numbers)

    def renumber(self, algorithms: Sequence[Algorithm]) -> None:
        """Take other numbers, at the same models."""
        new = self._numbers(algorithms)
        self.state = self.state._replace(server=_rescaled(self.algorithms, self.state.server, new))
        self.algorithms = new

    def advance(self, start: int, stop: int) -> None:
        """Run rounds start, ..., stop - 1."""
        with device_sum.shared_buffer(self.sim.layout.mesh) as ranks:
            self.state, made = run_rounds(
                self.sim.program,
                self.sim.placed,
                ranks,
                self.sim.conditions,
                self.algorithms,
                self.trials,
                np.uint32(self.sim.seed),
                self.state,
                np.int32(start),
                np.int32(stop),
            )
            made = jax.device_get(made)  # waits for the program's end
        self.work = jax.tree.map(np.add, self.work, made)

    def models(self) -> Vector:
        """The model of every run."""
        return self.evaluated()[0]

    def evaluated(self) -> tuple[Vector, tuple[Vector, Array] | None]:
        """The models, and the points of the normal map that methods have of their own."""
        return _models(self.algorithms, self.state.server)


@partial(jax.jit, static_argnames=("mesh", "rows"))
def initial(
    mesh: Mesh, rows: int, algorithms: Algorithm, x0: Params
) -> tuple[ServerState, ClientState]:
    """Server and client states of every run, at its place on the devices, in x0's type."""
    dtype = jnp.result_type(*jax.tree.leaves(x0))

    def put(tree: PyTree, spec: PartitionSpec) -> PyTree:
        sharding = NamedSharding(mesh, spec)
        real = lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a  # noqa: E731
        return jax.tree.map(lambda a: lax.with_sharding_constraint(real(a), sharding), tree)

    server, clients = jax.vmap(initial_state, in_axes=(0, None, None))(
        algorithms, x0, rows * mesh.size
    )
    return put(server, PartitionSpec()), put(clients, PartitionSpec(None, AXIS))


@jax.jit
def _models(
    algorithms: Algorithm, servers: ServerState
) -> tuple[Vector, tuple[Vector, Array] | None]:
    return jax.vmap(lambda a, s: (a.model(s), a.normal_map_point(s)))(algorithms, servers)


@jax.jit
def _rescaled(old: Algorithm, servers: ServerState, new: Algorithm) -> ServerState:
    return jax.vmap(lambda a, s, b: a.rescale(s, b))(old, servers, new)


def concatenate(trees: Sequence[PyTree]) -> PyTree:
    """The states of several groups as one, in numpy arrays that are the caller's own."""
    if len(trees) == 1:  # copy what is a view of a device's memory, and that only
        return jax.tree.map(lambda a: np.require(a, requirements=("O", "W")), trees[0])
    return jax.tree.map(lambda *a: np.concatenate([np.asarray(x) for x in a]), *trees)
