"""Runs in float64 and comparisons that the tests of the methods share."""

import jax
import numpy as np

import compositefl as cfl

WEIGHT = 0.05
SEED = 11
LOCAL = dict(local_steps=4, local_lr=0.03)
STEPS = dict(server_lr=1.5, **LOCAL)
ONE_STEP = dict(local_steps=1, local_lr=0.1, server_lr=2.0)
FIVE = dict(local_steps=5, local_lr=0.05)
ALL_SAMPLES = dict(batch_size=None)
PARTIAL = dict(participation=3, dropout=0.3)


# One device: its programs compile sooner. test_trajectories.py and tests/simulation use all.
RUN = dict(rounds=12, batch_size=4, seed=SEED, dtype="float64", devices=1, progress=False)


def solve(problem, phi, algorithm, **options):
    options = RUN | options
    return cfl.minimize(problem, phi, algorithm, **{"eval_every": options["rounds"]} | options)


def assert_equal(a, b, tolerance=1e-10):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=tolerance), a, b)


def started_at_prox(problem, phi, t):
    with jax.enable_x64(True):
        start = jax.tree.map(np.asarray, phi.prox(problem.start("float64"), t))
    return cfl.Problem(problem.loss, start, problem.clients)


def quadratic(problem):
    """Hessian and linear term of the mean loss."""
    hessian = np.mean([a.T @ a / len(b) for a, b in problem.clients], axis=0)
    return hessian, np.mean([a.T @ b / len(b) for a, b in problem.clients], axis=0)


def distance(problem, phi, algorithm, solution, **options):
    result = solve(problem, phi, algorithm, **ALL_SAMPLES | options)
    return np.linalg.norm(result.params - solution)


def final_error(problem, algorithm, solution, trials=1, **options):
    """Distance of the last model from the solution, mean over the trials."""
    result = solve(problem, None, algorithm, trials=trials, **options)
    return np.mean(np.linalg.norm(np.atleast_2d(result.params) - solution, axis=1))


def assert_reaches(problem, algorithm, solution, **conditions):
    """Without a regulariser, from a start that is far away."""
    result = solve(problem, None, algorithm, **dict(rounds=2500, **ALL_SAMPLES) | conditions)
    assert np.linalg.norm(problem.params - solution) > 0.5
    np.testing.assert_allclose(result.params, solution, atol=1e-10)
