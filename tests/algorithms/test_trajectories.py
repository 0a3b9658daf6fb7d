"""Every method against its reference implementation: the same samples, in float64."""

from functools import partial

import numpy as np
import pytest

import compositefl as cfl
from compositefl.core.component import replace
from tests.algorithms import helpers, twins
from tests.algorithms.helpers import SEED, STEPS, WEIGHT
from tests.conftest import FULL
from tests.reference import (
    gradient_corrected,
)
from tests.reference.losses import LeastSquares

BATCH = 4  # as in tests/simulation/test_loop.py, which uses the programs that are compiled here
solve = partial(helpers.solve, devices=None)  # all devices, as there


# Gradients over all samples are the engine's business; `make test-full` has them with all methods.
ALL_SAMPLES = twins.COMPOSITE if FULL else ["fednmap", "fedda", "prox-sgd"]


@pytest.mark.parametrize(
    ("name", "batch_size"),
    [*[(name, BATCH) for name in twins.COMPOSITE], *[(name, None) for name in ALL_SAMPLES]],
)
def test_composite_method(name, batch_size, lasso_problem):
    algorithm, twin = twins.COMPOSITE[name]
    rounds = 12
    f = LeastSquares(lasso_problem, batch_size, seed=11)
    models = twins.models(twin, f, lasso_problem.params, rounds)
    for stop in (1, 5, rounds):
        result = cfl.minimize(
            lasso_problem,
            cfl.L1(WEIGHT),
            algorithm,
            rounds=stop,
            batch_size=batch_size,
            seed=11,
            dtype="float64",
            eval_every=rounds,
            progress=False,
        )
        np.testing.assert_allclose(result.params, models[stop - 1], rtol=0, atol=1e-12)


def test_scaffold(lasso_problem):
    f = LeastSquares(lasso_problem, BATCH, seed=2)
    models = list(gradient_corrected.scaffold(f, lasso_problem.params, rounds=10, **twins.PLAIN))
    result = cfl.minimize(
        lasso_problem,
        None,
        cfl.Scaffold(**STEPS),
        rounds=10,
        batch_size=BATCH,
        seed=2,
        dtype="float64",
        progress=False,
    )
    np.testing.assert_allclose(result.params, models[-1], rtol=0, atol=1e-12)


METHODS = twins.SAMPLED | twins.ONE_GRADIENT | twins.SMOOTH


@pytest.mark.parametrize("name", METHODS)
def test_with_sampled_clients(name, lasso_problem):
    """With minibatches, and with half of the clients a round where the method has that."""
    algorithm, twin = METHODS[name]
    count = None if name in twins.ONE_GRADIENT else 3
    f = LeastSquares(lasso_problem, BATCH, seed=11, count=count)
    models = list(twin(f, lasso_problem.params, 12))
    for stop in (1, 5, 12):
        result = solve(
            lasso_problem,
            None if name in twins.SMOOTH else cfl.L1(WEIGHT),
            algorithm,
            rounds=stop,
            batch_size=BATCH,
            seed=11,
            participation=count or 1.0,
        )
        np.testing.assert_allclose(result.params, models[stop - 1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", twins.SUBGRADIENT)
def test_subgradient_variant(name, lasso_problem):
    """The subgradient variant, with no regulariser and with one whose gradient the twin adds."""
    algorithm, twin = twins.SUBGRADIENT[name]
    algorithm = replace(algorithm, composite="subgradient")
    for ridge, rounds in ((0.0, 1), (0.0, 12), (0.3, 12)):
        f = LeastSquares(lasso_problem, BATCH, SEED, ridge)
        expected = twins.models(twin, f, lasso_problem.params, 12)[rounds - 1]
        phi = cfl.SquaredL2(ridge / 2)
        result = solve(lasso_problem, phi, algorithm, batch_size=BATCH, rounds=rounds)
        np.testing.assert_allclose(result.params, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", twins.SUBGRADIENT if FULL else ["mime-adam", "fedpd"])
def test_single_precision(name, lasso_problem):
    algorithm, twin = twins.SUBGRADIENT[name]
    expected = twins.models(
        twin, LeastSquares(lasso_problem, BATCH, SEED), lasso_problem.params, 12
    )[-1]
    result = solve(lasso_problem, None, algorithm, batch_size=BATCH, dtype="float32")
    assert result.params.dtype == np.float32
    np.testing.assert_allclose(result.params, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["feddyn", "feddc", "mime-momentum"])
def test_smooth_method_with_sampled_clients(name, lasso_problem):
    algorithm, twin = twins.SUBGRADIENT[name]
    f = LeastSquares(lasso_problem, BATCH, SEED, count=3)
    expected = twins.models(twin, f, lasso_problem.params, 12)[-1]
    result = solve(lasso_problem, None, algorithm, batch_size=BATCH, participation=3)
    np.testing.assert_allclose(result.params, expected, rtol=0, atol=1e-12)
