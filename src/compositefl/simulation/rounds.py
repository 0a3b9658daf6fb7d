"""Compiled rounds: a loop over rounds, clients and runs as array axes, local steps as a loop.

Nothing here knows an algorithm's name.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from compositefl.algorithms.base import Algorithm
from compositefl.simulation.placement import AXIS, ClientInfo, Layout, Placed
from compositefl.simulation.sampling import Stream, minibatch, participants, round_key, trial_key
from compositefl.vector import Vector


@dataclass(frozen=True)
class Program:
    """What is compiled in: everything but numbers and data."""

    loss: Callable[[Any, Any], Any]
    layout: Layout
    clients: int
    largest: int  # samples of the largest client
    equal: bool  # all clients hold the same number of samples
    batch_size: int | None
    count: int  # clients in a round
    block: int  # clients worked on at the same time, on one device


class RunState(NamedTuple):
    """All that changes from round to round. Leading axis of every leaf: the run."""

    server: Any
    clients: Any  # second axis: rows of the layout
    diverged: Any  # round in which the run left the finite numbers, -1 if it did not


def initial_state(algorithm: Algorithm, x0: Any, rows: int) -> tuple[Any, Any]:
    """Server state of one run and the private states of `rows` clients."""
    start = Vector(x0)
    client = algorithm.init_client(start)
    clients = jax.tree.map(lambda a: jnp.broadcast_to(a, (rows, *jnp.shape(a))), client)
    return algorithm.init_server(start), clients


def full_gradient(program: Program, params: Any, samples: Any, info: ClientInfo) -> Any:
    """Gradient of one client's mean loss over all its samples."""
    if program.equal:
        batch = jax.tree.map(
            lambda a: lax.dynamic_slice_in_dim(a, info.start, program.largest), samples
        )
        return jax.grad(program.loss)(params, batch)
    # Smaller clients read on into their neighbours' samples, which get weight 0.
    offset = jnp.arange(program.largest, dtype=jnp.int32)
    batch = jax.tree.map(lambda a: a.at[info.start + offset].get(mode="clip"), samples)
    weight = jnp.where(offset < info.size, 1.0 / info.size, 0.0)
    return jax.grad(weighted_loss, argnums=1)(program.loss, params, batch, weight)


def weighted_loss(loss: Callable[[Any, Any], Any], params: Any, batch: Any, weight: Any) -> Any:
    """Sum over the samples of weight * loss, from a loss that is a mean over samples."""
    single = jax.tree.map(lambda a: a[:, None], batch)
    losses = jax.vmap(loss, in_axes=(None, 0))(params, single)
    # A padding sample may be anything: keep its loss, finite or not, out of the sum.
    return jnp.sum(jnp.where(weight > 0, losses * weight.astype(losses.dtype), 0.0))


def client_round(
    program: Program,
    samples: Any,
    key: jax.Array,
    algorithm: Algorithm,
    message: Any,
    state: Any,
    info: ClientInfo,
) -> tuple[Any, Any]:
    """(upload, new private state) of one client."""

    def gradient(point: Vector, l: Any) -> Vector:
        if program.batch_size is None:
            return Vector(full_gradient(program, point.tree, samples, info))
        draws = info.start + minibatch(key, info.id, l, program.batch_size, info.size)
        batch = jax.tree.map(lambda a: a.at[draws].get(mode="promise_in_bounds"), samples)
        return Vector(jax.grad(program.loss)(point.tree, batch))

    def local_step(l: Any, local: Any) -> Any:
        return algorithm.step(local, gradient(algorithm.query(local, l), l), l)

    steps = algorithm.steps
    local = lax.fori_loop(0, steps, local_step, algorithm.begin(message, state))
    return algorithm.finish(local, steps)


def weighted_sum(weight: jax.Array, uploads: Any) -> Any:
    """Sum over the leading axis, each row times its weight."""

    def leaf_sum(leaf: jax.Array) -> jax.Array:
        column = weight.reshape(-1, *[1] * (leaf.ndim - 1)).astype(leaf.dtype)
        return jnp.sum(leaf * column, axis=0)

    return jax.tree.map(leaf_sum, uploads)


def one_round(
    program: Program,
    placed: Placed,
    t: Any,
    algorithm: Algorithm,
    server: Any,
    clients: Any,
    key: jax.Array,
) -> tuple[Any, Any]:
    """One round of one run, on this device's share of the clients."""
    info = placed.info
    rows = program.layout.rows
    work = partial(
        client_round,
        program,
        placed.samples,
        round_key(key, Stream.MINIBATCH, t),
        algorithm,
        algorithm.broadcast(server),
    )
    everyone = program.count == program.clients
    if everyone and program.block >= rows:
        uploads, clients = jax.vmap(work)(clients, info)
        total = weighted_sum(info.weight, uploads)
        weight = jnp.sum(info.weight)
    else:
        chosen = info.weight > 0
        if not everyone:
            draw = participants(
                round_key(key, Stream.PARTICIPANTS, t), program.clients, program.count
            )
            chosen &= draw[info.id]
        total, clients = in_blocks(program, work, clients, info, chosen)
        weight = jnp.sum(jnp.where(chosen, info.weight, 0.0))

    total, weight, everything = lax.psum((total, weight, jnp.sum(info.weight)), AXIS)
    mean = jax.tree.map(lambda a: a / weight.astype(a.dtype), total)
    return algorithm.update(server, mean, weight / everything), clients


def is_finite(tree: Any) -> jax.Array:
    """Whether all numbers of `tree` are finite."""
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(a)) for a in jax.tree.leaves(tree)]))


def in_blocks(
    program: Program, work: Callable[..., Any], clients: Any, info: ClientInfo, chosen: jax.Array
) -> tuple[Any, Any]:
    """Work on the chosen rows only, `program.block` at a time: bounds memory, skips the others."""
    rows, block = program.layout.rows, program.block
    first = jnp.argsort(~chosen, stable=True)
    queue = jnp.concatenate([first, jnp.full(block, rows)])
    count = jnp.sum(chosen)
    upload = jax.eval_shape(lambda c, i: jax.vmap(work)(c, i)[0], clients, info)
    zero = jax.tree.map(lambda a: jnp.zeros(a.shape[1:], a.dtype), upload)

    def body(j: Any, carry: Any) -> Any:
        total, clients = carry
        at = lax.dynamic_slice_in_dim(queue, j * block, block)
        at = jnp.where(j * block + jnp.arange(block) < count, at, rows)  # `rows`: nobody
        read = lambda a: a.at[at].get(mode="clip")  # noqa: E731
        mine = jax.tree.map(read, info)
        uploads, new = jax.vmap(work)(jax.tree.map(read, clients), mine)
        part = weighted_sum(jnp.where(at < rows, mine.weight, 0.0), uploads)
        clients = jax.tree.map(lambda a, b: a.at[at].set(b, mode="drop"), clients, new)
        return jax.tree.map(jnp.add, total, part), clients

    return lax.fori_loop(0, (count + block - 1) // block, body, (zero, clients))


def _run(
    program: Program,
    placed: Placed,
    algorithms: Algorithm,
    trials: jax.Array,
    seed: Any,
    state: RunState,
    start: Any,
    stop: Any,
) -> tuple[RunState, Any]:
    """Rounds start, ..., stop - 1 of every run; ends early when all runs have diverged."""
    keys = jax.vmap(trial_key, in_axes=(None, 0))(seed, trials)

    def advance(t: Any, algorithm: Algorithm, key: jax.Array, state: RunState) -> RunState:
        server, clients = one_round(program, placed, t, algorithm, state.server, state.clients, key)
        # A run that diverges keeps the server state of its last finite round.
        diverged = jnp.where((state.diverged < 0) & ~is_finite(server), t, state.diverged)
        server = jax.tree.map(
            lambda new, old: jnp.where(diverged < 0, new, old), server, state.server
        )
        return RunState(server, clients, diverged)

    def body(carry: Any) -> Any:
        t, state = carry
        return t + 1, jax.vmap(partial(advance, t))(algorithms, keys, state)

    def go_on(carry: Any) -> Any:
        return (carry[0] < stop) & jnp.any(carry[1].diverged < 0)

    t, state = lax.while_loop(go_on, body, (start, state))
    return state, t


@partial(jax.jit, static_argnames="program", donate_argnames="state")
def run_rounds(
    program: Program,
    placed: Placed,
    algorithms: Algorithm,
    trials: jax.Array,
    seed: Any,
    state: RunState,
    start: Any,
    stop: Any,
) -> tuple[RunState, Any]:
    """Advance all runs from round `start` to round `stop`; (new state, round reached)."""
    rows = RunState(P(), P(None, AXIS), P())
    return jax.shard_map(
        partial(_run, program),
        mesh=program.layout.mesh,
        in_specs=(P(AXIS), P(), P(), P(), rows, P(), P()),
        out_specs=(rows, P()),
        check_vma=False,
    )(placed, algorithms, trials, seed, state, start, stop)
