"""Methods with one gradient per client and round: identities, coins, limits."""

import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms import (
    EControlDA,
    ProxSkip,
    RandomK,
    TopK,
)
from tests.algorithms.helpers import (
    ALL_SAMPLES,
    WEIGHT,
    assert_equal,
    solve,
    started_at_prox,
)
from tests.problems import centralised_solution
from tests.reference import (
    one_step,
)
from tests.reference.losses import LeastSquares


def test_norm_sgd_with_step_gamma_is_prox_sgd_from_its_prox(lasso_problem):
    phi = cfl.ElasticNet(0.05, 0.1)
    moved = started_at_prox(lasso_problem, phi, 0.2)
    a = solve(lasso_problem, phi, cfl.NormSGD(lr=0.2, gamma=0.2))
    assert_equal(a.params, solve(moved, phi, cfl.ProxSGD(lr=0.2)).params)


def test_proxskip_that_never_skips_is_pgd(lasso_problem):
    phi = cfl.ElasticNet(0.05, 0.1)
    a = solve(lasso_problem, phi, ProxSkip(lr=0.2, prox_probability=1.0), batch_size=None)
    assert_equal(a.params, solve(lasso_problem, phi, cfl.PGD(lr=0.2)).params)


def test_proxskip_between_two_proxes(lasso_problem):
    """The twin's x itself, also in rounds without a prox."""
    f = LeastSquares(lasso_problem, None, seed=11)
    pairs = list(one_step.proxskip(f, lasso_problem.params, WEIGHT, step=0.2, p=0.4, rounds=12))
    skipped = 0
    for stop, (x, last) in enumerate(pairs, 1):
        result = solve(
            lasso_problem,
            cfl.L1(WEIGHT),
            ProxSkip(lr=0.2, prox_probability=0.4),
            rounds=stop,
            batch_size=None,
            seed=11,
        )
        np.testing.assert_allclose(result.server.x, x, rtol=0, atol=1e-12)
        skipped += not np.array_equal(x, last)
    assert 3 < skipped < 12


def test_coins_of_proxskip_differ_between_trials_and_seeds(lasso_problem):
    algorithm = ProxSkip(lr=0.2, prox_probability=0.5)
    options = dict(rounds=10, batch_size=None)
    a = solve(lasso_problem, cfl.L1(WEIGHT), algorithm, trials=2, **options).server.x
    b = solve(lasso_problem, cfl.L1(WEIGHT), algorithm, seed=8, **options).server.x
    assert np.abs(a[0] - a[1]).max() > 1e-4
    assert np.abs(a[0] - b).max() > 1e-4


@pytest.mark.parametrize(
    "algorithm",
    [
        EControlDA(lr=0.05, compressor=TopK(2)),
        EControlDA(lr=0.05, compressor=RandomK(2)),
        ProxSkip(lr=0.4, prox_probability=0.3),
        ProxSkip(lr=0.4, prox_probability=0.1),
    ],
    ids=repr,
)
def test_reaches_the_centralised_solution(lasso_problem, algorithm):
    solution = centralised_solution(lasso_problem, 0.1)
    result = solve(lasso_problem, cfl.L1(0.1), algorithm, rounds=2000, **ALL_SAMPLES)
    np.testing.assert_allclose(result.params, solution, atol=1e-9)
    assert np.array_equal(result.params == 0, solution == 0)
