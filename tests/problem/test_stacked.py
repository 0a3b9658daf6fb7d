"""Clients as rows of one batch: the same problem as the list of their batches."""

import jax
import numpy as np
import pytest

import compositefl as cfl
from compositefl.core.errors import CompositeFLError

SIZES = np.array([3, 1, 7, 5, 2, 6])


@pytest.fixture(scope="module")
def batch():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(SIZES.sum(), 4))
    return x, (x @ np.array([1.0, 0, -2, 0]) + 0.1 * rng.normal(size=len(x)) > 0).astype(int)


def solve(clients, **options):
    problem = cfl.models.logistic_regression(4).problem(clients)
    algorithm = cfl.FedNMap(gamma=1.0, local_steps=3, local_lr=0.3)
    options = dict(rounds=5, dtype="float64", progress=False, weights="size") | options
    return cfl.minimize(problem, cfl.L1(0.01), algorithm, **options)


@pytest.mark.parametrize("options", [{}, {"participation": 3}, {"batch_size": 2}], ids=str)
def test_follows_the_list_of_batches(batch, options):
    stacked = cfl.Stacked(batch, sizes=SIZES)
    listed = [stacked[i] for i in range(len(stacked))]
    ours, theirs = solve(stacked, **options), solve(listed, **options)
    jax.tree.map(np.testing.assert_array_equal, ours.params, theirs.params)
    assert ours.history.psi.iloc[-1] == theirs.history.psi.iloc[-1]


def test_rows_and_slices(batch):
    stacked = cfl.Stacked(batch, np.concatenate([[0], np.cumsum(SIZES)]))
    rows = stacked.rows(np.array([4, 0, 2]))
    wanted = np.concatenate([stacked[i][0] for i in (4, 0, 2)])
    np.testing.assert_array_equal(batch[0][rows], wanted)
    np.testing.assert_array_equal(stacked[-1][1], stacked[5][1])
    some = stacked.sample(2)
    np.testing.assert_array_equal(some.sizes, np.minimum(SIZES, 2))
    for i in range(len(SIZES)):
        assert {tuple(row) for row in some[i][0]} <= {tuple(row) for row in stacked[i][0]}


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({}, "offsets or sizes"),
        ({"sizes": [24, 1]}, "number of samples"),
        ({"offsets": [1, 24]}, "from 0"),
        ({"offsets": [0.0, 24.0]}, "whole numbers"),
    ],
    ids=str,
)
def test_refuses(batch, arguments, message):
    with pytest.raises(CompositeFLError, match=message):
        cfl.Stacked(batch, **arguments)


def test_refuses_an_empty_client_and_bad_numbers(batch):
    with pytest.raises(CompositeFLError, match="client 1 has no samples"):
        solve(cfl.Stacked(batch, sizes=[24, 0]))
    x = batch[0].copy()
    x[3, 1] = np.nan
    with pytest.raises(CompositeFLError, match="NaN"):
        solve(cfl.Stacked((x, batch[1]), sizes=SIZES))
