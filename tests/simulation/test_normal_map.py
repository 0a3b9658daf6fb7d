"""The normal map of the history is the method's own where it has a z."""

import jax
import numpy as np
import pytest

import compositefl as cfl
from compositefl.core.component import replace
from compositefl.core.vector import Vector
from compositefl.problem import External
from tests.problems import lasso

WEIGHT, GAMMA, EVAL_GAMMA = 0.1, 0.7, 0.4
RUN = dict(rounds=6, eval_every=6, eval_gamma=EVAL_GAMMA, dtype="float64", progress=False)
PROBLEM = lasso(clients=3)


def gradient(w):
    return np.mean([a.T @ (a @ w - b) / len(b) for a, b in PROBLEM.clients], axis=0)


class OutsideJAX(External):
    """The squared loss as numpy computes it, for the loop."""

    def __call__(self, params, batch):
        return self.value_and_gradient(params, batch)[0]

    def value_and_gradient(self, params, batch):
        x, y = batch
        rest = x @ params - y
        return 0.5 * np.mean(rest**2), x.T @ rest / len(y)


OUTSIDE = cfl.Problem(OutsideJAX(), PROBLEM.params, PROBLEM.clients)


@pytest.mark.parametrize("problem", [PROBLEM, OUTSIDE], ids=["compiled", "loop"])
@pytest.mark.parametrize(
    "algorithm",
    [cfl.FedNMap(gamma=GAMMA, local_steps=3, local_lr=0.05), cfl.NormSGD(lr=0.1, gamma=GAMMA)],
    ids=["fednmap", "norm-sgd"],
)
def test_own_point(problem, algorithm):
    result = cfl.minimize(problem, cfl.L1(WEIGHT), algorithm, **RUN)
    z, x = result.server.z, result.params
    want = np.sum((gradient(x) + (z - x) / GAMMA) ** 2)
    np.testing.assert_allclose(result.history.normal_map_sq.iloc[-1], want)
    # F_nor(z) is a subgradient of psi at x, so it bounds the natural residual (convex phi).
    assert np.all(result.history.natural_residual_sq <= result.history.normal_map_sq * (1 + 1e-12))


@pytest.mark.parametrize("problem", [PROBLEM, OUTSIDE], ids=["compiled", "loop"])
def test_common_point_for_methods_without_one(problem):
    result = cfl.minimize(problem, cfl.L1(WEIGHT), cfl.PGD(lr=0.1), **RUN)
    x = result.params
    z = x - EVAL_GAMMA * gradient(x)
    x_z = np.sign(z) * np.maximum(np.abs(z) - EVAL_GAMMA * WEIGHT, 0)
    want = np.sum((gradient(x_z) + (z - x_z) / EVAL_GAMMA) ** 2)
    np.testing.assert_allclose(result.history.normal_map_sq.iloc[-1], want)


def test_no_second_gradient_where_the_point_is_known():
    class Counting(OutsideJAX):
        calls = 0

        def value_and_gradient(self, params, batch):
            Counting.calls += 1
            return super().value_and_gradient(params, batch)

    problem = cfl.Problem(Counting(), PROBLEM.params, PROBLEM.clients)
    counts = {}
    for algorithm in (cfl.NormSGD(lr=0.1), cfl.ProxSGD(lr=0.1)):
        Counting.calls = 0
        cfl.minimize(problem, cfl.L1(WEIGHT), algorithm, **RUN)
        counts[type(algorithm)] = Counting.calls
    clients, evaluations, rounds = 3, 2, RUN["rounds"]
    assert counts[cfl.NormSGD] == clients * (rounds + evaluations)
    assert counts[cfl.ProxSGD] == clients * (rounds + 2 * evaluations)


def test_points_are_those_of_the_model():
    x0 = Vector(np.linspace(-1, 1, 5))
    for algorithm in (cfl.FedNMap(local_steps=1, local_lr=0.1), cfl.NormSGD(lr=0.1)):
        algorithm = replace(algorithm, regularizer=cfl.L1(0.3), gamma=0.5)
        server = algorithm.init_server(x0)
        z, gamma = algorithm.normal_map_point(server)
        np.testing.assert_allclose(
            jax.device_get(algorithm.prox(z, gamma).tree), algorithm.model(server).tree
        )
