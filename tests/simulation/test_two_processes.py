"""Two processes on the loopback interface are one run: one trajectory, one writer."""

import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

from compositefl import cluster
from compositefl.cli import main
from compositefl.core.errors import CompositeFLError

LIMIT = 240  # seconds, on a machine that is busy
COMMAND = "import sys; from compositefl.cli import main; sys.exit(main())"
WORDS = [
    *("run", "--dataset", "synthetic", "--alpha", "1", "--beta", "1"),  # without scikit-learn
    *("--model", "multinomial", "--clients", "6"),
    *("--local-steps", "2", "--local-lr", "0.1", "--gamma", "1", "--batch-size", "8"),
    *("--regularizer", "l1:0.001", "--dtype", "float64", "--eval-every", "3"),
]


@pytest.fixture
def start():
    """Start both processes of a run; whatever is left of them ends with the test."""
    started = []

    def both(*words):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        for number in range(2):
            where = ["--coordinator", f"127.0.0.1:{port}", "--processes", "2"]
            started.append(
                subprocess.Popen(
                    [
                        sys.executable,
                        "-c",
                        COMMAND,
                        *WORDS,
                        *words,
                        *where,
                        "--process",
                        f"{number}",
                    ],
                    env=os.environ | {"COMPOSITEFL_DEVICES": "1"},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        return started

    yield both
    for process in started:
        process.kill()
        process.communicate()


def test_same_trajectory_and_one_writer(start, tmp_path):
    words = ["--rounds", "6", "--out"]
    first, second = start(*words, str(tmp_path / "two"))
    said, error = first.communicate(timeout=LIMIT)
    assert first.returncode == 0, error
    assert "written to" in said
    assert "written to" not in second.communicate(timeout=LIMIT)[0]
    assert second.returncode == 0
    assert main([*WORDS, *words, str(tmp_path / "one")]) == 0
    two, one = (load_file(tmp_path / name / "model.safetensors") for name in ("two", "one"))
    for name, array in one.items():
        np.testing.assert_allclose(two[name], array, rtol=0, atol=1e-12)


def test_a_killed_process_ends_the_run_and_one_goes_on_alone(start, tmp_path):
    kept = tmp_path / "state"
    first, second = start("--rounds", "100000000", "--checkpoint", str(kept))
    end = time.monotonic() + LIMIT
    while not kept.exists():
        assert time.monotonic() < end and first.poll() is None, first.communicate()
        time.sleep(0.1)
    second.kill()
    _, error = first.communicate(timeout=LIMIT)
    if first.returncode == -signal.SIGABRT:  # JAX's own guard was first, see docs/clusters.md
        assert "another task died" in error
    else:
        assert first.returncode == 1
        last = error.strip().splitlines()[-1]
        assert last.startswith("error: another process of the run has gone: ")
        assert f"--checkpoint {kept}" in last or f"checkpoint={kept}" in last
    words = ["--rounds", "6", "--checkpoint", str(kept), "--resume", "--out", str(tmp_path / "out")]
    assert main([*WORDS, *words]) == 0
    assert (tmp_path / "out" / "model.safetensors").exists()


@pytest.mark.parametrize(
    "given, message",
    [
        (("host:1234", None, 0), "processes must be given too"),
        (("host:1234", 2, 2), "process=2 must be in 0..1"),
        (("host", 2, 0), "HOST:PORT"),
    ],
    ids=str,
)
def test_refuses(given, message):
    with pytest.raises(CompositeFLError, match=message):
        cluster.join(*given)


def test_a_launcher_is_found():
    assert cluster.launched({"SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "1"})
    assert cluster.launched({"OMPI_COMM_WORLD_SIZE": "2"})
    assert cluster.launched({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "JOB_COMPLETION_INDEX": "0"})
    assert not cluster.launched({"SLURM_STEP_NUM_TASKS": "1"})
    assert not cluster.launched({})
