"""Sweeps equal single runs; paths start where the zero model stops being optimal."""

import itertools
import warnings
from functools import partial

import numpy as np
import pytest

import compositefl as cfl
from compositefl.solve._tune import admissible
from compositefl.solve.options import Options
from compositefl.solve.run import Run
from tests.problems import centralised_solution, squared_loss

OPTIONS = dict(rounds=10, batch_size=4, seed=3, dtype="float64", progress=False, eval_every=5)
FEDNMAP = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05)
GRID = {"local_lr": [0.02, 0.05], "local_steps": [1, 4], "regularizer.weight": [0.0, 0.1]}


@pytest.fixture(scope="module")
def swept(network_problem):
    return cfl.sweep(network_problem, cfl.L1(0.1), FEDNMAP, GRID, trials=2, **OPTIONS)


def test_a_sweep_is_the_single_runs(network_problem, swept):
    assert len(swept) == 8 * 2 * 3
    for lr, q, weight in itertools.product(*GRID.values()):
        algorithm = cfl.FedNMap(gamma=0.5, local_steps=q, local_lr=lr)
        one = cfl.minimize(network_problem, cfl.L1(weight), algorithm, trials=2, **OPTIONS).history
        same = swept[
            (swept.local_lr == lr)
            & (swept.local_steps == q)
            & (swept["regularizer.weight"] == weight)
        ]
        for column in ("round", "trial", "psi", "natural_residual_sq", "gradients"):
            np.testing.assert_allclose(same[column], one[column], rtol=1e-9)


def test_runs_that_do_not_fit_wait_their_turn(network_problem, swept, monkeypatch):
    """Groups of two runs, for which the program of two trials serves."""
    monkeypatch.setattr("compositefl.simulation.simulation.WORKING_SET", 43 * 3 * 2)
    apart = cfl.sweep(network_problem, cfl.L1(0.1), FEDNMAP, GRID, trials=2, **OPTIONS)
    np.testing.assert_allclose(apart.psi, swept.psi, rtol=1e-12)


def test_divergence_is_a_column_and_told(lasso_problem):
    options = dict(rounds=400, eval_every=400, progress=False)
    grid = {"local_lr": [0.05, 1e6]}
    with pytest.warns(cfl.ConvergenceWarning, match=r"^1 of 2 points .* first at local_lr=1e\+06$"):
        table = cfl.sweep(lasso_problem, cfl.L1(0.1), FEDNMAP, grid, **options)
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
        ({"gamma": 0.5}, r"gamma=0.5 must be a list of values, such as \[0.5\]"),
        ({"gamma": "auto"}, r"gamma='auto' must be a list of values"),
    ],
)
def test_wrong_grids(lasso_problem, grid, message):
    with pytest.raises(cfl.CompositeFLError, match=message):
        cfl.sweep(lasso_problem, cfl.L1(0.1), FEDNMAP, grid, **OPTIONS)


def test_a_choice_of_words_is_no_grid(lasso_problem):
    method = cfl.FedMiD(local_steps=2, local_lr=0.1)
    grid = {"prox_at": ["server", "everywhere"]}
    with pytest.raises(cfl.CompositeFLError, match="grid: prox_at is no number"):
        cfl.sweep(lasso_problem, cfl.L1(0.1), method, grid, **OPTIONS)


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(trials=2), "trials=2 must be 1 for a path"),
        (dict(values=[]), r"values=\[\] must be at least one weight"),
        (dict(values=2.5), "values=2.5 must be a whole number"),
        (dict(smallest=0.0), r"smallest=0.0 must be in \(0, 1\]"),
        (dict(smallest=2.0), r"smallest=2.0 must be in \(0, 1\]"),
    ],
)
def test_wrong_paths(lasso_problem, options, message):
    with pytest.raises(cfl.CompositeFLError, match=message):
        cfl.path(lasso_problem, cfl.L1(1.0), FEDNMAP, rounds=1, **options)


def test_the_number_of_weights_may_be_of_numpy(lasso_problem):
    table, _ = cfl.path(lasso_problem, "l1:1", FEDNMAP, np.int64(2), rounds=1, progress=False)
    assert len(table) == 2


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


def test_an_interruption_ends_all_of_it(lasso_problem, monkeypatch):
    enough, runs = Run._enough, []

    def stop(run):
        runs.append(run)
        return "interrupted" if run.simulation.round >= 4 else enough(run)

    monkeypatch.setattr(Run, "_enough", stop)
    method, options = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05), OPTIONS
    steps = {"local_lr": [0.02, 0.05]}
    with pytest.warns(RuntimeWarning, match=r"sweep was interrupted after round \d of 10"):
        table = cfl.sweep(lasso_problem, cfl.L1(0.1), method, steps, **options)
    assert table["round"].iloc[-1] < 10
    with pytest.warns(RuntimeWarning, match="path was interrupted at weight=0.3, number 1 of 2"):
        table, models = cfl.path(lasso_problem, cfl.L1(1.0), method, [0.1, 0.3], **options)
    assert len(table) == len(models) == 1
    runs.clear()
    with pytest.raises(KeyboardInterrupt):
        cfl.tune(lasso_problem, cfl.L1(0.1), {"fednmap": method}, budget=4, **options)
    assert len(set(map(id, runs))) == 1


TUNED = dict(budget=8, rounds=60, eval_every=20, progress=False)  # grids of four and of eight


def at_given_numbers(problem, algorithm, runs):
    """psi at the end; equal runs side by side, for which the compiled program of tune serves."""
    grid = {"local_lr": [algorithm.local_lr] * runs}
    options = {name: value for name, value in TUNED.items() if name != "budget"}
    return cfl.sweep(problem, cfl.L1(0.1), algorithm, grid, **options).psi.iloc[-1]


def test_tune_gives_every_method_the_same_budget(lasso_problem):
    methods = {
        "fednmap": cfl.FedNMap(gamma=1.0, local_steps=3, local_lr=1.0),
        "za1": cfl.ZA1(local_steps=3, local_lr=0.002),
    }
    best = cfl.tune(lasso_problem, cfl.L1(0.1), methods, **TUNED).set_index("method")
    assert best.points["fednmap"] == best.points["za1"] == 8
    assert best.diverged["fednmap"] > 0  # its first step size is far too large here
    assert best.psi["za1"] < at_given_numbers(lasso_problem, methods["za1"], 8)
    again = cfl.FedNMap(
        gamma=best.gamma["fednmap"], local_steps=3, local_lr=best.local_lr["fednmap"]
    )
    found = at_given_numbers(lasso_problem, again, 4)
    np.testing.assert_allclose(found, best.psi["fednmap"], rtol=1e-5)


def test_tune_leaves_out_what_a_method_refuses(lasso_problem):
    mcp = cfl.FedNMap(gamma=1.0, local_steps=3, local_lr=0.05, regularizer=cfl.MCP(0.1, 2.0))
    left = admissible(lasso_problem, Options(rounds=1), mcp, "gamma", 4)
    assert len(left) == 2 and all(a.gamma < 2.0 for a in left)  # from 2 on it is beyond 1/rho


def test_tune_halves_where_no_number_is_given(lasso_problem):
    """Successive halving finds what the whole grid has, and varies the number of local steps."""
    options = dict(rounds=27, eval_every=9, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of a grid's edge
        best = cfl.tune(lasso_problem, cfl.L1(0.1), {"fednmap": cfl.FedNMap()}, **options)
    row = best.iloc[0]
    assert row.points == 20 and row.local_steps in (1, 5, 25, 100)
    start, least = (
        np.mean([squared_loss(x, batch) for batch in lasso_problem.clients]) + 0.1 * abs(x).sum()
        for x in (lasso_problem.params, centralised_solution(lasso_problem, 0.1))
    )
    assert row.psi - least < 0.1 * (start - least)


def test_tune_tells_of_the_edge_of_its_grid_and_of_bad_ends(lasso_problem):
    tune = partial(cfl.tune, lasso_problem, cfl.L1(0.1), **TUNED)
    small, large = (cfl.FedNMap(gamma=1.0, local_steps=3, local_lr=lr) for lr in (1e-6, 1e6))
    with pytest.warns(RuntimeWarning, match=r"slow: local_lr=3e-05.* is at the edge of its grid"):
        tune({"slow": small})
    with pytest.warns(cfl.ConvergenceWarning, match="wild: the best of 8 points diverged"):
        tune({"wild": large})
    with pytest.raises(cfl.CompositeFLError, match="metric='loss_' must be one of"):
        tune({"slow": small}, metric="loss_")
