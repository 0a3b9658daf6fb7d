"""Clients' data on the devices: every device holds the samples of its own clients, once."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from compositefl.engine.client import ClientInfo
from compositefl.engine.samples import gather
from compositefl.problem import Problem

AXIS = "clients"


class Placed(NamedTuple):
    """Data of a problem on a mesh; all leaves are sharded on their first axis."""

    samples: Any  # clients' samples, one after the other
    info: ClientInfo
    sample_weight: jax.Array  # weight of each sample in f; 0 for padding


class Layout(NamedTuple):
    """Which client sits in which row. Hashable, part of the compiled program's identity."""

    mesh: Mesh
    rows: int  # rows on one device
    order: tuple[int, ...]  # client of each row, -1 for padding

    def to_rows(self, tree: Any) -> Any:
        """(run, client, ...) in the order of the clients -> rows on the devices."""
        take = np.maximum(np.asarray(self.order), 0)
        sharding = NamedSharding(self.mesh, PartitionSpec(None, AXIS))
        return jax.tree.map(lambda a: jax.device_put(np.asarray(a)[:, take], sharding), tree)

    def from_rows(self, tree: Any) -> Any:
        """Rows on the devices -> (run, client, ...) numpy arrays in the order of the clients."""
        order = np.asarray(self.order)
        clients = int(np.sum(order >= 0))

        def collect(a: jax.Array) -> np.ndarray:
            out = np.empty((a.shape[0], clients, *a.shape[2:]), a.dtype)
            for shard in a.addressable_shards:  # one by one: a view each, where memory is shared
                here = order[shard.index[1]]
                here = here[here >= 0]  # padding comes last
                out[:, here] = np.asarray(shard.data)[:, : len(here)]
            return out

        return jax.tree.map(collect, tree)


def lay_out(sizes: np.ndarray, mesh: Mesh) -> Layout:
    """Deal the clients to the devices, the same number each and about the same samples."""
    devices = mesh.size
    hands: list[list[int]] = [[] for _ in range(devices)]
    for turn, client in enumerate(np.argsort(-sizes, kind="stable")):
        lap, seat = divmod(turn, devices)
        hands[seat if lap % 2 == 0 else devices - 1 - seat].append(int(client))
    rows = max(len(hand) for hand in hands)
    order = [row for hand in hands for row in sorted(hand) + [-1] * (rows - len(hand))]
    return Layout(mesh, rows, tuple(order))


def place(problem: Problem, layout: Layout, weights: np.ndarray, dtype: Any) -> Placed:
    """Copy each client's samples to its device, one device at a time."""
    mesh, sizes = layout.mesh, problem.sizes
    hands = np.asarray(layout.order).reshape(mesh.size, layout.rows)
    length = max(int(sum(sizes[c] for c in hand if c >= 0)) for hand in hands)
    sharding = NamedSharding(mesh, PartitionSpec(AXIS))

    buffers, infos, sample_weights = [], [], []
    for hand, device in zip(hands, mesh.devices.flat, strict=True):
        here = [int(c) for c in hand if c >= 0]
        buffers.append(jax.device_put(gather(problem, here, length, dtype), device))
        size = np.array([sizes[c] if c >= 0 else 1 for c in hand], np.int32)
        start = np.zeros(len(hand), np.int32)
        start[: len(here)] = np.cumsum([0, *(sizes[c] for c in here)])[:-1]
        weight = np.array([weights[c] if c >= 0 else 0.0 for c in hand], dtype)
        infos.append(ClientInfo(hand.astype(np.int32), start, size, weight))
        per_sample = np.zeros(length, dtype)
        per_sample[: int(sum(sizes[c] for c in here))] = np.repeat(
            [weights[c] / weights.sum() / sizes[c] for c in here], [sizes[c] for c in here]
        )
        sample_weights.append(per_sample)

    def join(*shards: Any) -> jax.Array:
        shape = (len(shards) * shards[0].shape[0], *shards[0].shape[1:])
        shards = tuple(jax.device_put(s, d) for s, d in zip(shards, mesh.devices.flat, strict=True))
        return jax.make_array_from_single_device_arrays(shape, sharding, list(shards))

    return Placed(jax.tree.map(join, *buffers), jax.tree.map(join, *infos), join(*sample_weights))


def device_mesh(devices: int | None = None) -> Mesh:
    """A mesh over `devices` devices, by default all of them."""
    available = jax.devices()
    return Mesh(np.asarray(available[: devices or len(available)]), (AXIS,))


def replicated(mesh: Mesh, tree: Any) -> Any:
    """Put `tree` on every device."""
    sharding = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(lambda a: jax.device_put(jnp.asarray(a), sharding), tree)
