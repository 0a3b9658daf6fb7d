"""Clients' data on the devices: every device holds the samples of its own clients, once."""

import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from compositefl.configuration import more_threads, pool_threads
from compositefl.core.types import Batch, DType, PyTree
from compositefl.engine.client import ClientInfo
from compositefl.engine.samples import gather
from compositefl.problem import Problem

AXIS = "clients"


class Placed(NamedTuple):
    """Data of a problem on a mesh."""

    samples: Batch  # clients' samples, one after the other; sharded over the devices
    info: Any  # ClientInfo, one entry per row; sharded
    sample_weight: Any  # weight of each sample in f; 0 for padding; sharded
    place_of: Any  # of each client: device * rows + row; on every device


# What shard_map is told of `Placed`.
PLACED = Placed(PartitionSpec(AXIS), PartitionSpec(AXIS), PartitionSpec(AXIS), PartitionSpec())


class Layout:
    """Which client sits in which row of which device."""

    def __init__(self, sizes: np.ndarray, mesh: Mesh):
        """Deal the clients to the devices, the same number each and about the same samples.

        From the largest to the smallest, to and fro over the devices.
        """
        self.mesh = mesh
        clients, devices = len(sizes), mesh.size
        self.rows = -(-clients // devices)  # on one device
        falling = np.argsort(-sizes, kind="stable")
        turn, place = np.divmod(np.arange(clients), devices)
        device = np.where(turn % 2 == 0, place, devices - 1 - place)
        self.order = np.full(devices * self.rows, -1)  # client of each row, -1 for padding
        for d in range(devices):
            mine = np.sort(falling[device == d])
            self.order[d * self.rows : d * self.rows + len(mine)] = mine
        real = np.flatnonzero(self.order >= 0)
        self.place_of = np.empty(clients, np.int32)
        self.place_of[self.order[real]] = real

    def on_device(self, device: int) -> np.ndarray:
        """The clients of a device, in the order of their rows."""
        rows = self.order[device * self.rows : (device + 1) * self.rows]
        return rows[rows >= 0]

    def to_rows(self, tree: PyTree) -> Any:
        """(run, client, ...) in the order of the clients -> rows on the devices."""
        take = np.maximum(self.order, 0)
        sharding = NamedSharding(self.mesh, PartitionSpec(None, AXIS))
        return jax.tree.map(lambda a: jax.device_put(np.asarray(a)[:, take], sharding), tree)

    def from_rows(self, tree: PyTree) -> Any:
        """Rows on the devices -> (run, client, ...) numpy arrays in the order of the clients."""
        clients = len(self.place_of)

        def collect(a: jax.Array) -> np.ndarray:
            out = np.empty((a.shape[0], clients, *a.shape[2:]), a.dtype)
            for shard in a.addressable_shards:  # one by one: a view each, where memory is shared
                here = self.order[shard.index[1]]
                here = here[here >= 0]  # padding comes last
                out[:, here] = np.asarray(shard.data)[:, : len(here)]
            return out

        return jax.tree.map(collect, tree)


def place(problem: Problem, layout: Layout, weights: np.ndarray, dtype: DType) -> Placed:
    """Copy each client's samples to its device, one device at a time."""
    mesh, sizes, rows = layout.mesh, problem.sizes, layout.rows
    length = max(int(sizes[layout.on_device(d)].sum()) for d in range(mesh.size))
    sharding = NamedSharding(mesh, PartitionSpec(AXIS))
    share = weights / weights.sum() / sizes  # of each sample of a client in f

    def padded(values: np.ndarray, length: int, fill: Any, kind: Any) -> np.ndarray:
        out = np.full(length, fill, kind)
        out[: len(values)] = values
        return out

    buffers, infos, sample_weights = [], [], []
    for number, device in enumerate(mesh.devices.flat):
        here = layout.on_device(number)
        buffers.append(jax.device_put(gather(problem, here, length, dtype), device))
        size = sizes[here]
        infos.append(
            ClientInfo(
                padded(here, rows, -1, np.int32),
                padded(np.cumsum(size) - size, rows, 0, np.int32),
                padded(size, rows, 1, np.int32),
                padded(weights[here], rows, 0, dtype),
            )
        )
        sample_weights.append(padded(np.repeat(share[here], size), length, 0, dtype))

    def join(*shards: Any) -> jax.Array:
        shape = (len(shards) * shards[0].shape[0], *shards[0].shape[1:])
        shards = tuple(jax.device_put(s, d) for s, d in zip(shards, mesh.devices.flat, strict=True))
        return jax.make_array_from_single_device_arrays(shape, sharding, list(shards))

    return Placed(
        jax.tree.map(join, *buffers),
        jax.tree.map(join, *infos),
        join(*sample_weights),
        replicated(mesh, layout.place_of),
    )


def device_mesh(devices: int | None = None) -> Mesh:
    """A mesh over `devices` devices, by default all of them."""
    available = jax.devices()
    return Mesh(np.asarray(available[: devices or len(available)]), (AXIS,))


def devices_with_threads() -> int:
    """All devices, or as many as XLA's pool of threads serves; fewer are told.

    On a CPU every device's program takes a thread, and batched linear algebra waits for one more.
    """
    devices, threads = jax.devices(), pool_threads()
    most = max(1, threads - 1)
    if devices[0].platform != "cpu" or len(devices) <= most:
        return len(devices)
    warnings.warn(
        f"this run uses {most} of {len(devices)} devices, because XLA has {threads} threads, and "
        "batched linear algebra would wait for ever with one per device: "
        f"{more_threads(len(devices))}",
        RuntimeWarning,
        stacklevel=2,
    )
    return most


def replicated(mesh: Mesh, tree: PyTree) -> Any:
    """Put `tree` on every device."""
    sharding = NamedSharding(mesh, PartitionSpec())
    return jax.tree.map(lambda a: jax.device_put(jnp.asarray(a), sharding), tree)
