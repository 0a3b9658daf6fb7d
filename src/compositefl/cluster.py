"""Several processes as one run, on one machine or on many: JAX's own distributed runtime.

Every process runs the same program on its own clients. What they decide by the clock or by a key
that was pressed, they decide together, because a process that went on alone would wait for ever.
"""

import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import Sharding

from compositefl.core.errors import CompositeFLError, require_integer, wrong_value

HEARTBEAT = 20  # seconds after which a silent process counts as gone
LAST = 120  # seconds that a process waits for the others at its end
# The number of processes of a job, by the variable in which its launcher says it.
LAUNCHERS = ("SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE")
INDEXED_JOB = ("KUBERNETES_SERVICE_HOST", "JOB_COMPLETION_INDEX")


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a launcher that JAX knows has started this as one of several processes."""
    counts = [environment.get(name, "") for name in LAUNCHERS]
    if any(count.isdigit() and int(count) > 1 for count in counts):
        return True
    return all(name in environment for name in INDEXED_JOB)


def join(
    coordinator: str | None = None, processes: int | None = None, process: int | None = None
) -> None:
    """Make this process one of several that run together. Before JAX starts.

    coordinator: HOST:PORT of the first process; processes: how many there are; process: the number
    of this one, from 0. With none of them given, what a launcher says (SLURM, Open MPI,
    Kubernetes); nothing happens where there is none.
    """
    given = {"coordinator": coordinator, "processes": processes, "process": process}
    missing = [name for name, value in given.items() if value is None]
    if 0 < len(missing) < len(given):
        raise CompositeFLError(f"{', '.join(missing)} must be given too: all of {', '.join(given)}")
    if missing and not launched():
        return
    if coordinator is not None and processes is not None and process is not None:
        require_integer(processes=processes)
        require_integer(0, process=process)
        if not process < processes:
            raise wrong_value("process", process, f"in 0..{processes - 1}")
        if not coordinator.rpartition(":")[2].isdigit() or coordinator.startswith(":"):
            raise wrong_value("coordinator", coordinator, "HOST:PORT")
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            process,
            heartbeat_timeout_seconds=HEARTBEAT,
            shutdown_timeout_seconds=LAST,
        )
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise CompositeFLError(f"the processes did not come together: {reason}") from error


def together() -> bool:
    """Several processes run together."""
    return jax.process_count() > 1


def is_first() -> bool:
    """This process writes results and checkpoints."""
    return jax.process_index() == 0


def agreed(first: float, anybody: bool = False) -> tuple[float, bool]:
    """(what the first process says, whether any process says yes), the same in all processes."""
    if not together():
        return first, anybody
    from jax.experimental import multihost_utils

    said = np.asarray(multihost_utils.process_allgather(np.array([first, float(anybody)])))
    return float(said[0, 0]), bool(said[:, 1].any())


def put(array: Any, sharding: Sharding) -> jax.Array:
    """An array that every process has as a whole, on the devices of all processes."""
    array = np.asarray(array)
    if not together():
        return jax.device_put(array, sharding)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def fetch(array: jax.Array) -> np.ndarray:
    """An array that lies on the devices of all processes, as a whole in each of them."""
    if array.is_fully_addressable or array.is_fully_replicated:
        return np.asarray(array)
    from jax.experimental import multihost_utils

    return np.asarray(multihost_utils.process_allgather(array, tiled=True))
