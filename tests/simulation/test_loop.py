"""Rounds in a Python loop against the compiled ones: the same samples, the same numbers.

Problem, batch size, methods, regularisers and participation are those of
tests/algorithms/test_trajectories.py, and the tests run in one process: most of the compiled rounds
are there already.
"""

import jax
import numpy as np
import pytest

import compositefl as cfl
from compositefl.core.component import replace
from compositefl.engine.eager import DRAWN
from tests.algorithms import twins
from tests.algorithms.helpers import STEPS, WEIGHT
from tests.problems import Outside, cross_entropy, squared_loss

METHODS = {
    **{name: algorithm for name, (algorithm, _) in twins.ALL.items()},
    "pgd": cfl.PGD(lr=0.2),
    "fedavg": cfl.FedAvg(composite="server-prox", **STEPS),
    "scaffold": cfl.Scaffold(composite="server-prox", **STEPS),
    "fedprox nonsmooth": cfl.FedProxNonsmooth(local_steps=4, eta=1.0, accuracy=0.1),
    "fedmspp nonsmooth": cfl.FedMSPPNonsmooth(local_steps=4, eta=1.0, accuracy=0.1),
}
FEDNMAP = METHODS["fednmap"]
NEEDS_HESSIANS = cfl.ProxNewton()  # which a loss outside JAX does not have


class SideBySide(Outside):
    """A loss outside JAX that computes several clients at once."""

    def __init__(self, loss):
        super().__init__(loss)
        self.all, self.calls = jax.jit(jax.vmap(jax.value_and_grad(loss))), 0

    def side_by_side(self, params, batch):
        return ""

    def values_and_gradients(self, params, batch):
        self.calls += 1
        return jax.tree.map(np.asarray, self.all(params, batch))


@pytest.fixture(scope="module")
def lasso_outside(lasso_problem):
    return cfl.Problem(Outside(squared_loss), lasso_problem.params, lasso_problem.clients)


def both(inside, outside, algorithm, phi=None, **options):
    """(compiled, looped) results."""
    options = dict(rounds=6, batch_size=4, seed=7, dtype="float64", progress=False) | options
    options = {"eval_every": 3} | options
    phi = cfl.L1(WEIGHT) if phi is None else phi
    if getattr(algorithm, "composite", "") == "none":
        phi = None
    return [cfl.minimize(p, phi, algorithm, **options) for p in (inside, outside)]


def assert_same(compiled, looped, tolerance=1e-10):
    close = lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)  # noqa: E731
    for part in ("params", "server", "clients"):
        jax.tree.map(close, getattr(compiled, part), getattr(looped, part))
    assert list(compiled.history) == list(looped.history)
    for column in compiled.history.columns.drop("seconds"):
        close(compiled.history[column], looped.history[column])
    assert (compiled.stopped, compiled.rounds) == (looped.stopped, looped.rounds)


def test_no_method_is_missing():
    tested = {type(a) for a in (*METHODS.values(), NEEDS_HESSIANS)}
    assert tested == set(cfl.algorithms.ALGORITHMS.values())


def test_a_method_that_needs_hessians(lasso_outside):
    with pytest.raises(cfl.CompositeFLError, match=r"no second derivatives\. FedNMap needs"):
        cfl.minimize(lasso_outside, cfl.L1(WEIGHT), NEEDS_HESSIANS, rounds=3, progress=False)


@pytest.fixture(scope="module")
def lasso_beside(lasso_problem):
    return cfl.Problem(SideBySide(squared_loss), lasso_problem.params, lasso_problem.clients)


@pytest.mark.parametrize("where", ["lasso_outside", "lasso_beside"])
@pytest.mark.parametrize("name", METHODS)
def test_every_method(lasso_problem, where, request, name):
    """Clients one after the other and, where the method allows it, side by side."""
    outside = request.getfixturevalue(where)
    assert not outside.compiles
    algorithm, phi, options = METHODS[name], None, {}
    if name in twins.SAMPLED | twins.SMOOTH:
        options = {"participation": 3}
    if name in twins.SUBGRADIENT:
        algorithm, phi = replace(algorithm, composite="subgradient"), cfl.SquaredL2(0.15)
    assert_same(*both(lasso_problem, outside, algorithm, phi, **options))


@pytest.mark.parametrize(
    "options",
    [
        dict(batch_size=None),
        dict(participation=0.5),
        dict(participation=3, trials=2),
        dict(dropout=0.4, weights="size"),
        dict(stragglers=0.6),
        dict(dropout=1.0 - 1e-9),
    ],
    ids=str,
)
def test_conditions_and_trials(lasso_problem, lasso_outside, options):
    assert_same(*both(lasso_problem, lasso_outside, FEDNMAP, **options))


@pytest.mark.parametrize(
    "name, options",
    [
        ("fednmap", {}),
        ("scaffold", {}),
        ("fedavg", {}),
        ("mime-momentum", {}),
        ("fednmap", {"participation": 3, "dropout": 0.3}),
        ("mime-momentum", {"participation": 3, "dropout": 0.3}),
    ],
    ids=str,
)
def test_clients_side_by_side(lasso_problem, name, options):
    loss = SideBySide(squared_loss)
    outside = cfl.Problem(loss, lasso_problem.params, lasso_problem.clients)
    assert_same(*both(lasso_problem, outside, METHODS[name], **options))
    points = 2 if name.startswith("mime") else 1  # in a local step
    assert loss.calls == 6 * METHODS[name].local_steps * points  # all clients in one call


def test_clients_side_by_side_that_are_read_when_wanted(lasso_problem):
    """A part of them, whose steps are more than are drawn at once."""
    given = lasso_problem.clients
    clients = cfl.OnDemand(lambda i: given[i], sizes=lasso_problem.sizes)
    outside = cfl.Problem(SideBySide(squared_loss), lasso_problem.params, clients)
    algorithm = cfl.FedNMap(gamma=0.7, local_steps=DRAWN + 3, local_lr=0.005)
    assert_same(*both(lasso_problem, outside, algorithm, participation=3))


def test_clients_one_after_the_other_are_told(lasso_problem, lasso_outside):
    with pytest.warns(RuntimeWarning, match="one after the other .* one client at a time"):
        both(lasso_problem, lasso_outside, FEDNMAP, rounds=1)


def test_drawing_with_replacement(lasso_problem, lasso_outside):
    options = dict(participation=4, replacement=True)
    assert_same(*both(lasso_problem, lasso_outside, METHODS["fedmid"], **options))


def test_a_pytree_in_float32_with_a_test_set(network_problem):
    test = jax.tree.map(lambda a: np.asarray(a)[:7], network_problem.clients[3])

    def right(params, batch):
        return -cross_entropy(params, batch)  # any mean over samples will do

    def make(wrap):
        return cfl.Problem(
            wrap(cross_entropy),
            network_problem.params,
            network_problem.clients,
            test=test,
            accuracy=wrap(right),
            eval_samples=5,
        )

    problems = make(lambda f: f), make(Outside)
    assert_same(*both(*problems, FEDNMAP, dtype="float32"), tolerance=2e-5)


def test_coupled_batches(network_problem):
    def spread(params, batch):  # no mean over samples
        return cross_entropy(params, batch) * (1 + np.float32(0.1) * batch["x"].std())

    params, clients = network_problem.params, network_problem.clients
    make = lambda loss: cfl.Problem(loss, params, clients, coupled_batch=4)  # noqa: E731
    for batch_size in (4, None):
        compiled, looped = both(make(spread), make(Outside(spread)), FEDNMAP, batch_size=batch_size)
        assert_same(compiled, looped)


def test_resume(lasso_outside, tmp_path):
    options = dict(batch_size=4, seed=7, dtype="float64", progress=False, eval_every=3)
    steps = lasso_outside, cfl.L1(WEIGHT), FEDNMAP
    whole = cfl.minimize(*steps, rounds=9, trials=2, **options)
    file = tmp_path / "run.ckpt"
    cfl.minimize(*steps, rounds=6, trials=2, checkpoint=file, **options)
    again = cfl.minimize(*steps, rounds=9, trials=2, checkpoint=file, resume=True, **options)
    for part in ("params", "server", "clients"):
        jax.tree.map(np.testing.assert_array_equal, getattr(whole, part), getattr(again, part))


def test_divergence_keeps_the_last_finite_round(lasso_problem, lasso_outside):
    algorithm = cfl.FedNMap(gamma=0.7, local_steps=4, local_lr=1e60)
    with pytest.warns(RuntimeWarning, match="diverged"):
        compiled, looped = both(lasso_problem, lasso_outside, algorithm)
    assert compiled.stopped == looped.stopped == "diverged"
    assert compiled.diverged == looped.diverged


def test_sweeps_and_weight_max(lasso_problem, lasso_outside):
    weights = [cfl.weight_max(p, cfl.L1(1.0)) for p in (lasso_problem, lasso_outside)]
    assert weights[0] == pytest.approx(weights[1], rel=1e-9)


def test_constants_are_not_estimated(lasso_outside):
    theory = cfl.FedNMap(gamma=0.7, local_steps=4, local_lr="theory")
    with pytest.raises(cfl.CompositeFLError, match="second derivatives"):
        cfl.minimize(lasso_outside, cfl.L1(WEIGHT), theory, rounds=3, progress=False)
