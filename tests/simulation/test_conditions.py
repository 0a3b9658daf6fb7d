"""Sampled clients, lost uploads and stragglers."""

import jax
import numpy as np
import pytest

import compositefl as cfl
from tests.conftest import FULL
from tests.problems import centralised_solution, lasso

WEIGHT = 0.1
ALGORITHM = cfl.FedNMap(gamma=0.5, local_steps=5, local_lr=0.02)


# One device: in thousands of short rounds two would wait for a core that other tests use.
RUN = dict(rounds=6000, eval_every=6000, dtype="float64", devices=1, progress=False)


def solve(problem, algorithm=ALGORITHM, **options):
    options = RUN | options
    return cfl.minimize(problem, cfl.L1(WEIGHT), algorithm, **options)


@pytest.mark.parametrize(
    "options",
    [
        dict(dropout=0.3),
        dict(participation=3, dropout=0.3),
        dict(stragglers=0.5),
        dict(participation=0.5, dropout=0.3, stragglers=0.3),
    ],
    ids=str,
)
def test_fednmap_still_reaches_the_centralised_solution(lasso_problem, options):
    solution = centralised_solution(lasso_problem, WEIGHT)
    result = solve(lasso_problem, **options)
    np.testing.assert_allclose(result.params, solution, atol=1e-9)
    np.testing.assert_allclose(result.server.cbar, result.clients.h.mean(axis=0), atol=1e-10)


def test_committing_lost_uploads_would_drift(monkeypatch):
    """The commit rule is what makes the test above pass.

    On a problem of another shape than all others: no other test has the program of the wrong rule.
    """
    from compositefl.simulation import rounds

    visit = rounds.visit

    def careless(program, work, clients, info, present):
        total, _, taken = visit(program, work, clients, info, present)
        _, committed, _ = visit(program, work, clients, info, present._replace(arrived=None))
        return total, committed, taken

    problem = lasso(features=7)
    with monkeypatch.context() as patch:
        patch.setattr(rounds, "visit", careless)
        result = solve(problem, dropout=0.3, rounds=3000)
    solution = centralised_solution(problem, WEIGHT)
    assert np.linalg.norm(result.params - solution) > 0.01


def test_the_lost_upload_leaves_no_trace(lasso_problem):
    """In a round in which all uploads are lost, nothing changes."""
    almost = solve(lasso_problem, rounds=3, dropout=0.999999)
    np.testing.assert_array_equal(almost.server.z, lasso_problem.params)
    assert not np.any(almost.clients.h)
    assert almost.history.bytes_up.iloc[-1] == 3 * 6 * 8 * 8  # they were sent all the same


def test_work_is_counted(lasso_problem):
    result = solve(lasso_problem, rounds=40, participation=2, stragglers=0.5)
    last = result.history.iloc[-1]
    assert 40 * 2 * 2 < last.gradients < 40 * 2 * 5
    assert last.bytes_up == 40 * 2 * 8 * 8
    fedmid = cfl.FedMiD(local_steps=5, local_lr=0.02)
    twice = solve(lasso_problem, fedmid, rounds=40, participation=6, replacement=True)
    assert 40 < twice.history.gradients.iloc[-1] / 5 < 40 * 6  # a client drawn twice works once


@pytest.mark.parametrize(("devices", "block"), [(1, None), (1, 1), (1, 4), (2, 1)])
def test_drawing_with_replacement_weighs_by_multiplicity(lasso_problem, devices, block):
    """One round of FedMiD by hand, with the clients that the seed draws, those of every block."""
    from compositefl.engine.sampling import Stream, participants, round_key, trial_key

    if devices > len(jax.devices()):
        pytest.skip("needs two devices")
    fedmid = cfl.FedMiD(local_steps=1, local_lr=0.1)
    drawn = dict(participation=6, replacement=True, devices=devices, client_block=block)
    result = solve(lasso_problem, fedmid, rounds=1, seed=5, **drawn)
    key = round_key(trial_key(5, 0), Stream.PARTICIPANTS, 0)
    times = np.bincount(*participants(key, 6, 6, True), minlength=6)
    assert times.max() > 1 and times.sum() == 6
    x = lasso_problem.params
    ends = []
    for a, b in lasso_problem.clients:
        z = x - 0.1 * a.T @ (a @ x - b) / len(b)
        ends.append(np.sign(z) * np.maximum(np.abs(z) - 0.1 * WEIGHT, 0.0))
    z = np.average(ends, axis=0, weights=times)
    expected = np.sign(z) * np.maximum(np.abs(z) - 0.1 * WEIGHT, 0.0)
    np.testing.assert_allclose(result.params, expected, atol=1e-12)


def test_no_replacement_where_clients_keep_a_state(lasso_problem):
    with pytest.raises(cfl.CompositeFLError, match="replacement=True: FedNMap keeps a state"):
        solve(lasso_problem, replacement=True)


def test_all_methods_refuse_what_they_cannot_do(lasso_problem):
    with pytest.raises(cfl.CompositeFLError, match=r"dropout=0.5: ZA1 needs all clients"):
        solve(lasso_problem, cfl.ZA1(local_steps=2, local_lr=0.1), dropout=0.5)
    with pytest.raises(cfl.CompositeFLError, match=r"stragglers=0.5: ZA1 needs all local steps"):
        solve(lasso_problem, cfl.ZA1(local_steps=2, local_lr=0.1), stragglers=0.5)
    with pytest.raises(cfl.CompositeFLError, match=r"dropout=1.0 must be a probability"):
        solve(lasso_problem, dropout=1.0)


STEPS = dict(local_steps=3, local_lr=0.05)
PROX = dict(composite="server-prox", **STEPS)


@pytest.mark.parametrize(
    "algorithm",
    [
        cfl.FedDA(**STEPS),
        cfl.FedMiD(**STEPS),
        cfl.FedAvg(**PROX),
        cfl.Scaffold(**PROX),
        cfl.ScaffoldI(**PROX),
        cfl.Mime(**PROX),
        cfl.MimeLite(**PROX),
        cfl.VRLSGD(**PROX),
        cfl.STEM(gradient_weight=0.5, **PROX),
        cfl.FedDC(mu=0.1, drift=False, **PROX),
    ],
    ids=lambda a: type(a).__name__,
)
def test_no_stragglers_where_the_prox_counts_steps(lasso_problem, algorithm):
    """Fewer steps with the prox of Q steps would solve a problem with a larger phi."""
    with pytest.raises(cfl.CompositeFLError, match="needs all local steps of every client"):
        solve(lasso_problem, algorithm, stragglers=0.5)


@pytest.mark.parametrize(
    "algorithm",
    [
        cfl.FedDyn(mu=1.0, **PROX),
        cfl.FedDC(mu=0.5, **PROX),
    ],
    ids=lambda a: type(a).__name__,
)
def test_stragglers_do_not_move_the_solution(lasso_problem, algorithm):
    """Where the prox does not count steps the solution is that of the lasso itself."""
    solution = centralised_solution(lasso_problem, WEIGHT)
    result = solve(lasso_problem, algorithm, rounds=3000, batch_size=None, stragglers=0.5)
    np.testing.assert_allclose(result.params, solution, atol=1e-8)


def test_independent_of_devices_and_blocks(network_problem):
    options = dict(
        rounds=10, batch_size=3, participation=4, dropout=0.3, stragglers=0.4, eval_every=10
    )
    reference = solve(network_problem, devices=1, **options)
    for devices, block in ((1, 2), (2, 1), (2, None)) if FULL else ((2, 1),):
        if devices > len(jax.devices()):
            continue
        other = solve(network_problem, devices=devices, client_block=block, **options)
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=0, atol=1e-12),
            (other.params, other.clients),
            (reference.params, reference.clients),
        )
