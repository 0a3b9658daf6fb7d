"""The sum over the cores that wait awake, against XLA's."""

import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import compositefl as cfl
from compositefl.simulation import device_sum
from compositefl.simulation.placement import AXIS, device_mesh

pytestmark = pytest.mark.skipif(
    len(jax.devices()) < 2 or not device_sum.available(), reason="one core or no C compiler"
)
ALGORITHM = cfl.FedNMap(gamma=4.0, local_steps=3, local_lr=0.1)


def on_devices(work, x, seats):
    """`work(its row of x, its seat)` on every device; the rows of all results."""
    run = jax.shard_map(
        lambda x, seat: work(x[0], seat)[None],
        mesh=device_mesh(),
        in_specs=(P(AXIS), P(AXIS)),
        out_specs=P(AXIS),
        check_vma=False,
    )
    return np.asarray(jax.jit(run)(x, seats))


def many_sums(x, seat):
    """A hundred sums one after the other, each over the last one's result."""
    one = lambda i, x: x - 0.3 * jnp.sin(device_sum.total(x, seat) + i)  # noqa: E731
    return lax.fori_loop(0, 100, one, x)


@pytest.mark.parametrize("runs, numbers", [(1, 1), (1, 21), (3, 777), (5, 8192)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_is_the_sum_of_xla(dtype, runs, numbers):
    # The largest case has more numbers than a slot, in several runs: it goes in pieces.
    with jax.enable_x64(dtype == "float64"):
        x = np.random.default_rng(0).normal(size=(len(jax.devices()), runs, numbers)).astype(dtype)
        work = lambda x, seat: jax.vmap(many_sums, in_axes=(0, None))(x, seat)  # noqa: E731
        reference = on_devices(work, x, None)
        with device_sum.table(device_mesh()) as seats:
            assert seats is not None
            ours = on_devices(work, x, seats)
    assert ours.dtype == reference.dtype
    if len(x) == 2:  # a + b = b + a; with more terms the order counts
        np.testing.assert_array_equal(ours, reference)
    np.testing.assert_allclose(ours, reference, rtol=1e-3 if dtype == "float32" else 1e-11)


def test_waits_for_a_slow_core():
    """One core works far longer than the other waits awake: it sleeps, and loses nothing."""

    def work(x, seat):
        def one(i, x):
            turns = jnp.where((lax.axis_index(AXIS) + i) % 2 == 0, 100_000, 1)
            slow = lax.fori_loop(0, turns, lambda _, y: jnp.sin(y) + 1, x)
            return device_sum.total(slow, seat)

        return lax.fori_loop(0, 20, one, x)

    x = np.ones((len(jax.devices()), 2), np.float32)
    with device_sum.table(device_mesh()) as seats:
        ours = on_devices(work, x, seats)
    np.testing.assert_array_equal(ours, on_devices(work, x, None))


def solve(problem, **options):
    options = dict(rounds=7, batch_size=5, progress=False, trials=2) | options
    return cfl.minimize(problem, cfl.L1(1e-3), ALGORITHM, **options)


@pytest.mark.parametrize("options", [{}, {"participation": 0.5}, {"dtype": "float64"}], ids=str)
def test_runs_are_those_with_the_sum_of_xla(network_problem, monkeypatch, options):
    ours = solve(network_problem, devices=2, **options)
    monkeypatch.setattr(device_sum, "available", lambda: False)
    theirs = solve(network_problem, devices=2, **options)
    jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)


def test_two_runs_at_once(network_problem):
    """Runs of two threads take turns: each gets its own numbers, and neither blocks the other."""
    alone = [solve(network_problem, seed=seed) for seed in (0, 1)]
    together = {}

    def go(seed):
        together[seed] = solve(network_problem, seed=seed)

    threads = [threading.Thread(target=go, args=(seed,), daemon=True) for seed in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=120)
    for seed in (0, 1):
        jax.tree.map(np.testing.assert_array_equal, together[seed].params, alone[seed].params)


def test_a_program_cut_short_keeps_its_table():
    mesh = device_mesh()
    with pytest.raises(KeyboardInterrupt), device_sum.table(mesh) as seats:
        raise KeyboardInterrupt
    assert device_sum.abandoned[-1].seats is seats  # the program may still write there
    with device_sum.table(mesh) as others:
        assert others is not seats


# Four seats on whatever cores there are, with a compiler and without one.
SCRIPT = """
import os
import numpy as np
os.sched_getaffinity = lambda process: range(4)
import compositefl as cfl
from compositefl.simulation import device_sum
samples = np.random.default_rng(0).normal(size=(8, 6, 3)).astype("float32")
loss = lambda x, batch: ((batch @ x) ** 2).mean() - batch.mean(0) @ x
problem = cfl.Problem(loss, np.zeros(3, "float32"), list(samples))
algorithm = cfl.FedNMap(gamma=1.0, local_steps=2, local_lr=0.1)
result = cfl.minimize(problem, cfl.L1(0.01), algorithm, rounds=50, progress=False)
print(device_sum.available(), *result.params)
"""


def run_script(**environment):
    out = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env=os.environ | {"COMPOSITEFL_DEVICES": "4"} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    found, *params = out.stdout.split()
    return found, np.array(params, float)


def test_more_seats_and_no_compiler(tmp_path):
    found, ours = run_script()
    assert found == "True"
    no_compiler = {"CC": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path)}
    for environment in (no_compiler, {"COMPOSITEFL_EXCHANGE": "xla"}):
        found, theirs = run_script(**environment)
        assert found == "False"
        np.testing.assert_allclose(ours, theirs, rtol=1e-4)
