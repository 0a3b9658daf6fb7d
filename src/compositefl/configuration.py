"""Settings of the process: devices, threads, caches, waiting. Most must precede JAX's start.

Importing the package applies the defaults below and what the environment says;
`compositefl.configure` changes them. docs/configuration.md lists every variable.
"""

import os
import warnings
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import jax
from platformdirs import user_cache_dir

from compositefl.core.errors import CompositeFLError, require_integer, require_positive, wrong_value

# Releases of jaxlib whose flags are known here: an unknown flag in XLA_FLAGS ends the process.
TESTED_JAXLIB = ("0.10",)
QUICK = {"--xla_cpu_use_fusion_emitters": "false", "--xla_backend_optimization_level": "0"}
# A device waits for the slowest client of another one in every round.
WAIT_LIMIT = 6 * 3600.0
STALL_LIMIT = 120.0
EXCHANGES = ("xla", "native")


@dataclass
class ProcessSettings:
    """What holds in this process."""

    exchange: str = "xla"  # how devices add up what they have at the end of a round
    wait_limit: float = WAIT_LIMIT  # seconds that a device waits for another before the run fails
    stall_limit: float = STALL_LIMIT  # seconds without progress after which a run says so


settings = ProcessSettings()


def configure(
    *,
    devices: int | None = None,
    cache: str | Path | bool | None = None,
    exchange: str | None = None,
    wait_limit: float | None = None,
    stall_limit: float | None = None,
    coordinator: str | None = None,
    processes: int | None = None,
    process: int | None = None,
) -> None:
    """Change settings of this process; what is None stays.

    devices: how many devices JAX makes of the CPU, by default one per core. Before JAX starts.
    cache: folder for compiled programs; False turns it off, True is the user's cache folder.
    exchange: how devices add up a round, "xla" or "native" (docs/configuration.md).
    wait_limit: seconds that a device waits for another before the run fails. With "xla" it must
        precede JAX's start.
    stall_limit: seconds without progress after which a run says so.
    coordinator, processes, process: this process is one of several that run together: HOST:PORT of
        the first one, how many there are, the number of this one from 0 (docs/clusters.md). Before
        JAX starts.
    """
    if coordinator is not None or processes is not None or process is not None:
        from compositefl.cluster import join  # here: it loads JAX, which loads this module

        join(coordinator, processes, process)
    if devices is not None:
        require_integer(devices=devices)
        try:
            jax.config.update("jax_num_cpu_devices", devices)
        except RuntimeError:
            raise CompositeFLError(
                f"devices={devices} comes too late: JAX has started with {len(jax.devices())}",
                parameter="devices",
                value=devices,
            ) from None
        _enough_threads(devices)
    if cache is not None:
        _keep_compiled_programs(cache)
    if exchange is not None:
        if exchange not in EXCHANGES:
            raise wrong_value(
                "exchange", exchange, f"one of {', '.join(EXCHANGES)}", shown=repr(exchange)
            )
        settings.exchange = exchange
    if wait_limit is not None:
        require_positive(wait_limit=wait_limit)
        settings.wait_limit = wait_limit
        _limit_waiting(replace=True)
    if stall_limit is not None:
        require_positive(stall_limit=stall_limit)
        settings.stall_limit = stall_limit


def available_cores() -> int:
    """Cores that this process may use; fewer where a container's processor time is metered."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # not Linux
        cores = os.cpu_count() or 1
    with suppress(OSError, ValueError):  # no such file, or "max" for no limit
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = max(1, min(cores, int(quota) // int(period)))
    return cores


def pool_threads() -> int:
    """Threads of XLA's pool: as told when JAX started, at least one per device."""
    told = _threads_told() if _threads_at_start is None else _threads_at_start
    return max(told, len(jax.local_devices()))


def more_threads(devices: int) -> str:
    """For messages: how to get enough threads for so many devices."""
    return f"import compositefl before JAX computes, or set PJRT_NPROC={2 * devices} before"


def _threads_told() -> int:
    """The number of threads that XLA reads from the environment, else that of the cores."""
    for name in ("PJRT_NPROC", "NPROC"):
        with suppress(KeyError, ValueError):
            return max(0, int(os.environ[name]))
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else available_cores()


def _jax_has_started() -> bool:
    """Whether JAX has its devices: it then refuses to change their number."""
    told = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    try:
        jax.config.update("jax_num_cpu_devices", max(told, 0) + 1)
    except RuntimeError:
        return True
    jax.config.update("jax_num_cpu_devices", told)
    return False


_threads_at_start: int | None = None  # of a JAX that had started when the package was imported


def _every_core_a_device() -> None:
    """Make every CPU core a device, so that clients spread over the cores.

    Without effect when JAX was told a number of devices by its own flags.
    """
    cores = int(_number("COMPOSITEFL_DEVICES", available_cores()))
    forced = "--xla_force_host_platform_device_count="
    flags = os.environ.get("XLA_FLAGS", "")
    if forced in flags:
        _enough_threads(int(flags.split(forced)[1].split()[0]))
        return
    told = jax.config.jax_num_cpu_devices  # type: ignore[attr-defined]
    if told < 1:
        jax.config.update("jax_num_cpu_devices", cores)
    _enough_threads(told if told >= 1 else cores)


def _enough_threads(devices: int) -> None:
    """Give XLA's pool two threads per device.

    A device's program occupies one of them. Batched linear algebra (an SVD, a Cholesky factor) of
    several devices at once hands parts of its work to further threads and waits for them: with as
    many threads as devices all of them wait, for ever.
    """
    if "PJRT_NPROC" not in os.environ:
        os.environ["PJRT_NPROC"] = str(2 * max(devices, available_cores()))


def quick_flags() -> str:
    """XLA_FLAGS with which programs compile in half the time, and run slower.

    For processes that start JAX after these are in the environment.
    """
    flags = os.environ.get("XLA_FLAGS", "").split()
    if _knows_flags():
        known = [word.partition("=")[0] for word in flags]
        flags += [f"{name}={value}" for name, value in QUICK.items() if name not in known]
    return " ".join(flags)


def _knows_flags() -> bool:
    return ".".join(version("jaxlib").split(".")[:2]) in TESTED_JAXLIB


def _limit_waiting(replace: bool = False) -> None:
    """Let devices wait for each other longer than XLA's 40 seconds, and not for ever.

    Large models and clients of unequal work reach 40 seconds; after the limit XLA ends the process.
    """
    if not _knows_flags():
        return
    flags = os.environ.get("XLA_FLAGS", "").split()
    for name, seconds in (("warn_stuck", 600.0), ("terminate", settings.wait_limit)):
        flag = f"--xla_cpu_collective_call_{name}_timeout_seconds="
        if replace:
            flags = [word for word in flags if not word.startswith(flag)]
        if not any(word.startswith(flag) for word in flags):
            flags.append(f"{flag}{max(1, int(seconds))}")
    os.environ["XLA_FLAGS"] = " ".join(flags)


def _keep_compiled_programs(folder: str | Path | bool) -> None:
    """Keep compiled programs on disk, so that a second start need not compile."""
    if folder is False:
        jax.config.update("jax_compilation_cache_dir", None)
        return
    path = Path(user_cache_dir("compositefl")) / "compiled" if folder is True else Path(folder)
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


def _number(name: str, default: float) -> float:
    """A positive number from the environment; any other value is told and ignored."""
    given = os.environ.get(name)
    if not given:
        return default
    with suppress(ValueError):
        if float(given) > 0:
            return float(given)
    warnings.warn(f"{name}={given} is ignored: it must be a number > 0", stacklevel=2)
    return default


def _from_environment() -> None:
    """Apply the defaults and the environment's settings, at import."""
    exchange = os.environ.get("COMPOSITEFL_EXCHANGE") or "xla"
    if exchange in EXCHANGES:
        settings.exchange = exchange
    else:
        known = " or ".join(EXCHANGES)
        warnings.warn(f"COMPOSITEFL_EXCHANGE={exchange} is ignored: it is {known}", stacklevel=2)
    settings.stall_limit = _number("COMPOSITEFL_STALL_LIMIT", STALL_LIMIT)
    settings.wait_limit = _number("COMPOSITEFL_WAIT_LIMIT", WAIT_LIMIT)
    if _jax_has_started():
        global _threads_at_start
        _threads_at_start = _threads_told()
    else:
        _every_core_a_device()
        _limit_waiting()
    if os.environ.get("COMPOSITEFL_COMPILATION_CACHE") != "off" and (
        jax.config.jax_compilation_cache_dir is None  # type: ignore[attr-defined]
    ):
        _keep_compiled_programs(True)


_from_environment()
