"""What compiled programs and their compiler take from the process, and when it is given back."""

import ctypes
from contextlib import suppress
from pathlib import Path

import jax

# Share of the memory maps that a process may have at which compiled programs are dropped.
FULL = 0.5


def make_room() -> None:
    """Drop JAX's compiled programs before the process runs out of memory maps.

    The programs of one run take some 400 maps. Linux allows a process 65,530 by default, and a
    program that gets none ends it with a segmentation fault.
    """
    try:
        most = int(Path("/proc/sys/vm/max_map_count").read_text())
        with open("/proc/self/maps", "rb") as file:
            maps = sum(1 for _ in file)
    except OSError:
        return  # not Linux
    if maps > FULL * most:
        jax.clear_caches()


def give_back() -> None:
    """Return to the system what the compiler has freed: over 100 MB, which the C library keeps."""
    with suppress(AttributeError, OSError, TypeError):  # not the GNU C library
        ctypes.CDLL(None).malloc_trim(0)
