"""local_lr="theory" takes all step sizes from the theorem; numbers outside it get a note."""

import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms.base import wants_theory


def two_rounds(problem, phi, algorithm, **options):
    return cfl.minimize(problem, phi, algorithm, rounds=2, progress=False, **options)


@pytest.mark.filterwarnings("ignore:local_lr=")  # the theorem's step is small
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
        two_rounds(lasso_problem, cfl.L1(0.1), algorithm, batch_size=4, constants=constants)


def test_fedprox_takes_its_theorems_steps(lasso_problem):
    constants = cfl.theory.Constants(L=2.0, clients=len(lasso_problem.sizes), lipschitz=3.0)
    expected = cfl.theory.stepsizes(cfl.FedProx, constants, rounds=20)
    options = dict(rounds=20, constants=constants, progress=False)
    algorithm = cfl.FedProx(local_steps=4, local_lr="theory", eta="theory")
    by_theory = cfl.minimize(lasso_problem, None, algorithm, **options)
    algorithm = cfl.FedProx(local_steps=4, local_lr=expected.local_lr, eta=expected.eta)
    by_hand = cfl.minimize(lasso_problem, None, algorithm, **options)
    np.testing.assert_array_equal(by_theory.params, by_hand.params)
    with pytest.raises(cfl.CompositeFLError, match="eta=theory must be > 0"):
        cfl.FedProx(local_steps=4, local_lr=0.1, eta="theory")


@pytest.mark.parametrize(
    ("phi", "algorithm", "options", "match"),
    [
        (cfl.L1(0.1), cfl.FedNMap, dict(participation=2), "2 of . clients take part"),
        (cfl.L1(0.1), cfl.FedNMap, dict(dropout=0.2), "uploads are lost"),
        (cfl.L1(0.1), cfl.FedNMap, dict(stragglers=0.2), "clients stop early"),
        (cfl.MCP(0.01, 50.0), cfl.ZA1, {}, "the theorem wants it convex"),
    ],
)
def test_theory_steps_say_what_the_theorem_does_not_cover(
    lasso_problem, phi, algorithm, options, match
):
    constants = cfl.theory.estimate(lasso_problem, phi, batch_size=4).constants()
    with pytest.warns(RuntimeWarning, match=match):
        by_theory = algorithm(local_steps=3, local_lr="theory")
        two_rounds(lasso_problem, phi, by_theory, batch_size=4, constants=constants, **options)


def test_full_batches_of_fedmspp_get_a_note_and_run(lasso_problem):
    constants = cfl.theory.Constants(L=2.0, clients=len(lasso_problem.sizes), lipschitz=3.0)
    algorithm = cfl.FedMSPP(local_steps=2, local_lr=0.1, eta=0.5)
    with pytest.warns(RuntimeWarning, match="no minibatches"):
        two_rounds(lasso_problem, None, algorithm, constants=constants)


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
