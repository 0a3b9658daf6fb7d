"""Averaging, mirror descent and dual averaging: identities, drift, limits, compression."""

import jax
import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms import (
    EControlDA,
    FastFedDA,
    Identity,
    TopK,
)
from tests.algorithms.helpers import (
    ALL_SAMPLES,
    STEPS,
    assert_equal,
    distance,
    quadratic,
    solve,
)
from tests.problems import centralised_solution


@pytest.mark.parametrize("algorithm", [cfl.FedMiD(**STEPS), cfl.FedDA(**STEPS)])
def test_without_regularizer_fedmid_and_fedda_are_fedavg(lasso_problem, algorithm):
    reference = solve(lasso_problem, None, cfl.FedAvg(**STEPS))
    assert_equal(solve(lasso_problem, None, algorithm).params, reference.params)


@pytest.mark.parametrize(
    "algorithm",
    [
        cfl.FedMiD(local_steps=5, local_lr=0.02),
        cfl.FedDA(local_steps=5, local_lr=0.02),
        cfl.FedAvg(local_steps=5, local_lr=0.02, composite="server-prox"),
        cfl.FedAvg(local_steps=5, local_lr=0.02, composite="subgradient"),
    ],
    ids=lambda a: repr(a)[:40],
)
def test_methods_without_correction_drift(lasso_problem, algorithm):
    solution = centralised_solution(lasso_problem, 0.1)
    result = solve(
        lasso_problem, cfl.L1(0.1), algorithm, rounds=3000, batch_size=None, eval_every=3000
    )
    error = np.linalg.norm(result.params - solution)
    assert 1e-3 < error < 1.0


def test_fast_fedda_approaches_the_solution_like_one_over_n(lasso_problem):
    solution = centralised_solution(lasso_problem, 0.1)
    algorithm = FastFedDA(local_steps=4, strong_convexity=0.2, proximity=20.0)
    errors = [
        distance(lasso_problem, cfl.L1(0.1), algorithm, solution, rounds=rounds)
        for rounds in (500, 2000, 8000)
    ]
    assert errors[0] < 1e-2
    np.testing.assert_allclose(np.array(errors[:-1]) / errors[1:], 4.0, rtol=0.1)


def test_fast_fedda_as_in_code_has_the_limit_of_a_shifted_problem(lasso_problem):
    hessian, linear = quadratic(lasso_problem)
    shifted = hessian - 0.1 / 4 * np.eye(8)  # mu_s / Q
    x = np.zeros(8)
    for _ in range(20000):
        z = x - 0.5 * (shifted @ x - linear)
        x = np.sign(z) * np.maximum(np.abs(z) - 0.5 * 0.1, 0.0)
    algorithm = FastFedDA(local_steps=4, strong_convexity=0.2, proximity=20.0, as_in_code=True)
    errors = [
        distance(lasso_problem, cfl.L1(0.1), algorithm, x, rounds=rounds)
        for rounds in (500, 2000, 8000)
    ]
    np.testing.assert_allclose(np.array(errors[:-1]) / errors[1:], 4.0, rtol=0.1)
    assert errors[-1] < 0.1 * np.linalg.norm(x - centralised_solution(lasso_problem, 0.1))


@pytest.mark.parametrize("compressor", [Identity(), TopK(1.0)], ids=repr)
def test_econtrolda_without_compression_is_fedda(lasso_problem, compressor):
    phi = cfl.L1(0.02)
    a = solve(lasso_problem, phi, EControlDA(lr=0.2, compressor=compressor, control_gain=0.6))
    b = solve(lasso_problem, phi, cfl.FedDA(local_steps=1, local_lr=0.2))
    assert_equal(a.params, b.params)
    assert_equal(a.clients.error, jax.tree.map(np.zeros_like, a.clients.error))


def test_average_of_econtrolda_is_the_mean_of_its_models(lasso_problem):
    last = EControlDA(lr=0.05, compressor=TopK(2))
    models = [
        solve(lasso_problem, cfl.L1(0.1), last, rounds=t, **ALL_SAMPLES).params
        for t in (1, 2, 3, 4)
    ]
    average = EControlDA(lr=0.05, compressor=TopK(2), output="average")
    result = solve(lasso_problem, cfl.L1(0.1), average, rounds=4, **ALL_SAMPLES)
    np.testing.assert_allclose(result.params, np.mean(models, axis=0), atol=1e-12)


def test_average_of_econtrolda_approaches_the_solution_like_one_over_t(lasso_problem):
    solution = centralised_solution(lasso_problem, 0.1)
    algorithm = EControlDA(lr=0.05, compressor=TopK(2), output="average")
    errors = [
        distance(lasso_problem, cfl.L1(0.1), algorithm, solution, rounds=rounds)
        for rounds in (1000, 4000)
    ]
    np.testing.assert_allclose(errors[0] / errors[1], 4.0, rtol=0.05)


def test_compressed_run_of_a_network(network_problem):
    result = solve(network_problem, cfl.L1(0.02), EControlDA(lr=0.1, compressor=TopK(5)))
    last = result.history.iloc[-1]
    assert last.bytes_up == 12 * 5 * 5 * (8 + 4)  # rounds, clients, k, a double and an index
    assert_equal(result.server.h, jax.tree.map(lambda a: a.mean(axis=0), result.clients.h))
