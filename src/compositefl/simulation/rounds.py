"""Compiled rounds: a loop over rounds, clients and runs as array axes, local steps as a loop.

Nothing here knows an algorithm's name.
"""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from compositefl.algorithms.base import Algorithm
from compositefl.core.types import Array, ClientState, Number, Params, PyTree, ServerState, Upload
from compositefl.core.vector import Vector
from compositefl.engine.client import ClientInfo, Oracle, client_round, round_keys
from compositefl.engine.sampling import trial_key
from compositefl.simulation import device_sum
from compositefl.simulation.participation import (
    Participants,
    draw_participants,
    fetch,
    keep,
    on_all_devices,
)
from compositefl.simulation.placement import AXIS, Placed, specs
from compositefl.simulation.program import Conditions, Program, RunState, Work


def initial_state(algorithm: Algorithm, x0: Params, rows: int) -> tuple[ServerState, ClientState]:
    """Server state of one run and the private states of `rows` clients."""
    start = Vector(x0)
    client = algorithm.init_client(start)
    clients = jax.tree.map(lambda a: jnp.broadcast_to(a, (rows, *jnp.shape(a))), client)
    return algorithm.init_server(start), clients


def weighted_sum(weight: jax.Array, uploads: Upload) -> Upload:
    """Sum over the leading axis, each row times its weight."""

    def leaf_sum(leaf: jax.Array) -> jax.Array:
        # As a product of matrices: XLA's sum over the leading axis takes ten times as long.
        return jnp.tensordot(weight.astype(leaf.dtype), leaf, 1)

    return jax.tree.map(leaf_sum, uploads)


def one_round(
    program: Program,
    placed: Placed,
    rank: jax.Array | None,
    conditions: Conditions,
    everything: Array,
    t: Number,
    algorithm: Algorithm,
    server: ServerState,
    clients: ClientState,
    key: jax.Array,
) -> tuple[ServerState, ClientState, Work]:
    """One round of one run, on this device's share of the clients.

    rank: of this device, where the devices add up what they have. everything: the weight of all
    clients.
    """
    message = algorithm.broadcast(server)
    keys = round_keys(key, t)
    steps = algorithm.draw_steps(keys.shared)
    info, present, drawn = draw_participants(program, conditions, key, t, placed, steps)
    states = clients if drawn is None else fetch(program, clients, drawn, rank)
    oracle = partial(
        Oracle,
        program.loss,
        program.batch_size,
        program.largest,
        program.equal,
        placed.samples,
        keys.minibatch,
    )
    gradient: PyTree = None

    if "mean_full_gradient" in algorithm.needs:  # a round trip before the local steps

        def open_round(
            state: ClientState, info: ClientInfo, _: Number
        ) -> tuple[Vector, ClientState, int]:
            return oracle(info).full(algorithm.anchor(message))[1], state, 0

        everyone = present._replace(arrived=None)
        opening, _, _ = visit(program, open_round, states, info, everyone)
        gradient, *_ = mean_over_devices(opening, info, everyone, rank)

    def work(
        state: ClientState, info: ClientInfo, steps: Number
    ) -> tuple[Upload, ClientState, jax.Array]:
        extras = keys.of(info.id).extras(algorithm, gradient)
        return client_round(algorithm, oracle(info), steps, message, state, extras)

    total, states, taken = visit(program, work, states, info, present)
    accepted = (
        present
        if present.arrived is None
        else present._replace(times=present.times * present.arrived)
    )
    if drawn is None:
        clients = states
        mean, weight, _ = mean_over_devices(total, info, accepted, rank)
    else:
        if program.mesh.size > 1:
            states = on_all_devices(program, states)
        mean, weight, states = mean_over_devices(total, info, accepted, rank, states)
        clients = keep(program, clients, drawn, states)
    new = algorithm.update(server, mean, weight / everything)
    if conditions.dropout is not None:  # every upload may be lost: then nothing happens
        new = jax.tree.map(lambda a, b: jnp.where(weight > 0, a, b), new, server)
    return new, clients, Work(jnp.sum(present.times > 0, dtype=jnp.int32), taken)


def mean_over_devices(
    total: Upload,
    info: ClientInfo,
    present: Participants,
    rank: jax.Array | None,
    states: ClientState = (),
) -> tuple[Upload, jax.Array, ClientState]:
    """The weighted mean over the clients of all devices, from this device's weighted sum.

    Also the weight of the present clients, and the sum of `states`. All numbers go in one array,
    because the devices wait for each other once per array.
    """
    weight = info.weight if present.row is None else info.weight.at[present.row].get(mode="clip")
    weight = jnp.sum(weight * present.times.astype(weight.dtype))
    total, weight, states = device_sum.total_of((total, weight, states), rank)
    return jax.tree.map(lambda a: a / weight.astype(a.dtype), total), weight, states


def visit(
    program: Program,
    work: Callable[..., tuple[Upload, ClientState, Number]],
    clients: ClientState,
    info: ClientInfo,
    present: Participants,
) -> tuple[Upload, ClientState, Number]:
    """Let the present clients work: (weighted sum of the uploads that arrive, states, steps).

    A client's new state is kept only if its upload arrived: else it would drift away from what
    the server believes.
    """
    reliable = present.arrived is None

    def batch(
        states: ClientState, info: ClientInfo, here: Participants
    ) -> tuple[Upload, ClientState, jax.Array]:
        over = (0, 0, 0 if jnp.ndim(here.steps) else None)  # steps differ only with stragglers
        uploads, new, taken = jax.vmap(work, in_axes=over)(states, info, here.steps)
        counted = here.times if reliable else here.times * here.arrived
        if not reliable:
            new = jax.tree.map(lambda a, b: jnp.where(_column(here.arrived, a), a, b), new, states)
        total = weighted_sum(info.weight * counted.astype(info.weight.dtype), uploads)
        return total, new, jnp.sum(jnp.where(here.times > 0, taken, 0), dtype=jnp.int32)

    if present.row is None:
        return batch(clients, info, present)

    # A block of participants at a time, up to the last one: this bounds memory. Entries of nobody
    # may lie between them, where a client was drawn twice.
    block = min(program.block, len(present.row))
    entries = -(-len(present.row) // block) * block
    rows = len(info.id)
    nobody = Participants(rows, 0, 0, False)

    def extended(a: Array, fill: Array) -> Array:
        return jnp.pad(a, (0, entries - len(a)), constant_values=fill) if jnp.ndim(a) else a

    queue = Participants(
        *(None if a is None else extended(a, f) for a, f in zip(present, nobody, strict=True))
    )
    places = jnp.arange(1, len(present.row) + 1, dtype=jnp.int32)
    count = jnp.max(jnp.where(present.times > 0, places, 0))

    def part(
        at: jax.Array, clients: ClientState, here: Participants
    ) -> tuple[Upload, ClientState, jax.Array]:
        read = lambda a: a.at[at].get(mode="clip")  # noqa: E731
        return batch(jax.tree.map(read, clients), jax.tree.map(read, info), here)

    def cut(j: Number) -> Participants:
        some = lambda a: lax.dynamic_slice_in_dim(a, j * block, block) if jnp.ndim(a) else a  # noqa: E731
        return jax.tree.map(some, queue)

    zero = jax.tree.map(
        lambda a: jnp.zeros(a.shape, a.dtype),
        jax.eval_shape(lambda: part(queue.row[:block], clients, cut(0))),
    )

    def body(j: Number, carry: PyTree) -> tuple[Upload, ClientState, jax.Array]:
        total, clients, taken = carry
        here = cut(j)
        at = jnp.where(here.times > 0, here.row, rows)  # a row that does not exist: nobody
        sums, new, some = part(at, clients, here)
        clients = jax.tree.map(lambda a, b: a.at[at].set(b, mode="drop"), clients, new)
        return jax.tree.map(jnp.add, total, sums), clients, taken + some

    return lax.fori_loop(0, (count + block - 1) // block, body, (zero[0], clients, zero[2]))


def _column(mask: jax.Array, like: jax.Array) -> jax.Array:
    """A mask over the leading axis, shaped to broadcast against `like`."""
    return mask.reshape(-1, *[1] * (like.ndim - 1))


def is_finite(tree: PyTree) -> jax.Array:
    """Whether all numbers of `tree` are finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(a)) for a in jax.tree.leaves(tree)]))


def _run(
    program: Program,
    placed: Placed,
    rank: jax.Array | None,
    conditions: Conditions,
    algorithms: Algorithm,
    trials: jax.Array,
    seed: Array,
    state: RunState,
    start: Array,
    stop: Array,
) -> tuple[RunState, Work]:
    """Rounds start, ..., stop - 1 of every run; ends early when all runs have diverged."""
    keys = jax.vmap(trial_key, in_axes=(None, 0))(seed, trials)
    everything = placed.everything
    if everything is None:
        everything = lax.psum(jnp.sum(placed.info.weight), AXIS)

    def advance(
        t: Number, algorithm: Algorithm, key: jax.Array, state: RunState
    ) -> tuple[RunState, Work]:
        server, clients, made = one_round(
            program, placed, rank, conditions, everything, t, algorithm, *state[:2], key
        )
        # A run that diverges keeps the server state of its last finite round.
        diverged = jnp.where((state.diverged < 0) & ~is_finite(server), t, state.diverged)
        server = jax.tree.map(
            lambda new, old: jnp.where(diverged < 0, new, old), server, state.server
        )
        return RunState(server, clients, diverged), made

    def body(carry: tuple[Array, RunState, Work]) -> tuple[Array, RunState, Work]:
        t, state, work = carry
        state, made = jax.vmap(partial(advance, t))(algorithms, keys, state)
        return t + 1, state, jax.tree.map(jnp.add, work, made)

    def go_on(carry: tuple[Array, RunState, Work]) -> jax.Array:
        return (carry[0] < stop) & jnp.any(carry[1].diverged < 0)

    none = jnp.zeros(trials.shape, jnp.int32)
    _, state, work = lax.while_loop(go_on, body, (start, state, Work(none, none)))
    return state, lax.psum(work, AXIS)


def _run_on_mesh(
    program: Program,
    placed: Placed,
    ranks: jax.Array | None,
    conditions: Conditions,
    algorithms: Algorithm,
    trials: jax.Array,
    seed: Array,
    state: RunState,
    start: Array,
    stop: Array,
) -> tuple[RunState, Work]:
    rows = RunState(P(), P(None, AXIS), P())
    return jax.shard_map(
        partial(_run, program),
        mesh=program.mesh,
        in_specs=(specs(placed, program.brought), P(AXIS), P(), P(), P(), P(), rows, P(), P()),
        out_specs=(rows, P()),
        check_vma=False,
    )(placed, ranks, conditions, algorithms, trials, seed, state, start, stop)


_compile = partial(jax.jit, _run_on_mesh, static_argnames="program", donate_argnames="state")
_on_one_device = _compile()
# Where every core is a device with clients of its own, kernels split over the cores as well get in
# each other's way (docs/decisions.md).
_on_several = _compile(compiler_options={"xla_disable_hlo_passes": "cpu-parallel-task-assigner"})


def run_rounds(program: Program, *arguments: PyTree) -> tuple[RunState, Work]:
    """Advance all runs from round `start` to round `stop`; the new state and the work done.

    Arguments as of `_run`, with the ranks of all devices.
    """
    run = _on_one_device if program.mesh.size == 1 else _on_several
    return run(program, *arguments)
