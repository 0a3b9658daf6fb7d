"""Every method against its plain NumPy twin, with the same samples, in float64."""

import numpy as np
import pytest

import compositefl as cfl
import plain

WEIGHT = 0.05
STEPS = dict(local_steps=4, local_lr=0.03, server_lr=1.5)
PLAIN = dict(Q=4, ea=0.03, es=1.5)

METHODS = {
    "fednmap": (
        cfl.FedNMap(gamma=0.7, **STEPS),
        lambda f, x, T: plain.fednmap(f, x, WEIGHT, gamma=0.7, rounds=T, **PLAIN),
    ),
    "za1": (cfl.ZA1(**STEPS), lambda f, x, T: plain.za1(f, x, WEIGHT, rounds=T, **PLAIN)),
    "fedcanon": (
        cfl.FedCanon(**STEPS),
        lambda f, x, T: plain.fedcanon(f, x, WEIGHT, rounds=T, **PLAIN),
    ),
    "fedcanon2": (
        cfl.FedCanonII(**STEPS),
        lambda f, x, T: plain.fedcanon(f, x, WEIGHT, rounds=T, **PLAIN),
    ),
    "fedmid": (cfl.FedMiD(**STEPS), lambda f, x, T: plain.fedmid(f, x, WEIGHT, rounds=T, **PLAIN)),
    "fedda": (cfl.FedDA(**STEPS), lambda f, x, T: plain.fedda(f, x, WEIGHT, rounds=T, **PLAIN)),
    "prox-sgd": (
        cfl.ProxSGD(lr=0.2),
        lambda f, x, T: plain.prox_sgd(f, x, WEIGHT, step=0.2, rounds=T),
    ),
    "norm-sgd": (
        cfl.NormSGD(lr=0.2, gamma=0.7),
        lambda f, x, T: plain.norm_sgd(f, x, WEIGHT, step=0.2, gamma=0.7, rounds=T),
    ),
}


@pytest.mark.parametrize("batch_size", [None, 5])
@pytest.mark.parametrize("name", METHODS)
def test_trajectory(name, batch_size, lasso_problem):
    algorithm, twin = METHODS[name]
    rounds = 12
    f = plain.LeastSquares(lasso_problem, batch_size, seed=11)
    models = list(twin(f, lasso_problem.params, rounds))
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
    f = plain.LeastSquares(lasso_problem, 5, seed=2)
    models = list(plain.scaffold(f, lasso_problem.params, rounds=10, **PLAIN))
    result = cfl.minimize(
        lasso_problem,
        None,
        cfl.Scaffold(**STEPS),
        rounds=10,
        batch_size=5,
        seed=2,
        dtype="float64",
        progress=False,
    )
    np.testing.assert_allclose(result.params, models[-1], rtol=0, atol=1e-12)
