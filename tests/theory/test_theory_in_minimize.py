"""local_lr="theory" takes all step sizes from the theorem; numbers outside it get a note."""

import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms.base import wants_theory


def test_minimize_with_theory_steps(lasso_problem):
    constants = cfl.theory.estimate(lasso_problem, cfl.L1(0.1), batch_size=4).constants()
    expected = cfl.theory.stepsizes(cfl.FedNMap, constants, rounds=30, local_steps=3, batch_size=4)
    algorithm = cfl.FedNMap(local_steps=3, local_lr="theory")
    assert wants_theory(algorithm)
    options = dict(rounds=30, batch_size=4, progress=False)
    by_theory = cfl.minimize(lasso_problem, cfl.L1(0.1), algorithm, constants=constants, **options)
    by_hand = cfl.minimize(
        lasso_problem,
        cfl.L1(0.1),
        cfl.FedNMap(
            local_steps=3,
            local_lr=expected.local_lr,
            server_lr=expected.server_lr,
            gamma=expected.gamma,
        ),
        **options,
    )
    np.testing.assert_array_equal(by_theory.params, by_hand.params)
    assert by_theory.history.psi.iloc[-1] < by_theory.history.psi.iloc[0]


def test_numbers_outside_get_a_note_and_run(lasso_problem):
    constants = cfl.theory.estimate(lasso_problem, cfl.L1(0.1), batch_size=4).constants()
    algorithm = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05)
    with pytest.warns(RuntimeWarning, match="Theorem 5"):
        cfl.minimize(
            lasso_problem,
            cfl.L1(0.1),
            algorithm,
            rounds=2,
            batch_size=4,
            constants=constants,
            progress=False,
        )


def test_only_theory_is_a_word(lasso_problem):
    with pytest.raises(cfl.CompositeFLError, match="local_lr='big' must be a number"):
        cfl.FedNMap(local_steps=3, local_lr="big")
    algorithm = cfl.FedAvg(local_steps=3, local_lr="theory")
    with pytest.raises(cfl.CompositeFLError, match="a theorem 'fedavg'"):
        cfl.minimize(lasso_problem, None, algorithm, rounds=2, progress=False)
    with pytest.raises(cfl.CompositeFLError, match="understood by minimize alone"):
        cfl.sweep(
            lasso_problem,
            cfl.L1(0.1),
            cfl.FedNMap(local_steps=3, local_lr="theory"),
            {"gamma": [1.0]},
            rounds=2,
            progress=False,
        )
