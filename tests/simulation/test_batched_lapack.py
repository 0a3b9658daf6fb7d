"""Factorisations over many clients on two devices end: JAX splits such a batch over XLA's threads,
which were all taken by the devices' programs, and the run stood still.

Each script is a process of its own with a time limit, and sees JAX as a user does.
"""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from tests.conftest import QUICK_TO_COMPILE

SECONDS = 240
SOURCE = Path(__file__).parents[2] / "src"
OURS = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES", "PJRT_NPROC")  # set by the tests and the package

COMMON = """
import jax.numpy as jnp, numpy as np
import compositefl as cfl
rng = np.random.default_rng(0)
algorithm = cfl.FedNMap(gamma=0.5, local_steps=2, local_lr=0.01)

def nuclear_norm(**options):
    def loss(w, batch):
        return 0.5 * jnp.mean(jnp.sum((batch[0] @ w - batch[1]) ** 2, 1))
    clients = [(rng.normal(size=(8, 64)), rng.normal(size=(8, 10))) for _ in range(20)]
    problem = cfl.Problem(loss, np.zeros((64, 10)), clients)
    result = cfl.minimize(problem, cfl.NuclearNorm(0.1), algorithm, rounds=2, **options)
    assert np.isfinite(result.history.psi).all()

def factorised(of_matrix, **options):
    def loss(w, batch):
        matrix = jnp.diag(jnp.arange(1.0, 49.0)) + w @ w.T
        return jnp.mean(jax.vmap(lambda b: of_matrix(matrix, b))(batch))
    clients = [rng.normal(size=(2, 48)) for _ in range(20)]
    problem = cfl.Problem(loss, rng.normal(size=(48, 3)), clients)
    result = cfl.minimize(problem, cfl.L1(0.01), algorithm, rounds=2, **options)
    assert np.isfinite(result.history.psi).all()
"""

EVERY_KIND = """
assert len(jax.devices()) == 2
for devices in (None, 2):
    print("nuclear norm", devices, flush=True)
    nuclear_norm(devices=devices)
print("cholesky", flush=True)
factorised(lambda m, b: jnp.sum((jnp.linalg.cholesky(m) @ b) ** 2), devices=2)
print("solve", flush=True)
factorised(lambda m, b: b @ jnp.linalg.solve(m, b))
print("eigh", flush=True)
factorised(lambda m, b: jnp.sum(jnp.linalg.eigh(m)[0]) + b @ b)
"""

TOO_FEW_THREADS = """
import warnings
assert len(jax.devices()) == 2
try:
    nuclear_norm(devices=2)
except cfl.CompositeFLError as error:
    print("refused:", error, flush=True)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    nuclear_norm()
print("told:", told[0].message, flush=True)
"""


def run(script, **variables):
    """What a script printed; it fails if it does not end."""
    mine = {k: v for k, v in os.environ.items() if k not in OURS} | {"XLA_FLAGS": QUICK_TO_COMPILE}
    paths = [str(SOURCE), mine.get("PYTHONPATH", "")]
    mine["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        env=mine | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, error = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        pytest.fail(f"stood still for {SECONDS} s after: {process.communicate()[0]}")
    assert process.returncode == 0, error
    return out


@pytest.mark.skipif(len(jax.devices()) < 2, reason="one core")
def test_every_kind_ends_where_the_user_imports_jax_first():
    run("import jax\n" + COMMON + EVERY_KIND, COMPOSITEFL_DEVICES="2")


FEW = dict(PJRT_NPROC="2")
STARTED = "import jax\njax.devices()\n"


@pytest.mark.parametrize(
    ("before", "variables"),
    [
        ("", FEW | {"COMPOSITEFL_DEVICES": "2"}),
        (STARTED, FEW | {"JAX_NUM_CPU_DEVICES": "2"}),
    ],
    ids=["the variable is too small", "JAX has started with too few"],
)
def test_too_few_threads_are_told_and_not_waited_for(before, variables):
    out = run(before + COMMON + "import jax\n" + TOO_FEW_THREADS, **variables)
    refused, told = out.splitlines()
    assert refused.startswith("refused: devices=2 but XLA has 2 threads")
    assert told.startswith("told: this run uses 1 of 2 devices, because XLA has 2 threads")
    assert "PJRT_NPROC=4" in refused and "PJRT_NPROC=4" in told
