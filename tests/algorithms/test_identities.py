"""Identities between methods (float64, same samples), fixed points, invariants, costs."""

import jax
import numpy as np
import pytest

import compositefl as cfl
from compositefl.engine.accounting import round_cost
from problems import centralised_solution

STEPS = dict(local_steps=4, local_lr=0.03, server_lr=1.5)
ETA_HAT = 4 * 0.03 * 1.5


def solve(problem, phi, algorithm, **options):
    options = dict(rounds=15, batch_size=4, seed=7, dtype="float64", progress=False) | options
    return cfl.minimize(problem, phi, algorithm, **options)


def started_at_prox(problem, phi, t):
    with jax.enable_x64(True):
        start = jax.tree.map(np.asarray, phi.prox(problem.start("float64"), t))
    return cfl.Problem(problem.loss, start, problem.clients)


def assert_equal(a, b, tolerance=1e-10):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=tolerance), a, b)


@pytest.mark.parametrize(
    "algorithm",
    [cfl.FedNMap(gamma=0.3, **STEPS), cfl.ZA1(**STEPS), cfl.FedCanon(**STEPS)],
    ids=lambda a: type(a).__name__,
)
def test_without_regularizer_all_are_scaffold(network_problem, algorithm):
    reference = solve(network_problem, None, cfl.Scaffold(**STEPS))
    assert_equal(solve(network_problem, None, algorithm).params, reference.params)


@pytest.mark.parametrize("algorithm", [cfl.FedMiD(**STEPS), cfl.FedDA(**STEPS)])
def test_without_regularizer_fedmid_and_fedda_are_fedavg(network_problem, algorithm):
    reference = solve(network_problem, None, cfl.FedAvg(**STEPS))
    assert_equal(solve(network_problem, None, algorithm).params, reference.params)


ONE_STEP = dict(local_steps=1, local_lr=0.1, server_lr=2.0)


@pytest.mark.parametrize(
    "algorithm",
    [
        cfl.FedCanon(**ONE_STEP),
        cfl.FedMiD(prox_at="server", **ONE_STEP),
        cfl.FedAvg(composite="server-prox", **ONE_STEP),
        cfl.Scaffold(composite="server-prox", **ONE_STEP),
    ],
    ids=lambda a: type(a).__name__,
)
def test_one_local_step_is_prox_sgd(network_problem, algorithm):
    phi = cfl.MCP(0.05, 3.0)
    reference = solve(network_problem, phi, cfl.ProxSGD(lr=0.2))
    assert_equal(solve(network_problem, phi, algorithm).params, reference.params)


def test_za1_with_one_local_step_is_prox_sgd_from_its_prox(network_problem):
    phi = cfl.L1(0.05)
    moved = started_at_prox(network_problem, phi, 0.2)
    a = solve(network_problem, phi, cfl.ZA1(**ONE_STEP))
    assert_equal(a.params, solve(moved, phi, cfl.ProxSGD(lr=0.2)).params)


def test_fednmap_with_one_local_step_is_norm_sgd(network_problem):
    phi = cfl.SCAD(0.05)
    a = solve(network_problem, phi, cfl.FedNMap(gamma=1.5, **ONE_STEP))
    b = solve(network_problem, phi, cfl.NormSGD(lr=0.2, gamma=1.5))
    assert_equal(a.params, b.params)


def test_norm_sgd_with_step_gamma_is_prox_sgd_from_its_prox(network_problem):
    phi = cfl.ElasticNet(0.05, 0.1)
    moved = started_at_prox(network_problem, phi, 0.2)
    a = solve(network_problem, phi, cfl.NormSGD(lr=0.2, gamma=0.2))
    assert_equal(a.params, solve(moved, phi, cfl.ProxSGD(lr=0.2)).params)


def test_fedcanon2_has_the_iterates_of_fedcanon(network_problem):
    phi = cfl.MCP(0.05, 3.0)
    a = solve(network_problem, phi, cfl.FedCanon(**STEPS))
    b = solve(network_problem, phi, cfl.FedCanonII(**STEPS))
    assert_equal(a.params, b.params)


@pytest.mark.parametrize("participation", [1.0, 2, 3])
@pytest.mark.parametrize(
    "algorithm",
    [cfl.FedNMap(gamma=0.5, **STEPS), cfl.Scaffold(**STEPS), cfl.FedCanon(**STEPS)],
    ids=lambda a: type(a).__name__,
)
def test_control_is_the_mean_of_the_clients(network_problem, algorithm, participation):
    phi = None if isinstance(algorithm, cfl.Scaffold) else cfl.L1(0.02)
    result = solve(network_problem, phi, algorithm, participation=participation)
    mean = jax.tree.map(lambda a: a.mean(axis=0), result.clients[0])
    control = result.server[-1]
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(control)) > 1e-3
    assert_equal(control, mean)


def test_weighted_control_is_the_weighted_mean(network_problem):
    algorithm = cfl.FedNMap(gamma=0.5, **STEPS)
    result = solve(network_problem, cfl.L1(0.02), algorithm, participation=3, weights="size")
    w = network_problem.sizes / network_problem.sizes.sum()
    mean = jax.tree.map(lambda a: np.tensordot(w, a, 1), result.clients.h)
    assert_equal(result.server.cbar, mean)


def test_za1_corrections_sum_to_zero(network_problem):
    algorithm = cfl.ZA1(**STEPS)
    result = solve(network_problem, cfl.L1(0.02), algorithm)
    for p, h, xbar in zip(
        *map(jax.tree.leaves, (result.clients.p, result.clients.h, result.server.xbar)), strict=True
    ):
        c = (p - xbar) / ETA_HAT - h
        assert np.abs(c).max() > 1e-3
        np.testing.assert_allclose(c.mean(axis=0), 0.0, atol=1e-10)


def test_equation_9(lasso_problem):
    """mean_i y_i = mean gradient + (z_t - x_t)/gamma, with y read off two server states."""
    algorithm = cfl.FedNMap(gamma=0.5, **STEPS)
    before = solve(lasso_problem, cfl.L1(0.05), algorithm, rounds=8)
    after = solve(lasso_problem, cfl.L1(0.05), algorithm, rounds=9)
    mean_upload = (before.server.z - after.server.z) / ETA_HAT
    gradient = after.clients.h.mean(axis=0)
    normal = (before.server.z - before.server.x) / 0.5
    np.testing.assert_allclose(mean_upload, gradient + normal, atol=1e-10)


@pytest.mark.parametrize("participation", [1.0, 3, 2])
def test_fednmap_reaches_the_centralised_solution(lasso_problem, participation):
    weight = 0.1
    solution = centralised_solution(lasso_problem, weight)
    assert 0 < np.sum(solution == 0) < solution.size
    algorithm = cfl.FedNMap(gamma=0.5, local_steps=5, local_lr=0.02)
    result = solve(
        lasso_problem,
        cfl.L1(weight),
        algorithm,
        rounds=6000,
        batch_size=None,
        participation=participation,
        eval_every=6000,
    )
    np.testing.assert_allclose(result.params, solution, atol=1e-9)
    assert np.array_equal(result.params == 0, solution == 0)


def test_za1_reaches_the_centralised_solution(lasso_problem):
    solution = centralised_solution(lasso_problem, 0.1)
    algorithm = cfl.ZA1(local_steps=5, local_lr=0.02)
    result = solve(
        lasso_problem, cfl.L1(0.1), algorithm, rounds=4000, batch_size=None, eval_every=4000
    )
    np.testing.assert_allclose(result.params, solution, atol=1e-9)


def test_bias_of_fedcanon_is_proportional_to_its_local_step(lasso_problem):
    solution = centralised_solution(lasso_problem, 0.1)
    errors = []
    for local_lr in (0.02, 0.01, 0.005):
        algorithm = cfl.FedCanon(local_steps=5, local_lr=local_lr, server_lr=0.02 / local_lr)
        result = solve(
            lasso_problem, cfl.L1(0.1), algorithm, rounds=4000, batch_size=None, eval_every=4000
        )
        errors.append(np.linalg.norm(result.params - solution))
    assert errors[0] > 1e-3
    np.testing.assert_allclose(np.array(errors[:-1]) / errors[1:], 2.0, rtol=0.1)


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


# vectors down, vectors up, prox on a client (as a function of Q), prox on the server
COSTS = {
    cfl.FedNMap: (2, 1, lambda q: q, 1),
    cfl.ZA1: (1, 1, lambda q: q + 1, 1),
    cfl.FedCanon: (2, 1, lambda q: 0, 1),
    cfl.FedMiD: (1, 1, lambda q: q, 1),
    cfl.FedDA: (1, 1, lambda q: q, 1),
    cfl.Scaffold: (2, 2, lambda q: 0, 0),
    cfl.FedAvg: (1, 1, lambda q: 0, 0),
}


@pytest.mark.parametrize("kind", COSTS, ids=lambda k: k.__name__)
def test_costs_match_the_overview_table(kind):
    down, up, prox_client, prox_server = COSTS[kind]
    x0 = {"a": np.zeros((30, 4), np.float32), "b": np.zeros(7, np.float32)}
    cost = round_cost(kind(local_steps=9, local_lr=0.1), x0)
    vector = 127 * 4
    assert cost.bytes_down // vector == down
    assert cost.bytes_down % vector in (0, 4)  # FedDA sends its clock along
    assert cost.bytes_up == up * vector
    assert cost.prox_client == prox_client(9)
    assert cost.prox_server == prox_server
    assert cost.steps == 9 and cost.gradients_step == 1 and cost.gradients_visit == 0
