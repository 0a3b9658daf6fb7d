"""Losses that couple the samples of a batch, and histories computed from a part of the data."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import compositefl as cfl
from compositefl.core.errors import CompositeFLError
from compositefl.engine.client import weighted_loss

BATCH = 4
SIZES = (9, 4, 3, 8, 13)  # with a rest, one batch, less than a batch, two batches, with a rest


def loss(w, batch):
    """Least squares on features that are centred and scaled within the batch."""
    x, y = batch
    x = (x - x.mean(0)) / jnp.sqrt(x.var(0) + 0.1)
    return 0.5 * jnp.mean((x @ w - y) ** 2)


def accuracy(w, batch):
    x, y = batch
    return jnp.mean(((x - x.mean(0)) @ w > 0) == (y > 0))


def coupled_problem(**options):
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(m, 3)) + i, rng.normal(size=m)) for i, m in enumerate(SIZES)]
    test = (rng.normal(size=(11, 3)), rng.normal(size=11))
    start = np.array([0.4, -0.2, 0.3])
    return cfl.Problem(
        loss, start, clients, test=test, accuracy=accuracy, coupled_batch=BATCH, **options
    )


def batches(client):
    """The batches that f_i is the mean over."""
    size = len(client[1])
    for start in range(0, size, BATCH):
        rows = (max(0, min(start, size - BATCH)) + np.arange(BATCH)) % size
        yield jax.tree.map(lambda a, rows=rows: jnp.asarray(a)[rows], client)


def plain(function, problem, weights=None):
    """Mean over the clients of the mean over their batches."""
    per_client = [
        jax.tree.map(lambda *a: sum(a) / len(a), *[function(b) for b in batches(c)])
        for c in problem.clients
    ]
    return np.average(np.asarray(per_client), axis=0, weights=weights)


def solve(problem, **options):
    algorithm = cfl.PGD(lr=0.1)
    given = dict(rounds=1, dtype="float64", eval_gamma=0.5, progress=False) | options
    return cfl.minimize(problem, cfl.L1(0.01), algorithm, **given)


@pytest.mark.parametrize("devices", [1, None])
@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_history_is_the_mean_over_batches(devices, weights):
    problem = coupled_problem()
    row = solve(problem, devices=devices, weights=weights).history.iloc[0]
    chosen = None if weights == "uniform" else SIZES
    with jax.enable_x64(True):
        w = jnp.asarray(problem.params)
        assert row.loss == pytest.approx(plain(lambda b: loss(w, b), problem, chosen), rel=1e-12)
        gradient = plain(lambda b: jax.grad(loss)(w, b), problem, chosen)
    z = problem.params - 0.5 * gradient
    residual = (problem.params - np.sign(z) * np.maximum(np.abs(z) - 0.005, 0)) / 0.5
    assert row.natural_residual_sq == pytest.approx(residual @ residual, rel=1e-10)


def test_full_gradients_are_those_of_the_history():
    problem = coupled_problem()
    result = solve(problem)
    with jax.enable_x64(True):
        w = jnp.asarray(problem.params)
        gradient = plain(lambda b: jax.grad(loss)(w, b), problem)
    z = problem.params - 0.1 * gradient
    expected = np.sign(z) * np.maximum(np.abs(z) - 0.001, 0)
    np.testing.assert_allclose(result.params, expected, rtol=1e-12)


def test_accuracy_in_batches():
    problem = coupled_problem()
    row = solve(problem, devices=1).history.iloc[0]
    x, y = problem.test
    cuts = [slice(0, 4), slice(4, 8), slice(7, 11)]  # the last counts for its 3 new samples
    shares = [float(accuracy(problem.params, (x[c], y[c]))) for c in cuts]
    assert row.accuracy == pytest.approx(np.dot(shares, [4, 4, 3]) / 11, rel=1e-6)


def test_per_sample_evaluation_of_a_coupled_loss_is_refused():
    problem = coupled_problem()
    with pytest.raises(CompositeFLError, match="mean over samples"):
        weighted_loss(problem.loss, problem.params, problem.clients[0], np.ones(9))


def test_models_with_batch_norm_make_coupled_problems():
    rng = np.random.default_rng(0)
    images = (rng.random((8, 32, 32, 3), dtype=np.float32), np.arange(8, dtype=np.int32))
    model = cfl.models.vision.mobilenet("tiny", cfl.models.vision.MOBILENET_V3_SMALL[:1], 10)
    assert model.problem([images]).loss.size == 32
    assert model.problem([images], coupled_batch=8).loss.size == 8


@pytest.mark.parametrize("coupled", [False, True])
def test_history_from_some_samples(coupled):
    options = dict(coupled_batch=2) if coupled else {}
    rng = np.random.default_rng(1)
    clients = [(rng.normal(size=(m, 3)), rng.normal(size=m)) for m in SIZES]
    function = loss if coupled else lambda w, b: 0.5 * jnp.mean((b[0] @ w - b[1]) ** 2)
    problem = cfl.Problem(function, np.ones(3), clients, eval_samples=4, **options)
    part = problem.for_evaluation()
    assert list(part.sizes) == [4, 4, 3, 4, 4]
    for some, client in zip(part.clients, clients, strict=True):
        assert np.isin(some[1], client[1]).all()
    alone = cfl.Problem(function, np.ones(3), part.clients, **options)
    few, expected = solve(problem), solve(alone)
    assert few.history.loss[0] == pytest.approx(expected.history.loss[0], rel=1e-12)
    everything = cfl.Problem(function, np.ones(3), clients, **options)
    np.testing.assert_array_equal(few.params, solve(everything).params)


def test_options_are_checked():
    for name, value in (("coupled_batch", 1), ("coupled_batch", 2.5), ("eval_samples", 0)):
        with pytest.raises(CompositeFLError, match=name):
            cfl.Problem(loss, np.ones(3), [(np.ones((2, 3)), np.ones(2))], **{name: value})
