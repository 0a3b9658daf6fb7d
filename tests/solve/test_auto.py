"""Numbers that set themselves: the pilot's decisions, and what comes out of a run with them."""

import dataclasses
import json
import math

import jax.numpy as jnp
import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms.base import Knobs
from compositefl.core.vector import Vector
from compositefl.engine.pilot import Pilot, Scale
from compositefl.solve._sweep import run_all
from compositefl.solve.defaults import default_algorithm
from compositefl.solve.options import Options
from compositefl.solve.trajectory import Trajectory
from tests.problems import centralised_solution, lasso, squared_loss

QUIET = dict(progress=False, eval_every=10, weights="uniform")
EXACT = dict(dtype="float64", **QUIET)  # one compiled program for the runs without noise


def differ(a, b):
    return a == b


def pilot(noisy=False, **fields):
    """A pilot that has seen the start, psi = 10, in round 0."""
    made = Pilot(Scale(1.0), 100.0, noisy, **fields)
    return made.look(0, 10.0, 1.0, differ)[0]


def fly(pilot, psis, same=differ):
    """Show psi at the looks that the pilot asks for; the pilot and its last order."""
    order = None
    for psi in psis:
        pilot, order = pilot.look(pilot.next_look, psi, psi, same)
    return pilot, order


def test_a_challenger_that_gets_lower_becomes_the_champion():
    duel, order = fly(pilot(), [9, 8, 7])
    assert (duel.phase, order.keep, order.back) == ("duel", "champion", "mark")
    assert duel.knobs == Knobs(0.04, 100)  # Q is at its limit: four times the step
    won, order = fly(duel, [8, 6])
    assert (won.phase, order.keep, order.back) == ("run", "mark", "")
    assert won.scale.path == 4.0 and won.mark == 6


def test_a_challenger_that_does_not_is_left_where_the_champion_was():
    duel, _ = fly(pilot(), [9, 8, 7])
    lost, order = fly(duel, [9, 8, 7.5])
    assert (order.back, order.same) == ("champion", "champion")
    assert lost.scale.path == 1.0 and lost.mark == 7
    duel, _ = fly(lost, [6, 5, 4])
    assert duel.knobs == Knobs(0.01, 25)  # the other direction: fewer steps of 1/L


@pytest.mark.parametrize("psi", [10.5, math.inf, math.nan])
def test_a_champion_that_rises_goes_back_with_a_shorter_path(psi):
    back, order = fly(pilot(), [psi])
    assert order.back == "mark" and back.scale.path == 0.25 and back.curvature == 200
    assert back.look(back.next_look, 9.0, 1.0, differ)[0].scale.path == 0.25


def test_a_champion_that_stands_still_far_from_a_solution_takes_a_shorter_path():
    moved, order = fly(pilot(), [10, 10, 10])
    assert moved.scale.path == 0.25 and (order.keep, order.back) == ("mark", "")


def test_failures_are_not_repeated_for_ever():
    on, order = fly(pilot(), [11] * 7)
    assert on.scale.path == 1.0 and on.mark == 11 and order.keep == "mark"


def test_at_the_floor_of_the_noise_the_path_is_shortened_without_a_duel():
    bouncing = [5, 5.2, 4.9, 5.1, 5, 5.1, 4.9, 5.02]
    made = pilot(noisy=True, length=8, shortest=8)
    duel, _ = fly(made, bouncing)
    assert duel.challenger.path == 4.0  # from 10 to 5 is progress
    lost, _ = fly(duel, [6] * 8)
    cool, _ = fly(lost, [psi - 0.01 for psi in bouncing])  # noise hides what there is of progress
    assert cool.phase == "cool" and cool.knobs == cool._knobs(Scale(0.25))
    lower, order = fly(cool, bouncing[:4])
    assert lower.phase == "rest" and lower.scale.path == 0.25
    assert (order.keep, order.back) == ("mark", "")


def test_where_noise_hides_progress_both_sides_of_a_duel_end_with_the_calmer_numbers():
    """The longer path bounces at 6 and the champion at 5; cooled, the longer one got further."""
    bouncing = [5, 5.2, 4.9, 5.1, 5, 5.1, 4.9, 5.02]
    made = pilot(noisy=True, length=8, shortest=8, first=10.0)
    made = dataclasses.replace(made, since=92, mark=5.0, recent=())
    cool, order = fly(made, bouncing)
    assert cool.phase == "cool" and cool.knobs == made.knobs and not order.keep
    duel, order = fly(cool, [4.5, 4.3, 4.3, 4.3])
    assert (order.keep, order.back) == ("champion", "mark") and duel.phase == "duel"
    assert duel.knobs == made._knobs(Scale(4.0)) and duel.champion == 4.3
    calm, _ = fly(duel, [6, 5.9, 6, 6, 6.1, 6, 6, 6])
    assert calm.phase == "calm" and calm.knobs == made.knobs
    won, order = fly(calm, [4.2, 4.0, 3.9, 3.9])
    assert won.scale.path == 4.0 and order.keep == "mark" and won.mark == 3.9
    assert fly(calm, [4.4] * 4)[0].scale == made.scale
    assert fly(cool, [math.nan])[1].back == "mark"


def test_numbers_that_cannot_be_smaller_stay_at_the_floor():
    bouncing = [5, 5.2, 4.9, 5.1]
    cool = pilot(noisy=True, length=8, shortest=8, first=10.0)
    about = dict(phase="cool", since=92, mark=5.0, before=5.0, calmer=Scale(0.25), recent=())
    cool = dataclasses.replace(cool, **about, move="shorter")
    assert fly(cool, bouncing)[0].scale.path == 0.25
    assert fly(cool, bouncing, same=lambda a, b: True)[0].scale.path == 1.0


def test_a_psi_that_creeps_is_not_at_the_floor():
    """A single phase shows nothing but noise; the last half of the run shows the fall."""
    made = pilot(noisy=True, length=8, shortest=8, first=10.0)
    bouncing = [5, 5.2, 4.9, 5.1, 5, 5.1, 4.9, 5.02]
    for fall, phase in ((0.0, "rest"), (1.0, "duel")):
        course = tuple((r, 5.0 + fall) for r in range(44, 70))
        late = dataclasses.replace(made, since=92, mark=5.0, recent=(), course=course)
        assert fly(late, bouncing + bouncing[:4])[0].phase == phase


def test_without_noise_a_challenger_that_does_not_catch_up_is_stopped():
    duel, _ = fly(pilot(), [9, 8, 7])
    lost, order = fly(duel, [9.5, 8.7])  # the champion had 9, 8
    assert order.back == "champion" and lost.phase == "run"
    assert fly(duel, [9.5, 8.3])[0].phase == "duel"  # the gap shrinks


def test_with_minibatches_gamma_is_longer_than_the_path():
    method = cfl.FedNMap(regularizer=cfl.MCP(0.1, 50.0))
    for minibatches, gamma in ((False, 10.0), (True, 40.0)):
        chosen = method.at(Pilot.of(method, 10.0, True, 1.0, minibatches).knobs)
        assert chosen.eta_hat == 10.0 and chosen.gamma == gamma
    assert method.at(Knobs(0.5, 100, 1.0, 4.0)).gamma == 45.0  # below 1/rho


def test_with_noise_a_prox_leaves_a_part_of_the_model(lasso_problem):
    """It takes gamma * weight of every entry of ones, and gamma is four times the path."""
    paths = {}
    for start in (1.0, 0.0):
        problem = cfl.Problem(squared_loss, np.full(8, start), lasso_problem.clients)
        run = cfl.minimize(problem, cfl.L1(0.1), rounds=1, batch_size=4, **QUIET)
        paths[start] = (run.history["local_lr"] * run.history["local_steps"])[0]
    assert paths[1.0] == pytest.approx(1.0)  # 4 * 2.0 * 0.1 would be more than 0.7
    assert paths[0.0] > 10  # nothing to lose


def test_a_saved_pilot_decides_alike():
    course = [9, 8, 7, 9, 8, 7.5, 6, 5, 4, 3.9, 3.8, 3.7, 3.6]
    for cut in range(len(course)):
        before, _ = fly(pilot(), course[:cut])
        again = Pilot.restored(json.loads(json.dumps(before.saved())))
        assert repr(again) == repr(before)  # NaN is not equal to itself
        assert repr(fly(again, course[cut:])) == repr(fly(before, course[cut:]))


def test_the_end_is_the_best_state_there_is():
    duel, _ = fly(pilot(), [9, 8, 7])
    assert duel.end(5, 8.0)[1].back == "champion"
    assert duel.end(5, 6.0)[1].back == ""


@pytest.mark.parametrize("phi", [cfl.L1(0.3), cfl.MCP(0.3, 4.0), cfl.Box(-0.5, 0.5)])
def test_another_gamma_keeps_the_model_and_the_subgradient(phi):
    old, new = (
        cfl.FedNMap(local_steps=1, local_lr=0.1, gamma=g, regularizer=phi) for g in (0.5, 2.0)
    )
    z = Vector(jnp.linspace(-2, 2, 41))
    server = old.init_server(z)
    moved = old.rescale(server, new)
    np.testing.assert_allclose(new.prox(moved.z, 2.0).tree, server.x.tree, atol=1e-6)
    before, after = (server.z - server.x) / 0.5, (moved.z - moved.x) / 2.0
    np.testing.assert_allclose(after.tree, before.tree, atol=1e-6)


def test_the_solution_without_a_number():
    problem = lasso()
    result = cfl.minimize(problem, "l1:0.05", cfl.FedNMap(), rounds=120, **EXACT)
    exact = centralised_solution(problem, 0.05)
    np.testing.assert_allclose(result.params, exact, atol=1e-5)
    used = result.history[["local_lr", "local_steps", "gamma"]]
    assert (used > 0).all(axis=None) and (used["local_steps"] % 1 == 0).all()
    eta_hat = used["local_lr"] * used["local_steps"]
    np.testing.assert_allclose(used["gamma"], eta_hat)
    np.testing.assert_array_equal(result.params == 0, exact == 0)  # exact zeros
    steps, lr = used.iloc[-1][["local_steps", "local_lr"]]
    assert f"numbers set to local_steps={steps:.3g}, local_lr={lr:.3g}" in result.summary()


def test_some_numbers_may_be_given():
    given = dict(local_steps=7, gamma=0.2)
    result = cfl.minimize(lasso(), "l1:0.05", cfl.FedNMap(**given), rounds=30, **EXACT)
    assert "local_lr" in result.history and "gamma" not in result.history
    _, *_, end = result.history["psi"]
    least = cfl.minimize(lasso(), "l1:0.05", cfl.FedNMap(), rounds=60, **EXACT)
    least = least.history["psi"].iloc[-1]
    assert end < least + 1e-4
    fixed = cfl.FedNMap(local_lr=0.05, local_steps="auto", gamma="auto")
    result = cfl.minimize(lasso(), "l1:0.05", fixed, rounds=30, **EXACT)
    assert result.history["local_steps"].nunique() > 1
    assert result.history["psi"].iloc[-1] < least + 1e-4


def test_the_start_is_not_moved_by_a_large_gamma():
    problem = lasso()
    result = cfl.minimize(problem, "l1:0.05", cfl.FedNMap(), rounds=10, **EXACT)
    mean = np.mean([squared_loss(problem.params, b) for b in problem.clients])
    psi = mean + 0.05 * np.abs(problem.params).sum()
    assert abs(result.history["psi"].iloc[0] - psi) < 1e-4


NOISY = dict(rounds=40, batch_size=2, participation=0.5, **QUIET)


@pytest.fixture(scope="module")
def noisy_runs():
    return cfl.minimize(lasso(), "l1:0.05", cfl.FedNMap(), trials=2, **NOISY)


def test_a_run_does_not_depend_on_those_beside_it(noisy_runs):
    pair = [cfl.FedNMap(local_steps=q, regularizer=cfl.L1(0.05)) for q in ("auto", 3)]
    table, models, _ = run_all(lasso(), pair, 1, Options(**NOISY), models=True)
    np.testing.assert_allclose(models[0], noisy_runs.params[0], rtol=1e-5, atol=1e-6)
    alone, beside = (h[h["trial"] == 0] for h in (noisy_runs.history, table))
    beside = beside[beside["point"] == 0]
    np.testing.assert_allclose(beside["local_lr"], alone["local_lr"])
    for other in (models[1], noisy_runs.params[1]):
        assert not np.allclose(other, models[0], atol=1e-3)


def test_a_resumed_run_goes_on_as_if_nothing_had_happened(noisy_runs, tmp_path, monkeypatch):
    from compositefl.solve.run import Run

    options = dict(checkpoint=tmp_path / "state.npz", trials=2, **NOISY)
    enough = Run._enough
    stop = lambda run: "interrupted" if run.simulation.round >= 23 else enough(run)  # noqa: E731
    monkeypatch.setattr(Run, "_enough", stop)
    half = cfl.minimize(lasso(), "l1:0.05", cfl.FedNMap(), **options)
    assert half.stopped == "interrupted" and 23 <= half.rounds < 40
    assert half.history["round"].iloc[-1] == half.rounds and half.rounds % NOISY["eval_every"]
    monkeypatch.setattr(Run, "_enough", enough)
    on = cfl.minimize(lasso(), "l1:0.05", cfl.FedNMap(), resume=True, **options)
    np.testing.assert_array_equal(on.params, noisy_runs.params)
    columns = ["round", "psi", "local_lr", "local_steps", "gamma"]
    np.testing.assert_array_equal(on.history[columns], noisy_runs.history[columns])


@pytest.mark.parametrize("first", [20, 26])  # 26 is no row of the unbroken run
def test_more_rounds_go_on_as_if_the_run_had_not_ended(first, tmp_path):
    def run(rounds, **options):
        return cfl.minimize(lasso(), "l1:0.05", cfl.FedNMap(), rounds=rounds, **EXACT, **options)

    columns, path = ["round", "psi", "local_lr", "local_steps", "gamma"], tmp_path / "state.npz"
    ended = run(first, checkpoint=path)  # with the best of what the pilots had kept
    again = run(first, checkpoint=path, resume=True)
    whole, on = run(40), run(40, checkpoint=path, resume=True)
    for a, b in ((again, ended), (on, whole)):
        np.testing.assert_array_equal(a.params, b.params)
        np.testing.assert_array_equal(a.history[columns], b.history[columns])


def poisson(w, batch):
    """Poisson regression: flat where the rate is small, and steep where it is large."""
    x, y = batch
    return jnp.mean(jnp.exp(x @ w) - y * (x @ w))


def test_a_first_guess_that_diverges_is_taken_back():
    rng = np.random.default_rng(0)
    x = [np.column_stack([np.ones(9), rng.normal(size=(9, 2))]) for _ in range(4)]
    clients = [(a, rng.poisson(np.exp(1 + a[:, 1]))) for a in x]
    start = np.array([-6.0, 0.0, 0.0])  # where the curvature is e^-6
    problem = cfl.Problem(poisson, start, clients)
    result = cfl.minimize(problem, "l1:0.01", cfl.FedNMap(), rounds=120, **QUIET)
    assert result.history["local_lr"].iloc[0] > 100 > 10 > result.history["local_lr"].iloc[-1]
    assert result.diverged == [0] and result.converged


def test_a_loss_outside_jax_follows_the_compiled_decisions():
    from tests.problems import Outside

    inside = lasso()
    outside = cfl.Problem(Outside(squared_loss), inside.params, inside.clients)
    method = cfl.FedNMap(local_steps=4)  # the loop is slow
    runs = [
        cfl.minimize(p, "l1:0.05", method, rounds=20, **EXACT | {"eval_every": 2})
        for p in (inside, outside)
    ]
    assert runs[0].history["local_lr"].nunique() > 1
    for column in ("local_lr", "psi"):
        np.testing.assert_allclose(runs[1].history[column], runs[0].history[column], rtol=1e-6)


def test_rounds_on_demand_need_numbers():
    with pytest.raises(cfl.CompositeFLError, match="local_steps='auto' is understood by minimize"):
        Trajectory(lasso(), None, cfl.FedNMap())


@pytest.mark.parametrize(
    "method", [cfl.ZA1(), cfl.FedCanon(server_lr="auto")], ids=["za1", "canon"]
)
def test_other_methods_find_their_numbers(method):
    result = cfl.minimize(lasso(), "l1:0.05", method, rounds=60, **EXACT)
    exact = centralised_solution(lasso(), 0.05)
    close = 1e-5 if isinstance(method, cfl.ZA1) else 0.05  # FedCanon stops near the solution
    np.testing.assert_allclose(result.params, exact, atol=close)


def test_numbers_that_clients_must_know():
    with pytest.raises(cfl.CompositeFLError, match="'auto' must be a number for FedCanonII"):
        cfl.minimize(lasso(), "l1:0.05", cfl.FedCanonII(), rounds=3, **QUIET)


def test_without_an_algorithm():
    problem = lasso()
    model = cfl.models.linear_regression(8).problem(problem.clients)
    exact = cfl.minimize(model, "l1:0.05", rounds=12, **EXACT)
    assert exact.config["algorithm"].startswith("ProxNewton") and exact.converged
    np.testing.assert_allclose(
        exact.params["dense0"]["kernel"][:, 0], centralised_solution(problem, 0.05), atol=1e-7
    )


def test_what_the_second_order_method_is_not_for():
    model = cfl.models.linear_regression(8).problem(lasso().clients)
    wide = cfl.models.linear_regression(201).problem([(np.ones((2, 201)), np.ones(2))] * 2)
    one = Options(rounds=1)
    assert isinstance(default_algorithm(model, "l1:0.05", one), cfl.ProxNewton)
    for other in (dict(batch_size=2), dict(participation=0.5), dict(dropout=0.1)):
        noisy = Options(rounds=1, **other)
        assert isinstance(default_algorithm(model, "l1:0.05", noisy), cfl.FedNMap)
    for problem, phi in ((lasso(), "l1:0.05"), (model, "mcp:0.05,3"), (wide, "l1:0.05")):
        assert isinstance(default_algorithm(problem, phi, one), cfl.FedNMap)
