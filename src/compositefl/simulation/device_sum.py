"""The sum over the devices that ends a round.

XLA's own sum puts the cores to sleep while they wait for each other and wakes them twice, some 60
microseconds on a virtual machine, whatever the size: half a round of a small problem. Where the
system has a C compiler, `exchange.c` does it in one, because its cores wait awake. The numbers are
the same, on two cores bit for bit. $COMPOSITEFL_EXCHANGE=xla turns it off.
"""

import ctypes
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jaxlib
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from platformdirs import user_cache_dir

from compositefl.configuration import available_cores
from compositefl.simulation.placement import AXIS

LINE = 64  # bytes of a cache line
SLOT = 2**15  # bytes of the largest array summed here: beyond, the sum outweighs the wait
TARGET = "compositefl_exchange"


class Table:
    """Where the devices of a mesh meet: memory for their sums, and a seat for each of them."""

    def __init__(self, mesh: Mesh):
        length = LINE * (1 + mesh.size) + 2 * SLOT * mesh.size
        self.memory = np.zeros(length + LINE, np.uint8)
        address = -(-self.memory.ctypes.data // LINE) * LINE
        ctypes.c_uint64.from_address(address).value = mesh.size
        seats = [(address % 2**32, address >> 32, seat) for seat in range(mesh.size)]
        sharding = NamedSharding(mesh, PartitionSpec(AXIS))
        self.seats = jax.device_put(np.asarray(seats, np.uint32), sharding)


# One program at a time has cores that wait awake: two could hold the threads each other waits for.
turn = threading.Lock()
tables: dict[Mesh, Table] = {}
abandoned: list[Table] = []


@contextmanager
def table(mesh: Mesh) -> Iterator[jax.Array | None]:
    """The devices' seats, for one compiled program that has ended when the context ends.

    None where XLA's own sum is used: on devices that are not cores, on one, on more than there are
    cores, without a C compiler.
    """
    cores = all(device.platform == "cpu" for device in mesh.devices.flat)
    if not (cores and 1 < mesh.size <= available_cores() and available()):
        yield None
        return
    with turn:
        if mesh not in tables:
            tables[mesh] = Table(mesh)
        try:
            yield tables[mesh].seats
        except BaseException:  # the program may go on in the background: its memory must stay
            abandoned.append(tables.pop(mesh))
            raise


def total(x: jax.Array, seat: jax.Array | None) -> jax.Array:
    """The sum of floats over the devices, from the seat of each at the table or by XLA."""
    if seat is None or x.size * x.dtype.itemsize > SLOT:
        return lax.psum(x, AXIS)
    call = jax.ffi.ffi_call(
        TARGET,
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        has_side_effect=True,
        vmap_method="expand_dims",
    )
    return call(x, seat)


@cache
def available() -> bool:
    """Compile `exchange.c`, once for all starts, and make it known to XLA; False if impossible."""
    if os.environ.get("COMPOSITEFL_EXCHANGE") == "xla":
        return False
    try:
        library = ctypes.CDLL(str(compiled(Path(__file__).with_suffix(".c"))))
    except (OSError, subprocess.SubprocessError) as error:
        logging.getLogger(__name__).info("cores wait for each other by XLA: %s", error)
        return False
    function: Any = library.compositefl_exchange
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(function), platform="cpu")
    return True


def compiled(source: Path) -> Path:
    """The shared library of a C file, in the user's cache."""
    options = ["-O2", "-std=gnu11", "-shared", "-fPIC", f"-DLINE={LINE}", f"-DSLOT={SLOT}"]
    made_of = (source.read_text(), *options, jaxlib.__version__, platform.machine())
    digest = hashlib.sha256("\n".join(made_of).encode()).hexdigest()[:16]
    folder = Path(user_cache_dir("compositefl")) / "native"
    library = folder / f"{source.stem}-{digest}.so"
    if not library.exists():
        compiler = shutil.which(os.environ.get("CC", "cc"))
        if compiler is None:
            raise FileNotFoundError("no C compiler")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as here:
            made = Path(here) / library.name
            files = ["-I", jax.ffi.include_dir(), str(source), "-o", str(made)]
            subprocess.run([compiler, *options, *files], check=True, capture_output=True)
            made.replace(library)  # in one step: another process may be doing the same
    return library
