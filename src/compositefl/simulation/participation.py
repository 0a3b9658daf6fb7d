"""Who takes part in a round, on which device, and where their private states are read and kept.

Where everyone takes part, each device works on its own clients. Where clients are drawn and the
devices share memory, the drawn ones are dealt evenly to the devices, whoever keeps their states;
where devices do not share memory, each works on those of its own clients that were drawn. All costs
here grow with the clients drawn, not with those there are.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from compositefl.core.types import Array, ClientState, Number, PyTree
from compositefl.engine.client import ClientInfo
from compositefl.engine.sampling import Stream, lost, participants, round_key, straggler_steps
from compositefl.simulation import device_sum
from compositefl.simulation.placement import AXIS, Placed
from compositefl.simulation.program import Conditions, Program


class Participants(NamedTuple):
    """Who takes part in a round and how far: one entry per participant on this device.

    There may be entries of nobody, with times 0.
    """

    row: Array  # of the client in the states and tables of this round; None: all, in their order
    times: Array  # how often the client was drawn
    steps: Array  # local steps it can make; one number, or one per entry with stragglers
    arrived: Array  # its upload reaches the server; None: every upload does


class Drawn(NamedTuple):
    """The participants of all devices, dealt evenly: device 0 works on the first ones."""

    who: jax.Array
    times: jax.Array


def draw_participants(
    program: Program,
    conditions: Conditions,
    key: jax.Array,
    t: Number,
    placed: Placed,
    steps: Number,
) -> tuple[ClientInfo, Participants, Drawn | None]:
    """Draw the round's participants, stragglers and lost uploads.

    Returns the table of clients that the participants' rows refer to, the participants of this
    device, and who they are where they are dealt evenly.
    """
    sampling, rows, info = program.sampling, program.rows, placed.info
    drawn = None
    if sampling.everyone:
        who, times = info.id, (info.weight > 0).astype(jnp.int32)
        row = None if program.block >= rows else jnp.arange(rows, dtype=jnp.int32)
        return info, Participants(row, times, *draw_faults(conditions, key, t, who, steps)), None
    at = round_key(key, Stream.PARTICIPANTS, t)
    who, times = participants(at, sampling.clients, sampling.count, sampling.replacement)
    if program.shared:
        drawn = deal(program, who, times)
        who, times = my_share(program, drawn)
        info = jax.tree.map(lambda a: a.at[who].get(mode="promise_in_bounds"), info)
        row = None if program.block >= len(who) else jnp.arange(len(who), dtype=jnp.int32)
    else:
        place = placed.place_of[who]
        mine = (times > 0) & (place // rows == lax.axis_index(AXIS))
        # Those of this device first, in the order of their rows; the others are nobody here.
        place = jnp.where(mine, place % rows, rows)
        order = jnp.argsort(place, stable=True)
        who, times, row = who[order], jnp.where(mine, times, 0)[order], place[order]
    return info, Participants(row, times, *draw_faults(conditions, key, t, who, steps)), drawn


def draw_faults(
    conditions: Conditions, key: jax.Array, t: Number, who: jax.Array, steps: Number
) -> tuple[Number, jax.Array | None]:
    """(steps, arrived) of the clients `who`: their local steps, and whose upload arrives."""
    arrived = None
    if conditions.dropout is not None:
        at = round_key(key, Stream.LOST, t)
        arrived = jax.vmap(lambda i: ~lost(at, i, conditions.dropout))(who)
    if conditions.stragglers is not None:
        at = round_key(key, Stream.STRAGGLERS, t)
        steps = jax.vmap(lambda i: straggler_steps(at, i, conditions.stragglers, steps))(who)
    return steps, arrived


def deal(program: Program, who: jax.Array, times: jax.Array) -> Drawn:
    """The same number of participants for each device.

    The places left over repeat the first participant with times 0: whatever it computes is finite
    as long as the run is.
    """
    extra = program.share * program.mesh.size - len(who)
    who = jnp.concatenate([who, jnp.broadcast_to(who[:1], (extra,))])
    return Drawn(who, jnp.concatenate([times, jnp.zeros(extra, times.dtype)]))


def my_share(program: Program, tree: PyTree) -> PyTree:
    """This device's part of arrays with an entry per participant of all devices."""
    share = program.share
    at = lax.axis_index(AXIS) * share
    return jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, at, share), tree)


def fetch(
    program: Program, clients: ClientState, drawn: Drawn, rank: jax.Array | None
) -> ClientState:
    """The states of this device's participants, from the devices that keep them.

    One exchange of the participants' states; none on one device, or without states.
    """
    row = _rows(program, drawn.who)
    found = jax.tree.map(lambda a: a.at[row].get(mode="fill", fill_value=0), clients)
    if program.mesh.size > 1:
        found = device_sum.total_of(found, rank)
    return my_share(program, found)


def on_all_devices(program: Program, states: ClientState) -> ClientState:
    """This device's new states at their places among all participants; zero elsewhere.

    Summed over the devices they are the new states of all participants.
    """
    at = lax.axis_index(AXIS) * program.share

    def spread(a: jax.Array) -> jax.Array:
        zeros = jnp.zeros((program.share * program.mesh.size, *a.shape[1:]), a.dtype)
        return lax.dynamic_update_slice_in_dim(zeros, a, at, 0)

    return jax.tree.map(spread, states)


def keep(program: Program, clients: ClientState, drawn: Drawn, states: ClientState) -> ClientState:
    """Write the participants' states to the rows that this device keeps, in place."""
    row, places = _rows(program, drawn.who), jnp.arange(len(drawn.who), dtype=jnp.int32)
    # No two rows alike, also of those that are none: XLA may then write them in any order.
    row = jnp.where((drawn.times > 0) & (row < program.rows), row, program.rows + places)
    write = lambda a, new: a.at[row].set(new, mode="drop", unique_indices=True)  # noqa: E731
    return jax.tree.map(write, clients, states)


def _rows(program: Program, who: jax.Array) -> jax.Array:
    """The rows of clients on this device, one too high for those that another keeps."""
    row = who - lax.axis_index(AXIS) * program.rows
    return jnp.where((row >= 0) & (row < program.rows), row, program.rows)
