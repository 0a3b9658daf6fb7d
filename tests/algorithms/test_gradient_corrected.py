"""Methods with gradient correction: identities, invariants, limits."""

import jax
import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms import (
    VRLSGD,
    FedDC,
    Scaffnew,
    ScaffoldI,
    ScaffoldM,
)
from compositefl.algorithms.geometric import geometric
from tests.algorithms.helpers import (
    ALL_SAMPLES,
    FIVE,
    LOCAL,
    ONE_STEP,
    PARTIAL,
    STEPS,
    assert_equal,
    assert_reaches,
    quadratic,
    solve,
    started_at_prox,
)
from tests.problems import centralised_solution

ETA_HAT = 4 * 0.03 * 1.5


@pytest.mark.parametrize(
    "algorithm",
    [cfl.FedNMap(gamma=0.3, **STEPS), cfl.ZA1(**STEPS), cfl.FedCanon(**STEPS)],
    ids=lambda a: type(a).__name__,
)
def test_without_regularizer_all_are_scaffold(network_problem, algorithm):
    reference = solve(network_problem, None, cfl.Scaffold(**STEPS))
    assert_equal(solve(network_problem, None, algorithm).params, reference.params)


@pytest.mark.parametrize(
    "algorithm",
    [VRLSGD(**LOCAL), Scaffnew(random=False, **LOCAL), FedDC(mu=0.0, drift=False, **LOCAL)],
    ids=lambda a: type(a).__name__,
)
def test_these_are_scaffold(lasso_problem, algorithm):
    reference = solve(lasso_problem, None, cfl.Scaffold(**LOCAL))
    assert_equal(solve(lasso_problem, None, algorithm).params, reference.params)


def test_vrl_sgd_is_scaffold_with_the_prox_on_the_server_too(lasso_problem):
    phi, variant = cfl.L1(0.05), dict(composite="server-prox", **LOCAL)
    moved = started_at_prox(lasso_problem, phi, 0.12)
    reference = solve(moved, phi, cfl.Scaffold(**variant))
    assert_equal(solve(lasso_problem, phi, VRLSGD(**variant)).params, reference.params)


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
def test_one_local_step_is_prox_sgd(lasso_problem, algorithm):
    phi = cfl.MCP(0.05, 3.0)
    reference = solve(lasso_problem, phi, cfl.ProxSGD(lr=0.2))
    assert_equal(solve(lasso_problem, phi, algorithm).params, reference.params)


def test_za1_with_one_local_step_is_prox_sgd_from_its_prox(lasso_problem):
    phi = cfl.L1(0.05)
    moved = started_at_prox(lasso_problem, phi, 0.2)
    a = solve(lasso_problem, phi, cfl.ZA1(**ONE_STEP))
    assert_equal(a.params, solve(moved, phi, cfl.ProxSGD(lr=0.2)).params)


def test_fednmap_with_one_local_step_is_norm_sgd(lasso_problem):
    phi = cfl.SCAD(0.05)
    a = solve(lasso_problem, phi, cfl.FedNMap(gamma=1.5, **ONE_STEP))
    b = solve(lasso_problem, phi, cfl.NormSGD(lr=0.2, gamma=1.5))
    assert_equal(a.params, b.params)


def test_fedcanon2_has_the_iterates_of_fedcanon(lasso_problem):
    phi = cfl.MCP(0.05, 3.0)
    a = solve(lasso_problem, phi, cfl.FedCanon(**STEPS))
    b = solve(lasso_problem, phi, cfl.FedCanonII(**STEPS))
    assert_equal(a.params, b.params)


@pytest.mark.parametrize("participation", [1.0, 3])
@pytest.mark.parametrize(
    "algorithm",
    [cfl.FedNMap(gamma=0.5, **STEPS), cfl.Scaffold(**STEPS), cfl.FedCanon(**STEPS)],
    ids=lambda a: type(a).__name__,
)
def test_control_is_the_mean_of_the_clients(lasso_problem, algorithm, participation):
    phi = None if isinstance(algorithm, cfl.Scaffold) else cfl.L1(0.02)
    result = solve(lasso_problem, phi, algorithm, participation=participation)
    mean = jax.tree.map(lambda a: a.mean(axis=0), result.clients[0])
    control = result.server[-1]
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(control)) > 1e-3
    assert_equal(control, mean)


def test_weighted_control_is_the_weighted_mean(lasso_problem):
    algorithm = cfl.FedNMap(gamma=0.5, **STEPS)
    result = solve(lasso_problem, cfl.L1(0.02), algorithm, participation=3, weights="size")
    w = lasso_problem.sizes / lasso_problem.sizes.sum()
    mean = jax.tree.map(lambda a: np.tensordot(w, a, 1), result.clients.h)
    assert_equal(result.server.cbar, mean)


@pytest.mark.parametrize("algorithm", [ScaffoldI(**STEPS), ScaffoldM(**STEPS)])
def test_the_server_has_the_mean_of_all_controls(lasso_problem, algorithm):
    result = solve(lasso_problem, None, algorithm, **PARTIAL)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(result.server.c)) > 1e-3
    assert_equal(result.server.c, jax.tree.map(lambda a: a.mean(axis=0), result.clients.c))


def test_za1_corrections_sum_to_zero(lasso_problem):
    algorithm = cfl.ZA1(**STEPS)
    result = solve(lasso_problem, cfl.L1(0.02), algorithm)
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


@pytest.mark.parametrize("participation", [1.0, 3])
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
    ("algorithm", "conditions"),
    [
        (Scaffnew(**FIVE), {}),
        (VRLSGD(**FIVE), {}),
        (VRLSGD(**FIVE), {"stragglers": 0.4}),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, dict) else "-".join(v),
)
def test_reaches_the_solution(lasso_problem, solution, algorithm, conditions):
    assert_reaches(lasso_problem, algorithm, solution, **conditions)


@pytest.mark.parametrize(
    "algorithm",
    [
        ScaffoldI(local_steps=5, local_lr=0.02),
        ScaffoldM(local_steps=5, local_lr=0.02, gradient_weight=0.3),
    ],
    ids=repr,
)
def test_control_variates_reach_the_solution_with_sampled_clients(lasso_problem, algorithm):
    hessian, linear = quadratic(lasso_problem)
    result = solve(lasso_problem, None, algorithm, rounds=4000, participation=3, **ALL_SAMPLES)
    np.testing.assert_allclose(result.params, np.linalg.solve(hessian, linear), atol=1e-9)


@pytest.mark.parametrize("kind", [ScaffoldI, ScaffoldM])
def test_subgradient_variant_solves_a_smooth_composite_problem(lasso_problem, kind):
    hessian, linear = quadratic(lasso_problem)
    algorithm = kind(local_steps=5, local_lr=0.02, composite="subgradient")
    result = solve(lasso_problem, cfl.SquaredL2(0.2), algorithm, rounds=4000, **ALL_SAMPLES)
    ridge = np.linalg.solve(hessian + 2 * 0.2 * np.eye(8), linear)
    np.testing.assert_allclose(result.params, ridge, atol=1e-9)


def test_round_lengths_are_geometric():
    keys = jax.random.split(jax.random.key(0), 40000)
    for p in (0.2, 0.7):
        draws = np.asarray(jax.vmap(geometric, in_axes=(0, None))(keys, p))
        for k in (1, 2, 5):
            share = p * (1 - p) ** (k - 1)
            assert abs(np.mean(draws == k) - share) < 5 * np.sqrt(share / 40000)
        assert draws.min() == 1
        assert abs(draws.mean() - 1 / p) < 5 * np.sqrt((1 - p) / 40000) / p
    assert np.all(np.asarray(jax.vmap(geometric, in_axes=(0, None))(keys, 1.0)) == 1)
