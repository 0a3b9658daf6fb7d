"""Tells when a run makes no progress, which a compiled program that waits for ever cannot."""

import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from compositefl.configuration import more_threads, pool_threads, settings

ASLEEP = 0.02  # share of one core below which a process counts as waiting
BUSY_FACTOR = 10  # a process that computes is given so many times the limit before it is told


@contextmanager
def watch(work: str) -> Iterator[None]:
    """Warn if `work` is not done after `stall_limit` seconds; it goes on all the same.

    A process that computes may only be slow, so it gets BUSY_FACTOR times as long.
    """
    done = threading.Event()
    observer = threading.Thread(target=_observe, args=(work, done), daemon=True)
    observer.start()
    try:
        yield
    finally:
        done.set()


def _observe(work: str, done: threading.Event) -> None:
    limit = settings.stall_limit
    for window in range(1, BUSY_FACTOR + 1):
        began = time.process_time()
        if done.wait(limit):
            return
        used = time.process_time() - began
        if used < ASLEEP * limit:
            _tell(work, window * limit, _why_asleep(used, limit))
            return
    _tell(work, BUSY_FACTOR * limit, "The process is computing; it may only be slow.")


def _why_asleep(used: float, limit: float) -> str:
    import jax

    devices = len(jax.local_devices())
    return (
        f"Its threads wait: {used:.1f} s of processor time in the last {limit:g} s. "
        f"It has {devices} devices and about {pool_threads()} threads for them; batched linear "
        f"algebra needs more threads than devices ({more_threads(devices)}), or use devices=1."
    )


def _tell(work: str, seconds: float, why: str) -> None:
    warnings.warn(
        f"no progress for {seconds:g} seconds: {work} have not ended. {why}",
        RuntimeWarning,
        stacklevel=2,
    )
