"""Operator splitting and dual variables on the clients: identities, invariants, limits."""

import jax
import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms import (
    FedADMM,
    FedDC,
    FedDR,
    FedDyn,
    FedPD,
    FedSplit,
)
from tests.algorithms.helpers import (
    ALL_SAMPLES,
    FIVE,
    LOCAL,
    PARTIAL,
    assert_equal,
    assert_reaches,
    final_error,
    solve,
)
from tests.problems import centralised_solution


@pytest.mark.parametrize(
    ("phi", "participation"), [(cfl.L1(0.02), 1.0), (cfl.MCP(0.05, 3.0), 3)], ids=["L1", "MCP"]
)
def test_feddr_without_relaxation_is_fedadmm(lasso_problem, phi, participation):
    local = dict(local_steps=4, local_lr=0.1, eta=0.7)
    a = solve(lasso_problem, phi, FedDR(relaxation=1.0, **local), participation=participation)
    b = solve(lasso_problem, phi, FedADMM(**local), participation=participation)
    assert_equal(a.params, b.params)
    assert_equal(a.server.xtilde, b.server.xtilde)
    c = solve(lasso_problem, phi, FedDR(relaxation=1.5, **local), participation=participation)
    assert np.abs(a.params - c.params).max() > 1e-3


def test_fedpd_without_skipping_is_feddyn(lasso_problem):
    """Both solve their local problems exactly, from different starts."""
    exact = dict(local_steps=200, local_lr=0.15)
    a = solve(lasso_problem, None, FedPD(eta=0.8, **exact), batch_size=None)
    b = solve(lasso_problem, None, FedDyn(mu=1.25, **exact), batch_size=None)
    assert_equal(a.params, b.params)


@pytest.mark.parametrize("relaxation", [None, 1.9])
def test_the_server_has_the_mean_of_all_xhat(lasso_problem, relaxation):
    local = dict(local_steps=3, local_lr=0.1, eta=0.7)
    if relaxation is None:
        result = solve(lasso_problem, cfl.L1(0.02), FedADMM(**local), **PARTIAL)
        xhat = jax.tree.map(lambda x, z: x + 0.7 * z, result.clients.x, result.clients.z)
    else:
        algorithm = FedDR(relaxation=relaxation, **local)
        result = solve(lasso_problem, cfl.L1(0.02), algorithm, **PARTIAL)
        xhat = jax.tree.map(lambda x, y: 2 * x - y, result.clients.x, result.clients.y)
    assert_equal(result.server.xtilde, jax.tree.map(lambda a: a.mean(axis=0), xhat))


@pytest.mark.parametrize(
    ("algorithm", "pairs"),
    [(FedDyn(mu=0.7, **LOCAL), "hq"), (FedDC(mu=0.2, **LOCAL), "sshh")],
    ids=["FedDyn", "FedDC"],
)
def test_server_holds_the_means_of_the_clients(lasso_problem, algorithm, pairs):
    conditions = dict(participation=3, dropout=0.2)
    result = solve(lasso_problem, None, algorithm, batch_size=None, **conditions)
    for ours, theirs in zip(pairs[::2], pairs[1::2], strict=True):
        server = getattr(result.server, ours)
        assert np.abs(server).max() > 1e-3
        assert_equal(server, getattr(result.clients, theirs).mean(axis=0))


@pytest.mark.parametrize("participation", [1.0, 2])
@pytest.mark.parametrize(
    "algorithm",
    [
        FedDR(local_steps=40, local_lr=0.1, eta=1.0),
        FedDR(local_steps=3, local_lr=0.1, eta=1.0),
        FedADMM(local_steps=40, local_lr=0.1, eta=1.0),
    ],
    ids=repr,
)
def test_splitting_reaches_the_centralised_solution(lasso_problem, algorithm, participation):
    solution = centralised_solution(lasso_problem, 0.1)
    assert 0 < np.sum(solution == 0) < solution.size
    result = solve(
        lasso_problem,
        cfl.L1(0.1),
        algorithm,
        rounds=800,
        participation=participation,
        **ALL_SAMPLES,
    )
    np.testing.assert_allclose(result.params, solution, atol=1e-9)
    assert np.array_equal(result.params == 0, solution == 0)


@pytest.mark.parametrize(
    ("algorithm", "conditions"),
    [
        (FedPD(eta=1.0, **FIVE), {}),
        (FedPD(eta=1.0, **FIVE), {"stragglers": 0.4}),
        (FedDyn(mu=1.0, **FIVE), {}),
        (FedDyn(mu=1.0, **FIVE), {"participation": 3, "dropout": 0.2}),
        (FedDC(mu=0.1, **FIVE), {}),
        (FedDC(mu=0.1, **FIVE), {"participation": 3, "dropout": 0.2}),
        (FedSplit(eta=1.0, **FIVE), {}),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, dict) else "-".join(v),
)
def test_reaches_the_solution(lasso_problem, solution, algorithm, conditions):
    assert_reaches(lasso_problem, algorithm, solution, **conditions)


@pytest.mark.parametrize(
    "algorithm",
    [
        FedPD(eta=1.0, composite="server-prox", **FIVE),
        FedDyn(mu=1.0, composite="server-prox", **FIVE),
        FedDC(mu=0.5, composite="server-prox", **FIVE),
        FedSplit(eta=1.0, composite="server-prox", **FIVE),
    ],
    ids=lambda a: type(a).__name__,
)
def test_prox_on_the_server_reaches_the_lasso_solution(lasso_problem, algorithm):
    solution = centralised_solution(lasso_problem, 0.1)
    assert 0 < np.sum(solution == 0) < solution.size
    result = solve(lasso_problem, cfl.L1(0.1), algorithm, rounds=1500, batch_size=None)
    np.testing.assert_allclose(result.params, solution, atol=1e-10)
    assert np.array_equal(result.params == 0, solution == 0)


def test_error_of_fedpd_falls_with_skipping(lasso_problem, solution):
    errors = [
        final_error(
            lasso_problem,
            FedPD(eta=1.0, skip=skip, **FIVE),
            solution,
            trials=48,
            rounds=300,
            batch_size=None,
        )
        for skip in (0.4, 0.1, 0.02)
    ]
    assert errors[0] > 2 * errors[1] > 4 * errors[2] > 0
