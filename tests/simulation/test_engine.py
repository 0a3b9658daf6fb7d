"""Results depend on the seed alone; runs resume bit for bit; failures are told."""

import os
import signal
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import compositefl as cfl
from compositefl.configuration import available_cores
from compositefl.engine.sampling import (
    lost,
    minibatch,
    participants,
    straggler_steps,
    threefry,
)
from compositefl.simulation.simulation import Simulation
from compositefl.simulation.working_set import EVALUATED, samples_at_once, working_numbers
from compositefl.solve import checkpoint
from tests.conftest import FULL
from tests.problems import Outside, lasso, squared_loss

ALGORITHM = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05)


def solve(problem, **options):
    options = dict(rounds=12, batch_size=4, seed=1, progress=False) | options
    return cfl.minimize(problem, cfl.L1(0.02), ALGORITHM, **options)


def leaves(tree):
    return [np.asarray(a) for a in jax.tree.leaves(tree)]


def assert_same(a, b, tolerance=0.0):
    for x, y in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance)


def test_every_core_is_a_device():
    assert len(jax.devices()) == available_cores()


@pytest.mark.parametrize(
    "limit, cores", [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), (None, 8)]
)
def test_metered_cores_are_not_counted(monkeypatch, limit, cores):
    def read(path):
        assert str(path) == "/sys/fs/cgroup/cpu.max"
        if limit is None:
            raise FileNotFoundError
        return limit

    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8))
    monkeypatch.setattr(Path, "read_text", read)
    assert available_cores() == cores


def test_cores_where_no_affinity_is_told(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    assert 1 <= available_cores() <= os.cpu_count()


def test_devices_may_wait_long_for_each_other_and_not_for_ever():
    """XLA's default ends the process after 40 seconds; it reads the flag when it starts."""
    jax.devices()
    flag = "--xla_cpu_collective_call_terminate_timeout_seconds="
    assert 3600 <= int(os.environ["XLA_FLAGS"].split(flag)[1].split()[0]) <= 24 * 3600


SOME = [(1, 2), (2, 1), (2, None)] if FULL else [(2, None)]  # devices and blocks


@pytest.mark.parametrize(
    "participation, batch_size, others",
    [(1.0, 4, SOME), (3, 4, [(1, 2), (2, 1), (2, None)]), (3, None, SOME)],
)
def test_independent_of_devices_and_blocks(network_problem, participation, batch_size, others):
    options = dict(participation=participation, batch_size=batch_size, dtype="float64")
    reference = solve(network_problem, devices=1, **options)
    for devices, block in others:
        if devices > len(jax.devices()):
            continue
        other = solve(network_problem, devices=devices, client_block=block, **options)
        assert_same(other.params, reference.params, 1e-12)
        assert_same(other.clients, reference.clients, 1e-12)
        assert_same(other.server, reference.server, 1e-12)


def test_clients_with_large_arrays_work_one_at_a_time():
    rng = np.random.default_rng(0)
    images = [
        cfl.data.Samples(rng.random((40, 28, 28, 1), dtype=np.float32), np.arange(40) % 10)
        for _ in range(4)
    ]
    problem = cfl.models.cnn_fedcanon(1).problem(images)
    patches = 32 * 16 * 16 * 9 * 16  # the windows that the second convolution sees
    assert working_numbers(problem, 32) == patches > problem.parameter_count
    assert working_numbers(problem, 1) == problem.parameter_count

    def block(problem, batch_size):
        options = dict(seed=0, count=4, weights=np.ones(4), dtype="float32", devices=1)
        return Simulation(problem, [ALGORITHM], [0], batch_size=batch_size, **options).program.block

    assert block(problem, 32) == 1
    small = cfl.models.logistic_regression(784).problem(
        [cfl.data.Samples(c.x.reshape(40, -1), c.y % 2) for c in images]
    )
    assert block(small, 32) == 4


def test_samples_evaluated_at_once_keep_what_grows_with_them_small():
    part = lambda numbers: lambda n: jnp.sum(jnp.ones((n, numbers)) + 1) * jnp.ones(3 * EVALUATED)  # noqa: E731
    few, zeros = samples_at_once(part(EVALUATED // 10), 2048)
    assert few <= 10 and zeros.shape == (3 * EVALUATED,) and not zeros.any()
    assert samples_at_once(part(2), 2048)[0] == 2048


def test_independent_of_the_evaluation_schedule(network_problem):
    a = solve(network_problem, eval_every=1)
    b = solve(network_problem, eval_every=5)
    assert_same(a.params, b.params)
    assert list(b.history["round"]) == [0, 5, 10, 12]
    both = a.history[a.history["round"].isin(b.history["round"])]
    assert list(both.psi) == list(b.history.psi)


def test_trials_are_the_runs_of_their_own_seeds_stream(network_problem):
    many = solve(network_problem, trials=3)
    assert sorted(many.history.trial.unique()) == [0, 1, 2]
    one = solve(network_problem, trials=1)
    first = jax.tree.map(lambda a: a[0], many.params)
    assert_same(first, one.params, 1e-6)
    second = jax.tree.map(lambda a: a[1], many.params)
    assert (
        max(np.abs(a - b).max() for a, b in zip(leaves(first), leaves(second), strict=True)) > 1e-4
    )


def test_same_seed_same_result_other_seed_other_result(network_problem):
    assert_same(solve(network_problem).params, solve(network_problem).params)
    with pytest.raises(AssertionError):
        assert_same(solve(network_problem).params, solve(network_problem, seed=2).params, 1e-4)


@pytest.mark.parametrize("participation", [1.0, 2])
def test_resume_is_bit_identical(network_problem, tmp_path, participation):
    options = dict(participation=participation, trials=2)
    unbroken = solve(network_problem, rounds=12, eval_every=3, **options)
    file = tmp_path / "run.ckpt"
    solve(network_problem, rounds=6, eval_every=3, checkpoint=file, **options)
    resumed = solve(
        network_problem, rounds=12, eval_every=3, checkpoint=file, resume=True, **options
    )
    assert_same(resumed.params, unbroken.params)
    assert_same(resumed.clients, unbroken.clients)
    assert_same(resumed.server, unbroken.server)
    pd.testing.assert_frame_equal(
        resumed.history.drop(columns="seconds"), unbroken.history.drop(columns="seconds")
    )


def test_checkpoint_of_another_run_is_refused(network_problem, lasso_problem, tmp_path):
    file = tmp_path / "run.ckpt"
    solve(network_problem, checkpoint=file)
    with pytest.raises(cfl.CompositeFLError, match="exists; pass resume=True"):
        solve(network_problem, checkpoint=file)
    with pytest.raises(cfl.CompositeFLError, match="another run: seed is 1 there and 5 here"):
        solve(network_problem, checkpoint=file, resume=True, seed=5)
    with pytest.raises(cfl.CompositeFLError, match="another run: the data or the start are others"):
        solve(lasso_problem, checkpoint=file, resume=True)
    with pytest.raises(cfl.CompositeFLError, match="another run: trials is 1 there and 3 here"):
        solve(network_problem, checkpoint=file, resume=True, trials=3)
    for phi, method, said in (
        (0.03, ALGORITHM, "regularizer is L1.*0.02.* there and L1.*0.03.* here"),
        (0.02, cfl.PGD(lr=0.1), "algorithm is FedNMap.* there and PGD"),
    ):
        with pytest.raises(cfl.CompositeFLError, match=said):
            options = dict(rounds=12, batch_size=4, seed=1, eval_gamma=0.5, progress=False)
            resume = dict(checkpoint=file, resume=True)
            cfl.minimize(network_problem, cfl.L1(phi), method, **options, **resume)
    whole = file.read_bytes()
    for broken in (b"nonsense", b"", whole[: len(whole) // 2]):
        file.write_bytes(broken)
        with pytest.raises(cfl.CompositeFLError, match="not a compositefl checkpoint"):
            solve(network_problem, checkpoint=file, resume=True)


def test_a_checkpoint_past_the_rounds_says_so(network_problem, tmp_path):
    file = tmp_path / "run.ckpt"
    solve(network_problem, rounds=12, checkpoint=file)
    with pytest.warns(RuntimeWarning, match="is at round 12 already, past rounds=6: "):
        past = solve(network_problem, rounds=6, checkpoint=file, resume=True)
    assert past.rounds == 12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert solve(network_problem, checkpoint=file, resume=True).rounds == 12


def at_zero_alike(w, batch):
    """The squared loss at w = 0 alone."""
    return squared_loss(w, batch) + jnp.sum(w**2)


def first_only(w, batch):
    """Coupled by the first sample's target."""
    return squared_loss(w, (batch[0], batch[1] - batch[1][0]))


@pytest.mark.parametrize("kind", ["compiled", "outside", "coupled", "on demand"])
def test_a_checkpoint_knows_its_loss(tmp_path, kind):
    plain = lasso(clients=3, features=4)
    start, file = np.zeros(4), tmp_path / "run.ckpt"

    def problem(loss):
        if kind == "outside":
            loss = Outside(loss)
        clients, coupled = plain.clients, 4 if kind == "coupled" else None
        if kind == "on demand":
            clients = cfl.OnDemand(lambda i: plain.clients[i], plain.sizes)
        return cfl.Problem(loss, start, clients, coupled_batch=coupled)

    def go_on(loss, rounds):
        options = dict(checkpoint=file, resume=True, progress=False)
        return cfl.minimize(problem(loss), None, cfl.PGD(lr=0.1), rounds=rounds, **options)

    loss, other = squared_loss, at_zero_alike
    if kind == "coupled":
        loss, other = first_only, lambda w, batch: 2 * first_only(w, batch)
    go_on(loss, 2)
    with pytest.raises(cfl.CompositeFLError, match=r"the loss is another one, .* there and"):
        go_on(other, 4)
    assert go_on(lambda w, batch: loss(w, batch), 4).rounds == 4  # written anew, and the same


def test_a_checkpoint_of_an_earlier_version_is_taken(lasso_problem, tmp_path, monkeypatch):
    file, options = tmp_path / "run.ckpt", dict(eval_every=2, progress=False)
    with monkeypatch.context() as patch:  # they have no values of the loss
        save = checkpoint.save

        def as_before(path, fingerprint, now):
            now.about.pop("loss", None)
            save(path, fingerprint, now)

        patch.setattr(checkpoint, "save", as_before)
        run = lasso_problem, cfl.L1(0.1), cfl.PGD(lr=0.1)
        cfl.minimize(*run, rounds=2, checkpoint=file, **options)
    more = cfl.minimize(*run, rounds=4, checkpoint=file, resume=True, **options)
    assert_same(more.params, cfl.minimize(*run, rounds=4, **options).params)


def test_tolerance_stops(lasso_problem):
    result = cfl.minimize(
        lasso_problem,
        cfl.L1(0.1),
        cfl.PGD(lr=0.2),
        rounds=5000,
        eval_every=10,
        tolerance=1e-6,
        dtype="float64",
        progress=False,
    )
    assert result.stopped == "tolerance"
    last = result.history.natural_residual_sq.to_numpy() ** 0.5
    assert last[-1] <= 1e-6 < last[-2]


def test_divergence_is_told_and_the_last_finite_model_kept(lasso_problem):
    wild = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=50.0)
    with pytest.warns(RuntimeWarning, match=r"diverged to NaN or infinity in round (\d+)") as told:
        result = cfl.minimize(lasso_problem, cfl.L1(0.1), wild, rounds=500, progress=False)
    round_ = int(str(told[-1].message).split("round ")[1].split(";")[0])
    assert result.stopped == "diverged"
    assert round_ < 100 and result.rounds >= round_ and result.diverged == [round_]
    assert all(np.isfinite(a).all() for a in leaves(result.params))
    # The state kept is the one that a run of one round less ends with.
    shorter = cfl.minimize(lasso_problem, cfl.L1(0.1), wild, rounds=round_ - 1, progress=False)
    assert_same(result.params, shorter.params)


def test_history_columns_and_counts(network_problem):
    result = solve(network_problem, rounds=6, eval_every=3, participation=2)
    p = network_problem.parameter_count
    last = result.history.iloc[-1]
    assert last["round"] == 6 and last.gradients == 6 * 2 * 3
    assert last.prox_clients == 6 * 2 * 3 and last.prox_server == 6
    assert last.bytes_up == 6 * 2 * p * 4 and last.bytes_down == 2 * last.bytes_up
    assert last.seconds > 0
    zeros = np.mean(np.concatenate([a.ravel() == 0 for a in leaves(result.params)]))
    np.testing.assert_allclose(last.zeros, zeros)


def test_metrics_against_plain_formulas(lasso_problem):
    gamma, weight = 0.4, 0.1
    result = cfl.minimize(
        lasso_problem,
        cfl.L1(weight),
        ALGORITHM,
        rounds=5,
        eval_gamma=gamma,
        dtype="float64",
        progress=False,
    )
    x = result.params

    def gradient(w):
        return np.mean([a.T @ (a @ w - b) / len(b) for a, b in lasso_problem.clients], axis=0)

    def soft(z):
        return np.sign(z) * np.maximum(np.abs(z) - gamma * weight, 0.0)

    last = result.history.iloc[-1]
    loss = np.mean([0.5 * np.mean((a @ x - b) ** 2) for a, b in lasso_problem.clients])
    z = x - gamma * gradient(x)
    own = result.server.z  # the normal map is the method's own, at its z and gamma
    normal = gradient(x) + (own - x) / ALGORITHM.gamma
    np.testing.assert_allclose(last.loss, loss, rtol=1e-12)
    np.testing.assert_allclose(last.psi, loss + weight * np.abs(x).sum(), rtol=1e-12)
    np.testing.assert_allclose(last.natural_residual_sq, np.sum(((x - soft(z)) / gamma) ** 2))
    np.testing.assert_allclose(last.normal_map_sq, np.sum(normal**2))
    ratio = np.abs(x).sum() / np.linalg.norm(x)
    np.testing.assert_allclose(last.hoyer, (8**0.5 - ratio) / (8**0.5 - 1))


def test_size_weights(lasso_problem):
    result = cfl.minimize(
        lasso_problem,
        None,
        cfl.PGD(lr=0.3),
        rounds=3000,
        eval_every=3000,
        weights="size",
        dtype="float64",
        progress=False,
    )
    a = np.concatenate([x for x, _ in lasso_problem.clients])
    b = np.concatenate([y for _, y in lasso_problem.clients])
    np.testing.assert_allclose(result.params, np.linalg.lstsq(a, b)[0], atol=1e-9)


def press_after(monkeypatch, round_):
    """Ctrl-C as soon as a run has passed this round."""
    advance = Simulation.advance

    def advance_and_press(self, stop):
        advance(self, stop)
        if stop > round_:
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Simulation, "advance", advance_and_press)


def test_ctrl_c_saves_everything(network_problem, tmp_path, monkeypatch):
    file = tmp_path / "run.ckpt"
    with monkeypatch.context() as patch:
        press_after(patch, 20)
        result = solve(network_problem, rounds=100_000, eval_every=1000, checkpoint=file)
    assert result.stopped == "interrupted" and 20 < result.rounds < 1000
    # History, sentence and model are of one round; the row is none of a resumed run.
    assert list(result.history["round"]) == [0, result.rounds]
    assert f"(interrupted) after round {result.rounds}:" in result.summary()
    zeros = np.mean(np.concatenate([a.ravel() == 0 for a in leaves(result.params)]))
    np.testing.assert_allclose(result.history.zeros.iloc[-1], zeros)
    rounds = result.rounds + 5
    more = solve(network_problem, rounds=rounds, eval_every=1000, checkpoint=file, resume=True)
    unbroken = solve(network_problem, rounds=rounds, eval_every=1000)
    assert_same(more.params, unbroken.params)
    pd.testing.assert_frame_equal(
        more.history.drop(columns="seconds"), unbroken.history.drop(columns="seconds")
    )


def test_a_second_ctrl_c_ends_at_once_and_the_checkpoint_is_there(
    network_problem, tmp_path, monkeypatch
):
    file, evaluate = tmp_path / "run.ckpt", Simulation.evaluate

    def evaluate_and_press(self, gamma):
        if self.round > 20:
            os.kill(os.getpid(), signal.SIGINT)
        return evaluate(self, gamma)

    with monkeypatch.context() as patch:
        press_after(patch, 20)
        patch.setattr(Simulation, "evaluate", evaluate_and_press)
        with pytest.raises(KeyboardInterrupt):
            solve(network_problem, rounds=100_000, eval_every=1000, checkpoint=file)
    with pytest.warns(RuntimeWarning, match="past rounds=1"):
        more = solve(network_problem, rounds=1, eval_every=1000, checkpoint=file, resume=True)
    assert 20 < more.rounds < 1000
    assert list(more.history["round"]) == [0, more.rounds]  # the model's, though nobody ran on


def test_threefry_is_the_published_cipher():
    # Known answers of Random123 for Threefry-2x32 with 20 rounds.
    ones, none = jnp.uint32(0xFFFFFFFF), jnp.uint32(0)
    zero = threefry(none, none, none, none)
    assert [int(w) for w in zero] == [0x6B200159, 0x99BA4EFE]
    full = threefry(ones, ones, ones, ones)
    assert [int(w) for w in full] == [0x1CB996FC, 0xBB002BE7]


def test_minibatch_draws_are_uniform():
    draws = jax.vmap(lambda step: minibatch(jax.random.key(3), 5, step, 64, 7))(np.arange(1000))
    counts = np.bincount(np.asarray(draws).ravel(), minlength=7)
    assert counts.size == 7
    expected = 64000 / 7
    assert np.sum((counts - expected) ** 2 / expected) < 22.5  # chi^2, 6 degrees: p = 0.001


def test_draws_do_not_depend_on_the_floating_point_type():
    key = jax.random.key(9)

    @jax.jit
    def draws():
        clients = jnp.arange(50, dtype=jnp.int32)
        return (
            jax.vmap(lambda i: minibatch(key, i, 3, 8, 100))(clients),
            *participants(key, 50, 9, False),
            *participants(key, 500, 9, False),
            *participants(key, 50, 9, True),
            jax.vmap(lambda i: lost(key, i, 0.5))(clients),
            jax.vmap(lambda i: straggler_steps(key, i, 0.5, 10))(clients),
        )

    single = draws()
    with jax.enable_x64(True):
        double = draws()
    for a, b in zip(single, double, strict=True):
        np.testing.assert_array_equal(a, b)


def test_without_all_cores_results_are_the_same(network_problem):
    """A process with one device follows the same trajectory."""
    code = """
        import numpy as np, jax
        import compositefl as cfl
        from tests.problems import network
        assert len(jax.devices()) == 1
        result = cfl.minimize(network(), cfl.L1(0.02), cfl.FedNMap(gamma=0.5, local_steps=3,
            local_lr=0.05), rounds=12, batch_size=4, seed=1, dtype="float64", progress=False)
        print(repr(float(sum(np.abs(a).sum() for a in jax.tree.leaves(result.params)))))
    """
    environment = os.environ | {
        "COMPOSITEFL_DEVICES": "1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    out = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    here = solve(network_problem, dtype="float64")
    expected = sum(np.abs(a).sum() for a in leaves(here.params))
    np.testing.assert_allclose(float(out.stdout), expected, rtol=1e-12)
