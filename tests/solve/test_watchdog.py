"""A run without progress says so."""

import os
import subprocess
import sys
import time
import warnings

import pytest

from compositefl.configuration import settings
from compositefl.solve import watchdog

# With as many threads as devices, batched singular values on both devices wait for ever. A run
# would use fewer devices then; here it believes that there are threads enough.
STUCK = """
import numpy as np
import compositefl as cfl
from compositefl.simulation import placement
placement.pool_threads = lambda: 99
rng = np.random.default_rng(0)
clients = [(rng.normal(size=(5, 64)), rng.integers(0, 10, 5)) for _ in range(20)]
problem = cfl.models.multinomial(64, 10).problem(clients)
algorithm = cfl.FedNMap(gamma=1.0, local_steps=2, local_lr=0.1)
phi = cfl.ByName({"*bias": cfl.Zero(), "*": cfl.NuclearNorm(0.01)})
cfl.minimize(problem, phi, algorithm, rounds=4, progress=False)
print("done", flush=True)
"""


def test_a_run_that_stands_still_says_so(tmp_path):
    log = tmp_path / "stderr"
    with log.open("w") as file:
        variables = dict(PJRT_NPROC="2", COMPOSITEFL_DEVICES="2", COMPOSITEFL_STALL_LIMIT="3")
        process = subprocess.Popen(
            [sys.executable, "-c", STUCK], env=os.environ | variables, stdout=file, stderr=file
        )
    try:
        began = time.monotonic()
        while "no progress" not in log.read_text() and time.monotonic() - began < 240:
            if process.poll() is not None:
                pytest.skip("this machine's XLA does not wait for ever with two threads")
            time.sleep(0.2)
        seen = log.read_text()
        assert "no progress for" in seen and "PJRT_NPROC" in seen
    finally:
        process.kill()
        process.wait()


def test_quiet_when_work_ends_in_time_and_told_when_it_only_takes_long(monkeypatch):
    monkeypatch.setattr(settings, "stall_limit", 0.2)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with watchdog.watch("rounds 1 to 2"):
            time.sleep(0.01)
        assert not seen
        with watchdog.watch("rounds 3 to 4"):
            time.sleep(0.6)
    (warning,) = seen
    assert "rounds 3 to 4" in str(warning.message) and "threads wait" in str(warning.message)
