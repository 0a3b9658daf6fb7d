"""Momentum and base optimisers: identities, limits."""

import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms import (
    STEM,
    VRLSGD,
    FedAvgM,
    Mime,
    MimeLite,
    ScaffoldI,
    ScaffoldM,
)
from tests.algorithms.helpers import (
    FIVE,
    LOCAL,
    ONE_STEP,
    STEPS,
    assert_equal,
    assert_reaches,
    distance,
    final_error,
    quadratic,
    solve,
    started_at_prox,
)


@pytest.mark.parametrize(
    ("momentum", "plain", "participation"),
    [
        (ScaffoldM(gradient_weight=1.0, **STEPS), cfl.Scaffold(**STEPS), 3),
        (FedAvgM(gradient_weight=1.0, **STEPS), cfl.FedAvg(**STEPS), 1.0),
    ],
    ids=["scaffold", "fedavg"],
)
def test_without_momentum(lasso_problem, momentum, plain, participation):
    a = solve(lasso_problem, None, momentum, participation=participation)
    b = solve(lasso_problem, None, plain, participation=participation)
    assert_equal(a.params, b.params)


@pytest.mark.parametrize(
    "algorithm",
    [
        ScaffoldM(gradient_weight=1.0, composite="server-prox", **ONE_STEP),
        FedAvgM(gradient_weight=1.0, composite="server-prox", **ONE_STEP),
        ScaffoldI(composite="server-prox", **ONE_STEP),
    ],
    ids=lambda a: type(a).__name__,
)
def test_one_step_is_prox_sgd(lasso_problem, algorithm):
    phi = cfl.MCP(0.05, 3.0)
    reference = solve(lasso_problem, phi, cfl.ProxSGD(lr=0.2))
    assert_equal(solve(lasso_problem, phi, algorithm).params, reference.params)


def test_one_local_step_is_sgd(lasso_problem):
    phi = cfl.L1(0.05)
    one = dict(local_steps=1, local_lr=0.1, composite="server-prox")
    sgd = solve(lasso_problem, phi, cfl.ProxSGD(lr=0.1))
    assert_equal(solve(lasso_problem, phi, MimeLite(**one)).params, sgd.params)
    exact = solve(lasso_problem, phi, cfl.PGD(lr=0.1))
    assert_equal(solve(lasso_problem, phi, Mime(**one)).params, exact.params)
    moved = solve(started_at_prox(lasso_problem, phi, 0.1), phi, cfl.ProxSGD(lr=0.1))
    assert_equal(solve(lasso_problem, phi, VRLSGD(**one)).params, moved.params)


@pytest.mark.parametrize(
    "algorithm",
    [MimeLite(server_lr=1.5, **LOCAL), STEM(gradient_weight=1.0, local_steps=1, local_lr=0.03)],
    ids=lambda a: type(a).__name__,
)
def test_these_are_fedavg(lasso_problem, algorithm):
    steps, server_lr = algorithm.local_steps, getattr(algorithm, "server_lr", 1.0)
    fedavg = cfl.FedAvg(local_steps=steps, local_lr=0.03, server_lr=server_lr)
    a, b = (solve(lasso_problem, None, method) for method in (algorithm, fedavg))
    assert_equal(a.params, b.params)


def test_stem_without_momentum_is_fedavg_one_gradient_step_later(lasso_problem):
    ahead = solve(lasso_problem, None, cfl.PGD(lr=0.03), rounds=1)
    moved = cfl.Problem(lasso_problem.loss, ahead.params, lasso_problem.clients)
    reference = solve(moved, None, cfl.FedAvg(**LOCAL), batch_size=None, rounds=11)
    stem = STEM(gradient_weight=1.0, **LOCAL)
    result = solve(lasso_problem, None, stem, batch_size=None, rounds=12)
    assert_equal(result.params, reference.params)


@pytest.mark.parametrize(
    ("algorithm", "conditions"),
    [
        (Mime(**FIVE), {}),
        (Mime(optimizer="momentum", **FIVE), {}),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, dict) else "-".join(v),
)
def test_reaches_the_solution(lasso_problem, solution, algorithm, conditions):
    assert_reaches(lasso_problem, algorithm, solution, **conditions)


def test_bias_of_mimelite_falls_with_its_step(lasso_problem, solution):
    errors = [
        final_error(
            lasso_problem,
            MimeLite(local_steps=5, local_lr=lr),
            solution,
            rounds=4000,
            batch_size=None,
        )
        for lr in (0.02, 0.01)
    ]
    assert errors[0] > 1e-3
    np.testing.assert_allclose(errors[0] / errors[1], 2.0, rtol=0.1)


def test_bias_of_stem_falls_with_the_weight_of_new_gradients(lasso_problem, solution):
    errors = [
        final_error(
            lasso_problem,
            STEM(gradient_weight=a, local_steps=5, local_lr=0.02),
            solution,
            rounds=4000,
            batch_size=None,
        )
        for a in (0.04, 0.02)
    ]
    assert errors[0] > 5e-4
    np.testing.assert_allclose(errors[0] / errors[1], 2.0, rtol=0.1)


def test_drift_of_fedavg_m_is_proportional_to_the_gradient_weight(lasso_problem):
    hessian, linear = quadratic(lasso_problem)
    solution = np.linalg.solve(hessian, linear)
    steps = dict(local_steps=5, local_lr=0.01)
    fedavg = distance(lasso_problem, None, cfl.FedAvg(**steps), solution, rounds=4000)
    assert fedavg > 1e-3
    for b in (0.4, 0.2, 0.1):
        algorithm = FedAvgM(gradient_weight=b, **steps)
        error = distance(lasso_problem, None, algorithm, solution, rounds=4000)
        np.testing.assert_allclose(error / fedavg, b, rtol=0.1)
