"""Rounds on demand follow the trajectory of `minimize`."""

import numpy as np
import pytest

import compositefl as cfl
from compositefl.solve.trajectory import Trajectory

ALGORITHM = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05)
OPTIONS = dict(batch_size=4, seed=3, dtype="float64", participation=3)


def test_models_are_those_of_minimize(lasso_problem):
    trajectory = Trajectory(lasso_problem, cfl.L1(0.05), ALGORITHM, trials=2, **OPTIONS)
    for stop in (2, 5):
        trajectory.advance(stop)
        assert trajectory.round == stop
        whole = cfl.minimize(
            lasso_problem,
            cfl.L1(0.05),
            ALGORITHM,
            rounds=stop,
            trials=2,
            progress=False,
            **OPTIONS,
        )
        np.testing.assert_array_equal(trajectory.models(), whole.params)


def test_the_methods_own_regularizer_counts(lasso_problem):
    """And one given in words, as for `minimize`."""
    own = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05, regularizer=cfl.L1(0.5))
    for phi, algorithm in ((None, own), ("l1:0.5", ALGORITHM)):
        trajectory = Trajectory(lasso_problem, phi, algorithm, **OPTIONS)
        trajectory.advance(5)
        whole = cfl.minimize(lasso_problem, phi, algorithm, rounds=5, progress=False, **OPTIONS)
        np.testing.assert_array_equal(trajectory.models()[0], whole.params)
        assert np.mean(whole.params == 0) > 0


def test_what_minimize_refuses_is_refused(lasso_problem):
    with pytest.raises(cfl.CompositeFLError, match=r"gamma=3.0 must be in"):
        algorithm = cfl.FedNMap(gamma=3.0, local_steps=2, local_lr=0.1)
        Trajectory(lasso_problem, cfl.MCP(0.1, 3.0), algorithm)
