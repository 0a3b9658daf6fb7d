"""Clients' data on the devices, once: every device holds the samples of its own clients, or cores
of one process, whose memory is one, all read the samples of all."""

import warnings
from functools import partial
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from compositefl import cluster
from compositefl.configuration import more_threads, pool_threads
from compositefl.core.types import Array, Batch, DType, PyTree
from compositefl.engine.client import ClientInfo
from compositefl.engine.samples import aligned, all_samples, gather
from compositefl.problem import Problem

AXIS = "clients"


class Placed(NamedTuple):
    """Data of a problem on a mesh: sharded over the devices, or shared by all of them."""

    samples: Batch  # clients' samples, one after the other
    info: PyTree  # ClientInfo: one entry per row of the layout, or where shared per client
    sample_weight: Array  # weight of each sample in f; 0 for padding
    place_of: Array  # of each client: device * rows + row; on every device; None where shared
    everything: Array = None  # the weight of all clients; None: that of those who are placed

    @property
    def shared(self) -> bool:
        """Every device reads the samples of all clients."""
        return self.place_of is None


def specs(placed: Placed, brought: bool = False) -> Placed:
    """What shard_map is told of `placed`; brought: the clients are dealt, whoever reads what."""
    split = PartitionSpec() if placed.shared else PartitionSpec(AXIS)
    clients = PartitionSpec(AXIS) if brought else split
    return Placed(split, clients, split, PartitionSpec(), PartitionSpec())


def share_memory(mesh: Mesh) -> bool:
    """Whether all devices of the mesh read one memory: one device, or cores of this process."""
    here = jax.process_index()
    return mesh.size == 1 or all(
        d.platform == "cpu" and d.process_index == here for d in mesh.devices.flat
    )


class Layout:
    """Which client sits in which row of which device."""

    def __init__(self, sizes: np.ndarray, mesh: Mesh, in_order: bool = False):
        """Deal the clients to the devices, the same number each and about the same samples.

        From the largest to the smallest, to and fro over the devices. in_order: the first clients
        on the first device and so on, where it does not matter who holds how many samples.
        """
        self.mesh = mesh
        clients, devices = len(sizes), mesh.size
        self.rows = -(-clients // devices)  # on one device
        self.order = np.full(devices * self.rows, -1)  # client of each row, -1 for padding
        if in_order:
            self.order[:clients] = np.arange(clients)
        else:
            falling = np.argsort(-sizes, kind="stable")
            turn, place = np.divmod(np.arange(clients), devices)
            device = np.where(turn % 2 == 0, place, devices - 1 - place)
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

    def to_rows(self, tree: PyTree) -> PyTree:
        """(run, client, ...) in the order of the clients -> rows on the devices."""
        take = np.maximum(self.order, 0)
        sharding = NamedSharding(self.mesh, PartitionSpec(None, AXIS))
        return jax.tree.map(lambda a: cluster.put(np.asarray(a)[:, take], sharding), tree)

    def from_rows(self, tree: PyTree) -> PyTree:
        """Rows on the devices -> (run, client, ...) numpy arrays in the order of the clients."""
        clients = len(self.place_of)

        def collect(a: jax.Array) -> np.ndarray:
            if cluster.together():
                return cluster.fetch(a)[:, self.place_of]
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

    def padded(values: np.ndarray, length: int, fill: Array, kind: DType) -> np.ndarray:
        out = np.full(length, fill, kind)
        out[: len(values)] = values
        return out

    buffers, infos, sample_weights = [], [], []
    for number, device in enumerate(mesh.devices.flat):
        if device.process_index != jax.process_index():
            continue  # another process loads it
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

    def join(*shards: Array) -> jax.Array:
        shape = (mesh.size * shards[0].shape[0], *shards[0].shape[1:])
        shards = tuple(
            jax.device_put(s, d) for s, d in zip(shards, mesh.local_devices, strict=True)
        )
        return jax.make_array_from_single_device_arrays(shape, sharding, list(shards))

    return Placed(
        jax.tree.map(join, *buffers),
        jax.tree.map(join, *infos),
        join(*sample_weights),
        replicated(mesh, layout.place_of),
    )


def place_for_all(problem: Problem, mesh: Mesh, weights: np.ndarray, dtype: DType) -> Placed:
    """The samples of all clients in their order, in memory that all devices read."""
    sizes, clients = problem.sizes, len(problem.sizes)
    share = (weights / weights.sum() / sizes).astype(dtype)  # of each sample of a client in f
    info = ClientInfo(
        np.arange(clients, dtype=np.int32),
        (np.cumsum(sizes) - sizes).astype(np.int32),
        sizes.astype(np.int32),
        weights.astype(dtype),
    )
    everywhere = partial(_everywhere, mesh)
    return Placed(
        jax.tree.map(everywhere, all_samples(problem, dtype)),
        jax.tree.map(everywhere, info),
        everywhere(np.repeat(share, sizes)),
        None,
        replicated(mesh, np.asarray(weights.sum(), dtype)),
    )


class Bringer:
    """Brings some clients' samples from the host to the devices, to each its share of them.

    length: samples that a device has room for; every time the same, so that nothing is compiled
    anew. everything: the weight of all clients.
    """

    def __init__(self, problem: Problem, mesh: Mesh, share: int, weights: np.ndarray, dtype: DType):
        self.problem, self.mesh, self.dtype, self.share = problem, mesh, dtype, share
        self.weights = weights
        self.everything = replicated(mesh, np.asarray(weights.sum(), dtype))
        self.length = int(np.sort(problem.sizes)[-share:].sum())
        self.sharding = NamedSharding(mesh, PartitionSpec(AXIS))

    def clients(self, who: np.ndarray, times: np.ndarray, start: np.ndarray) -> ClientInfo:
        """The table of clients `who`, whose samples begin at `start`; nobody has times 0."""
        info = ClientInfo(
            who.astype(np.int32),
            start.astype(np.int32),
            self.problem.sizes[who].astype(np.int32),
            self.weights[who].astype(self.dtype) * times.astype(self.dtype),
        )
        return jax.device_put(info, self.sharding)

    def __call__(self, who: np.ndarray, times: np.ndarray) -> Placed:
        """Clients `who`, as many as there is room for, with their samples."""
        devices, share = self.mesh.size, self.share
        start, shards = np.zeros(len(who), int), []
        sample_weight = np.zeros((devices, self.length), self.dtype)
        for number, device in enumerate(self.mesh.devices.flat):
            mine = np.arange(number * share, (number + 1) * share)
            real = mine[times[mine] > 0]
            if not len(real):
                real = mine[:1]  # somebody's samples: what comes of them counts nothing
            here, size = who[real], self.problem.sizes[who[real]]
            # Entries of nobody read the samples of the first one there.
            who[mine[times[mine] == 0]] = here[0]
            start[real] = np.cumsum(size) - size
            shards.append(
                jax.device_put(gather(self.problem, here, self.length, self.dtype), device)
            )
            each = self.weights[here] * times[real] / (self.weights.sum() * size)
            sample_weight[number, : size.sum()] = np.repeat(each, size)

        def join(*parts: Array) -> jax.Array:
            shape = (devices * self.length, *parts[0].shape[1:])
            return jax.make_array_from_single_device_arrays(shape, self.sharding, list(parts))

        return Placed(
            jax.tree.map(join, *shards),
            self.clients(who, times, start),
            jax.device_put(sample_weight.reshape(-1), self.sharding),
            (),
            self.everything,
        )


def _everywhere(mesh: Mesh, array: np.ndarray) -> jax.Array:
    """An array on every device; cores take its memory over and hold one copy among them."""
    array = aligned(array)
    copies = [jax.device_put(array, device) for device in mesh.devices.flat]
    sharding = NamedSharding(mesh, PartitionSpec())
    return jax.make_array_from_single_device_arrays(array.shape, sharding, copies)


def device_mesh(devices: int | None = None) -> Mesh:
    """A mesh over `devices` devices, by default all of them."""
    available = jax.devices()
    return Mesh(np.asarray(available[: devices or len(available)]), (AXIS,))


def devices_with_threads() -> int:
    """All devices, or as many as XLA's pool of threads serves; fewer are told.

    On a CPU every device's program takes a thread, and batched linear algebra waits for one more.
    """
    if cluster.together():  # all processes need all of theirs
        return len(jax.devices())
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


def replicated(mesh: Mesh, tree: PyTree) -> PyTree:
    """Put `tree` on every device."""
    sharding = NamedSharding(mesh, PartitionSpec())

    def put(a: Array) -> jax.Array:
        # Not by jnp.asarray, which compiles a small program for every new shape.
        a = np.asarray(a)
        return cluster.put(a.astype(jax.dtypes.canonicalize_dtype(a.dtype), copy=False), sharding)

    return jax.tree.map(put, tree)
