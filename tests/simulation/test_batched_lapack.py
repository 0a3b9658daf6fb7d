"""Factorisations over many clients on two devices end: JAX splits such a batch over XLA's threads,
which were all taken by the devices' programs, and the run stood still.

Each run is a process of its own with a time limit, and sees JAX as a user does.
"""

import os
import subprocess
import sys
from pathlib import Path

import jax
import pytest

SECONDS = 120
SOURCE = Path(__file__).parents[2] / "src"

COMMON = """
import jax, jax.numpy as jnp, numpy as np
import compositefl as cfl
rng = np.random.default_rng(0)
algorithm = cfl.FedNMap(gamma=0.5, local_steps=2, local_lr=0.01)
options = dict(rounds=2, devices=2, progress=False)
"""

NUCLEAR_NORM = """
def loss(w, batch):
    return 0.5 * jnp.mean(jnp.sum((batch[0] @ w - batch[1]) ** 2, 1))
clients = [(rng.normal(size=(8, 64)), rng.normal(size=(8, 10))) for _ in range(20)]
problem = cfl.Problem(loss, np.zeros((64, 10)), clients)
result = cfl.minimize(problem, cfl.NuclearNorm(0.1), algorithm, **options)
assert np.isfinite(result.history.psi).all()
"""

FACTORISED_LOSS = """
def loss(w, batch):
    matrix = jnp.diag(jnp.arange(1.0, 49.0)) + w @ w.T
    return jnp.mean(jax.vmap(lambda b: OF_MATRIX)(batch))
clients = [rng.normal(size=(2, 48)) for _ in range(20)]
problem = cfl.Problem(loss, rng.normal(size=(48, 3)), clients)
result = cfl.minimize(problem, cfl.L1(0.01), algorithm, **options)
assert np.isfinite(result.history.psi).all()
"""

CASES = {
    "nuclear norm": NUCLEAR_NORM,
    "cholesky": FACTORISED_LOSS.replace(
        "OF_MATRIX", "jnp.sum((jnp.linalg.cholesky(matrix) @ b) ** 2)"
    ),
    "solve": FACTORISED_LOSS.replace("OF_MATRIX", "b @ jnp.linalg.solve(matrix, b)"),
    "eigh": FACTORISED_LOSS.replace("OF_MATRIX", "jnp.sum(jnp.linalg.eigh(matrix)[0]) + b @ b"),
}


@pytest.mark.skipif(len(jax.devices()) < 2, reason="one core")
@pytest.mark.parametrize("case", CASES)
def test_it_ends(case):
    ours = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")  # of the tests
    variables = {k: v for k, v in os.environ.items() if k not in ours}
    paths = [str(SOURCE), variables.get("PYTHONPATH", "")]
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    try:
        done = subprocess.run(
            [sys.executable, "-c", COMMON + CASES[case]],
            env=variables,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired:
        pytest.fail(f"{case} over 20 clients on two devices stood still for {SECONDS} s")
    assert done.returncode == 0, done.stderr
