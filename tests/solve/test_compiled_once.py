"""One compiled program serves all runs that differ in numbers alone."""

import jax
import pytest

import compositefl as cfl

COMPILED = "/jax/core/compile/backend_compile_duration"
OPTIONS = dict(batch_size=4, progress=False, eval_every=2)
compilations = 0


def count(event, seconds, **about):
    global compilations
    compilations += event == COMPILED


jax.monitoring.register_event_duration_secs_listener(count)


def fednmap(step, gamma=1.0, local_steps=3):
    return cfl.FedNMap(gamma=gamma, local_steps=local_steps, local_lr=step)


def with_minimize(problem, at):
    steps = {"rounds": 2 + 3 * at, "seed": at, "tolerance": 1e-9 * (1 + at), "eval_gamma": 0.5 + at}
    cfl.minimize(
        problem, cfl.L1(0.1 + at), fednmap(0.1 / (1 + at), 1.0 + at, 2 + at), **OPTIONS, **steps
    )


def with_path(problem, at):
    cfl.path(
        problem, cfl.L1(1.0), fednmap(0.1), [0.1 + at, 0.2 + at, 0.3 + at], rounds=3, **OPTIONS
    )


def with_sweep(problem, at):
    grid = {"local_lr": [0.01, 0.1 / (1 + at)], "regularizer.weight": [0.1, 0.2 + at]}
    cfl.sweep(problem, cfl.L1(1.0), fednmap(0.1), grid, rounds=4 + at, seed=at, **OPTIONS)


def with_tune(problem, at):
    cfl.tune(
        problem, cfl.L1(0.1), {"ours": fednmap(0.05 + 0.01 * at)}, budget=4, rounds=4, **OPTIONS
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("solve", [with_minimize, with_path, with_sweep, with_tune])
def test_nothing_is_compiled_again(lasso_problem, solve):
    before = compilations
    solve(lasso_problem, 0)
    first = compilations - before
    solve(lasso_problem, 1)
    assert compilations > 0  # the listener hears
    assert compilations - before == first
