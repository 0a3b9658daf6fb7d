"""The sum over the devices that ends a round: XLA's, or on request one whose cores wait awake.

XLA's own sum puts the cores to sleep while they wait for each other and wakes them twice, which a
round of a small problem notices (docs/benchmarks.md). `configure(exchange="native")` or
$COMPOSITEFL_EXCHANGE=native uses `device_sum.c` instead; it is compiled at first use with the
system's C compiler into the user's cache. The numbers are the same, on two cores bit for bit.
Without a compiler XLA's sum is used.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from platformdirs import user_cache_dir

from compositefl.configuration import available_cores, settings
from compositefl.core.types import PyTree
from compositefl.simulation.placement import AXIS

LINE = 64  # bytes of a cache line
SLOT = 2**15  # bytes of the largest array summed here: beyond, the sum outweighs the wait
TARGET = "compositefl_device_sum"


class SharedBuffer:
    """Memory in which the devices of a mesh add up, and the rank of each of them."""

    def __init__(self, mesh: Mesh):
        length = LINE * (1 + mesh.size) + 2 * SLOT * mesh.size
        self.memory = np.zeros(length + LINE, np.uint8)
        address = -(-self.memory.ctypes.data // LINE) * LINE
        header = (ctypes.c_uint64 * 2).from_address(address)
        header[0], header[1] = mesh.size, int(settings.wait_limit * 1e9)
        ranks = [(address % 2**32, address >> 32, rank) for rank in range(mesh.size)]
        sharding = NamedSharding(mesh, PartitionSpec(AXIS))
        self.ranks = jax.device_put(np.asarray(ranks, np.uint32), sharding)


# One program at a time has cores that wait awake: two could hold the threads each other waits for.
one_program = threading.Lock()
buffers: dict[Mesh, SharedBuffer] = {}
abandoned: list[SharedBuffer] = []


@contextmanager
def shared_buffer(mesh: Mesh) -> Iterator[jax.Array | None]:
    """The devices' ranks, for one compiled program that has ended when the context ends.

    None where XLA's own sum is used: by default, on devices that are not cores, on one, on more
    than there are cores, without a C compiler.
    """
    cores = all(device.platform == "cpu" for device in mesh.devices.flat)
    wanted = settings.exchange == "native" and cores and 1 < mesh.size <= available_cores()
    wanted = wanted and not mesh.is_multi_process
    if not (wanted and available()):
        yield None
        return
    with one_program:
        if mesh not in buffers:
            buffers[mesh] = SharedBuffer(mesh)
        try:
            yield buffers[mesh].ranks
        except BaseException:  # the program may go on in the background: its memory must stay
            abandoned.append(buffers.pop(mesh))
            raise


def total(x: jax.Array, rank: jax.Array | None) -> jax.Array:
    """The sum over the devices, in the shared buffer that `rank` points to, or by XLA."""
    native = x.dtype in (jnp.float32, jnp.float64) and x.size * x.dtype.itemsize <= SLOT
    if rank is None or not native:
        return lax.psum(x, AXIS)
    call = jax.ffi.ffi_call(
        TARGET,
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        has_side_effect=True,
        vmap_method="expand_dims",
    )
    return call(x, rank)


def total_of(tree: PyTree, rank: jax.Array | None) -> PyTree:
    """The sum over the devices of all arrays of a tree, floating-point numbers in one array.

    The devices wait for each other once per array.
    """
    leaves, structure = jax.tree.flatten(tree)
    real = [jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in leaves]
    packed, unpack = ravel_pytree([leaf for leaf, it_is in zip(leaves, real, strict=True) if it_is])
    sums = iter(unpack(total(packed, rank)) if packed.size else [])
    whole = (
        lax.psum(leaf, AXIS) if not it_is else next(sums)
        for leaf, it_is in zip(leaves, real, strict=True)
    )
    return jax.tree.unflatten(structure, list(whole))


@cache
def available() -> bool:
    """Compile `device_sum.c`, once for all starts, and tell XLA of it; False if impossible."""
    try:
        library = ctypes.CDLL(str(compiled(Path(__file__).with_suffix(".c"))))
    except (OSError, subprocess.SubprocessError) as error:
        logging.getLogger(__name__).warning("exchange='native' is not used: %s", error)
        return False
    function: Any = library.compositefl_device_sum
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(function), platform="cpu")
    return True


def compiled(source: Path) -> Path:
    """The shared library of a C file, in a folder of the user's cache that only the user writes."""
    options = ["-O2", "-std=gnu11", "-shared", "-fPIC", f"-DLINE={LINE}", f"-DSLOT={SLOT}"]
    made_of = (source.read_text(), *options, jaxlib.__version__, platform.machine())
    digest = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:16]
    folder = Path(user_cache_dir("compositefl")) / "native"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    _refuse_if_others_write(folder)
    library = folder / f"{source.stem}-{digest}.so"
    note = library.with_suffix(".sha256")
    if library.exists() and note.exists():
        _refuse_if_others_write(library)
        if note.read_text() == hashlib.sha256(library.read_bytes()).hexdigest():
            return library
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        raise FileNotFoundError("no C compiler")
    with tempfile.TemporaryDirectory(dir=folder) as here:
        made = Path(here) / library.name
        files = ["-I", jax.ffi.include_dir(), str(source), "-o", str(made)]
        subprocess.run([compiler, *options, *files], check=True, capture_output=True)
        made.chmod(0o700)
        (Path(here) / note.name).write_text(hashlib.sha256(made.read_bytes()).hexdigest())
        made.replace(library)  # in one step: another process may be doing the same
        (Path(here) / note.name).replace(note)
    return library


def _refuse_if_others_write(path: Path) -> None:
    """A library that somebody else could have changed must not be loaded."""
    about = path.stat()
    if hasattr(os, "getuid") and about.st_uid != os.getuid():
        raise PermissionError(f"{path} belongs to another user")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{path} can be written by others; remove it")
