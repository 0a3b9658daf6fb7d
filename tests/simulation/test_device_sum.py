"""The sum over the cores that wait awake, against XLA's."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import PartitionSpec as P

import compositefl as cfl
from compositefl.configuration import settings
from compositefl.simulation import device_sum
from compositefl.simulation.placement import AXIS, device_mesh

pytestmark = pytest.mark.skipif(
    len(jax.devices()) < 2 or not device_sum.available(), reason="one core or no C compiler"
)


@pytest.fixture(autouse=True)
def native(monkeypatch):
    monkeypatch.setattr(settings, "exchange", "native")


ALGORITHM = cfl.FedNMap(gamma=4.0, local_steps=3, local_lr=0.1)


def on_devices(work, x, ranks):
    """`work(its row of x, its rank)` on every device; the rows of all results."""
    run = jax.shard_map(
        lambda x, rank: work(x[0], rank)[None],
        mesh=device_mesh(),
        in_specs=(P(AXIS), P(AXIS)),
        out_specs=P(AXIS),
        check_vma=False,
    )
    return np.asarray(jax.jit(run)(x, ranks))


def many_sums(x, rank):
    """A hundred sums one after the other, each over the last one's result."""
    one = lambda i, x: x - 0.3 * jnp.sin(device_sum.total(x, rank) + i)  # noqa: E731
    return lax.fori_loop(0, 100, one, x)


@pytest.mark.parametrize("runs, numbers", [(1, 1), (1, 21), (3, 777), (5, 8192)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_is_the_sum_of_xla(dtype, runs, numbers):
    # The largest case has more numbers than a slot, in several runs: it goes in pieces.
    with jax.enable_x64(dtype == "float64"):
        x = np.random.default_rng(0).normal(size=(len(jax.devices()), runs, numbers)).astype(dtype)
        work = lambda x, rank: jax.vmap(many_sums, in_axes=(0, None))(x, rank)  # noqa: E731
        reference = on_devices(work, x, None)
        with device_sum.shared_buffer(device_mesh()) as ranks:
            assert ranks is not None
            ours = on_devices(work, x, ranks)
    assert ours.dtype == reference.dtype
    if len(x) == 2:  # a + b = b + a; with more terms the order counts
        np.testing.assert_array_equal(ours, reference)
    np.testing.assert_allclose(ours, reference, rtol=1e-3 if dtype == "float32" else 1e-11)


def test_waits_for_a_slow_core():
    """One core works far longer than the other waits awake: it sleeps, and loses nothing."""

    def work(x, rank):
        def one(i, x):
            turns = jnp.where((lax.axis_index(AXIS) + i) % 2 == 0, 100_000, 1)
            slow = lax.fori_loop(0, turns, lambda _, y: jnp.sin(y) + 1, x)
            return device_sum.total(slow, rank)

        return lax.fori_loop(0, 20, one, x)

    x = np.ones((len(jax.devices()), 2), np.float32)
    with device_sum.shared_buffer(device_mesh()) as ranks:
        ours = on_devices(work, x, ranks)
    np.testing.assert_array_equal(ours, on_devices(work, x, None))


def solve(problem, **options):
    options = dict(rounds=7, batch_size=5, progress=False, trials=2) | options
    return cfl.minimize(problem, cfl.L1(1e-3), ALGORITHM, **options)


@pytest.mark.parametrize("options", [{}, {"participation": 0.5}, {"dtype": "float64"}], ids=str)
def test_runs_are_those_with_the_sum_of_xla(network_problem, monkeypatch, options):
    ours = solve(network_problem, devices=2, **options)
    monkeypatch.setattr(settings, "exchange", "xla")
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
    with pytest.raises(KeyboardInterrupt), device_sum.shared_buffer(mesh) as ranks:
        raise KeyboardInterrupt
    assert device_sum.abandoned[-1].ranks is ranks  # the program may still write there
    with device_sum.shared_buffer(mesh) as others:
        assert others is not ranks


# Four ranks on whatever cores there are, with a compiler and without one.
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


def test_four_ranks_with_and_without_a_compiler(tmp_path):
    found, ours = run_script(COMPOSITEFL_EXCHANGE="native")
    assert found == "True"
    no_compiler = {"CC": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path)}
    found, theirs = run_script(COMPOSITEFL_EXCHANGE="native", **no_compiler)
    assert found == "False"
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


# Device 0 waits for the others, which never come. In a process of its own, because JAX reports the
# failure once more when the process ends.
ALONE = """
import jax, numpy as np
import compositefl as cfl
cfl.configure(exchange="native", wait_limit=0.5)
from jax import lax
from jax.sharding import PartitionSpec as P
from compositefl.simulation import device_sum
from compositefl.simulation.placement import AXIS, device_mesh

def work(x, rank):
    wait = lambda x: device_sum.total(x, rank[0])
    return lax.cond(lax.axis_index(AXIS) == 0, wait, lambda x: x, x)

mesh = device_mesh()
run = jax.jit(
    jax.shard_map(
        work, mesh=mesh, in_specs=(P(AXIS), P(AXIS)), out_specs=P(AXIS), check_vma=False
    )
)
with device_sum.shared_buffer(mesh) as ranks:
    try:
        np.asarray(run(np.ones((mesh.size, 2), np.float32), ranks))
    except jax.errors.JaxRuntimeError as error:
        print(error)
"""


def test_a_device_that_never_comes_is_an_error_after_the_limit():
    # The tests of the network tell their processes to take one device.
    there = {k: v for k, v in os.environ.items() if k != "COMPOSITEFL_DEVICES"}
    out = subprocess.run(
        [sys.executable, "-c", ALONE],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=there,
    )
    assert "another device did not come within wait_limit" in out.stdout, out.stderr


def test_whole_numbers_are_summed_by_xla():
    x = np.arange(2 * len(jax.devices()), dtype=np.int32).reshape(-1, 2)
    with device_sum.shared_buffer(device_mesh()) as ranks:
        ours = on_devices(device_sum.total, x, ranks)
    np.testing.assert_array_equal(ours, np.broadcast_to(x.sum(0), x.shape))


def test_a_library_that_others_may_write_or_that_was_changed_is_not_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr(device_sum, "user_cache_dir", lambda name: str(tmp_path / name))
    source = Path(device_sum.__file__).with_suffix(".c")
    library = device_sum.compiled(source)
    assert library.parent.stat().st_mode & 0o77 == 0
    good = library.read_bytes()
    library.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert device_sum.compiled(source).read_bytes() == good  # compiled again
    library.chmod(0o722)
    with pytest.raises(PermissionError, match="can be written by others"):
        device_sum.compiled(source)


def test_off_by_default(monkeypatch):
    monkeypatch.setattr(settings, "exchange", "xla")
    with device_sum.shared_buffer(device_mesh()) as ranks:
        assert ranks is None
