"""Proximal points of smooth losses: identities, bias, accuracy of the local solves."""

import numpy as np

import compositefl as cfl
from compositefl.algorithms import (
    FedMSPP,
    FedProx,
)
from tests.algorithms.helpers import (
    LOCAL,
    assert_equal,
    final_error,
    solve,
)


def test_fedprox_without_penalty_is_fedavg(lasso_problem):
    reference = solve(lasso_problem, None, cfl.FedAvg(**LOCAL))
    result = solve(lasso_problem, None, FedProx(eta=float("inf"), **LOCAL))
    assert_equal(result.params, reference.params)
    other = solve(lasso_problem, None, FedProx(eta=1.0, **LOCAL))
    assert np.abs(other.params - reference.params).max() > 1e-4


def test_fedmspp_with_full_batches_is_fedprox(lasso_problem):
    options = dict(eta=0.5, accuracy=0.5, local_steps=20, local_lr=0.03)
    a = solve(lasso_problem, None, FedMSPP(**options), batch_size=None)
    b = solve(lasso_problem, None, FedProx(**options), batch_size=None)
    assert_equal(a.params, b.params)


def test_bias_of_fedprox_falls_with_eta(lasso_problem, solution):
    errors = []
    for eta in (0.02, 0.01, 0.005):
        algorithm = FedProx(eta=eta, accuracy=1e-6, local_steps=100, local_lr=1 / (4 + 1 / eta))
        result = solve(lasso_problem, None, algorithm, rounds=5000, batch_size=None)
        assert result.server.unsolved == 0
        errors.append(np.linalg.norm(result.params - solution))
    assert errors[0] > 1e-3
    np.testing.assert_allclose(np.array(errors[:-1]) / errors[1:], 2.0, rtol=0.1)


def test_error_of_fedmspp_falls_with_eta(lasso_problem, solution):
    errors = [
        final_error(
            lasso_problem,
            FedMSPP(eta=eta, local_steps=30, local_lr=1 / (8 + 1 / eta)),
            solution,
            trials=16,
            rounds=round(20 / eta),
            batch_size=5,
        )
        for eta in (0.4, 0.1, 0.025)
    ]
    assert errors[0] > 1.5 * errors[1] > 1.5**2 * errors[2]


def test_accuracy_of_fedprox_is_checked(lasso_problem):
    """One client: the model after a round is its local solution."""
    a, b = lasso_problem.clients[1]
    alone = cfl.Problem(lasso_problem.loss, lasso_problem.params, [(a, b)])
    x, eta, accuracy = lasso_problem.params, 0.5, 0.05
    options = dict(eta=eta, accuracy=accuracy, local_lr=0.1)

    def ratio(u):
        slope = a.T @ (a @ u - b) / len(b) + (u - x) / eta
        return np.linalg.norm(slope) / np.linalg.norm(a.T @ (a @ x - b) / len(b))

    result = solve(alone, None, FedProx(local_steps=1000, **options), rounds=1, batch_size=None)
    assert ratio(result.params) <= accuracy and result.server.unsolved == 0
    made = int(result.history.gradients.iloc[-1])
    assert 3 < made < 1000  # the last of them only checks
    cut = FedProx(local_steps=made - 2, **options)
    result = solve(alone, None, cut, rounds=1, batch_size=None)
    assert ratio(result.params) > accuracy and result.server.unsolved == 1
