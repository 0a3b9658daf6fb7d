"""Sweeps equal single runs; paths start where the zero model stops being optimal."""

import warnings

import numpy as np
import pytest

import compositefl as cfl
from tests.problems import centralised_solution

OPTIONS = dict(rounds=10, batch_size=4, seed=3, dtype="float64", progress=False, eval_every=5)


def test_a_sweep_is_the_single_runs(network_problem):
    algorithm = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05)
    grid = {"local_lr": [0.02, 0.05], "local_steps": [1, 4], "regularizer.weight": [0.0, 0.1]}
    table = cfl.sweep(network_problem, cfl.L1(0.1), algorithm, grid, trials=2, **OPTIONS)
    assert len(table) == 8 * 2 * 3
    for lr in grid["local_lr"]:
        for q in grid["local_steps"]:
            for weight in grid["regularizer.weight"]:
                one = cfl.minimize(
                    network_problem,
                    cfl.L1(weight),
                    cfl.FedNMap(gamma=0.5, local_steps=q, local_lr=lr),
                    trials=2,
                    **OPTIONS,
                ).history
                same = table[
                    (table.local_lr == lr)
                    & (table.local_steps == q)
                    & (table["regularizer.weight"] == weight)
                ]
                for column in ("round", "trial", "psi", "natural_residual_sq", "gradients"):
                    np.testing.assert_allclose(same[column], one[column], rtol=1e-9)


def test_runs_that_do_not_fit_wait_their_turn(network_problem, monkeypatch):
    algorithm = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05)
    grid = {"local_lr": [0.01, 0.02, 0.03, 0.04]}
    together = cfl.sweep(network_problem, cfl.L1(0.1), algorithm, grid, **OPTIONS)
    monkeypatch.setattr("compositefl.simulation.simulation.WORKING_SET", 43 * 3 * 2)
    apart = cfl.sweep(network_problem, cfl.L1(0.1), algorithm, grid, **OPTIONS)
    np.testing.assert_allclose(apart.psi, together.psi, rtol=1e-12)


def test_divergence_is_a_column(lasso_problem):
    table = cfl.sweep(
        lasso_problem,
        cfl.L1(0.1),
        cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05),
        {"local_lr": [0.05, 1e6]},
        rounds=400,
        eval_every=400,
        progress=False,
    )
    last = table[table["round"] == 400].set_index("local_lr")
    assert last.diverged[0.05] == 0 and 0 < last.diverged[1e6] <= 100
    assert np.isfinite(last.psi[0.05])


@pytest.mark.parametrize(
    "grid, message",
    [
        ({}, "must name at least one field"),
        ({"local_lr": []}, "must name at least one field"),
        ({"locallr": [1.0]}, "FedNMap has no"),
        ({"regularizer.weigth": [1.0]}, "L1 has no"),
        ({"gamma": [0.5, -1.0]}, "gamma=-1.0 must be"),
    ],
)
def test_wrong_grids(lasso_problem, grid, message):
    algorithm = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05)
    with pytest.raises(cfl.CompositeFLError, match=message):
        cfl.sweep(lasso_problem, cfl.L1(0.1), algorithm, grid, **OPTIONS)


def test_weight_max_of_l1_is_the_largest_gradient_entry(lasso_problem):
    gradient = np.mean([-(a.T @ b) / len(b) for a, b in lasso_problem.clients], axis=0)
    expected = np.abs(gradient).max()
    np.testing.assert_allclose(cfl.weight_max(lasso_problem, cfl.L1(1.0)), expected, rtol=1e-6)
    mcp = cfl.weight_max(lasso_problem, cfl.MCP(1.0, 3.0))
    np.testing.assert_allclose(mcp, expected, rtol=1e-6)
    with pytest.raises(cfl.CompositeFLError, match="makes the zero model stationary"):
        cfl.weight_max(lasso_problem, cfl.SquaredL2(1.0))


def test_path(lasso_problem):
    table, models = cfl.path(
        lasso_problem,
        cfl.L1(1.0),
        cfl.FedNMap(gamma=0.5, local_steps=5, local_lr=0.02),
        6,
        rounds=5000,
        tolerance=1e-10,
        dtype="float64",
        eval_every=100,
        progress=False,
    )
    assert not np.any(models[0])
    assert list(table.zeros) == sorted(table.zeros, reverse=True)
    for weight, model in zip(table.weight, models, strict=True):
        np.testing.assert_allclose(model, centralised_solution(lasso_problem, weight), atol=1e-8)


def test_tune_gives_every_method_the_same_budget(lasso_problem):
    methods = {
        "fednmap": cfl.FedNMap(gamma=1.0, local_steps=3, local_lr=1.0),
        "za1": cfl.ZA1(local_steps=3, local_lr=0.002),
    }
    best = cfl.tune(
        lasso_problem, cfl.L1(0.1), methods, budget=9, rounds=60, eval_every=20, progress=False
    ).set_index("method")
    assert best.points["fednmap"] == 8 and best.points["za1"] == 9
    assert best.diverged["fednmap"] > 0  # its first step size is far too large here
    given = cfl.minimize(
        lasso_problem, cfl.L1(0.1), methods["za1"], rounds=60, eval_every=20, progress=False
    )
    assert best.psi["za1"] < given.history.psi.iloc[-1]
    again = cfl.FedNMap(
        gamma=best.gamma["fednmap"], local_steps=3, local_lr=best.local_lr["fednmap"]
    )
    run = cfl.minimize(lasso_problem, cfl.L1(0.1), again, rounds=60, eval_every=20, progress=False)
    np.testing.assert_allclose(run.history.psi.iloc[-1], best.psi["fednmap"], rtol=1e-5)


def test_tune_leaves_out_what_a_method_refuses(lasso_problem):
    methods = {"fednmap": cfl.FedNMap(gamma=1.0, local_steps=3, local_lr=0.05)}
    best = cfl.tune(lasso_problem, cfl.MCP(0.1, 2.0), methods, budget=9, rounds=20, progress=False)
    assert best.points[0] == 4 + 2  # a gamma from 2 on is beyond 1/rho
    with pytest.raises(cfl.CompositeFLError, match="metric='loss_' must be one of"):
        cfl.tune(lasso_problem, cfl.L1(0.1), methods, metric="loss_", rounds=5, progress=False)


def test_tune_halves_where_no_number_is_given(lasso_problem):
    """Successive halving finds what the whole grid has, and varies the number of local steps."""
    options = dict(rounds=27, eval_every=9, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a grid's edge
        best = cfl.tune(lasso_problem, cfl.L1(0.1), {"fednmap": cfl.FedNMap()}, **options)
    row = best.iloc[0]
    assert row.points == 20 and row.local_steps in (1, 5, 25, 100)
    found = cfl.FedNMap(local_steps=int(row.local_steps), local_lr=row.local_lr, gamma=row.gamma)
    run = cfl.minimize(lasso_problem, cfl.L1(0.1), found, **options)
    start, end = run.history.psi.iloc[[0, -1]]
    least = cfl.minimize(lasso_problem, cfl.L1(0.1), cfl.FedNMap(), **(options | {"rounds": 90}))
    least = least.history.psi.iloc[-1]
    assert end - least < 0.1 * (start - least)


def test_tune_tells_of_the_edge_of_its_grid(lasso_problem):
    methods = {"pgd": cfl.PGD(lr=1e-6)}
    with pytest.warns(RuntimeWarning, match=r"pgd: lr=3e-05 is at the edge of its grid"):
        cfl.tune(lasso_problem, cfl.L1(0.1), methods, budget=3, rounds=4, progress=False)
