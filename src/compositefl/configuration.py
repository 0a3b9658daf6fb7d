"""Settings of JAX that must be made before its first computation."""

import os
from contextlib import suppress
from pathlib import Path

import jax
from platformdirs import user_cache_dir


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


def use_all_cores() -> None:
    """Make every CPU core a device, so that clients spread over the cores.

    $COMPOSITEFL_DEVICES sets another number. Without effect when JAX has already started or was
    told a number of devices by its own flags: then the devices are what they are.
    """
    if "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", ""):
        return
    cores = int(os.environ.get("COMPOSITEFL_DEVICES") or available_cores())
    try:
        if jax.config.jax_num_cpu_devices < 1:  # type: ignore[attr-defined]
            jax.config.update("jax_num_cpu_devices", cores)
    except RuntimeError:
        pass  # JAX has started


def wait_for_slow_clients() -> None:
    """Let devices wait for each other as long as it takes.

    XLA ends the process when one core waits 40 seconds for another, which large models and clients
    of unequal work would reach. Without effect when JAX has already started.
    """
    flags = os.environ.get("XLA_FLAGS", "")
    for name, seconds in (("warn_stuck", 3600), ("terminate", 10**7)):
        flag = f"xla_cpu_collective_call_{name}_timeout_seconds"
        if flag not in flags:
            flags += f" --{flag}={seconds}"
    os.environ["XLA_FLAGS"] = flags.strip()


def keep_compiled_programs() -> None:
    """Keep compiled programs in the user's cache, so that a second start need not compile.

    Left alone when JAX has a cache folder set; $COMPOSITEFL_COMPILATION_CACHE=off turns it off.
    """
    if os.environ.get("COMPOSITEFL_COMPILATION_CACHE") == "off":
        return
    if jax.config.jax_compilation_cache_dir is None:  # type: ignore[attr-defined]
        folder = Path(user_cache_dir("compositefl")) / "compiled"
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)


use_all_cores()
wait_for_slow_clients()
keep_compiled_programs()
