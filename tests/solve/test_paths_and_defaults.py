"""Paths and sweeps with an unpenalised intercept, and what happens where nothing is given."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest

import compositefl as cfl
from compositefl.deployment.federation import Federation
from compositefl.solve.options import Options

ALGORITHM = cfl.FedNMap(gamma=0.5, local_steps=2, local_lr=0.1)
QUICK = dict(rounds=2, progress=False)


def logistic_loss(params, batch):
    x, y = batch
    z = (x @ params["kernel"])[:, 0] + params["bias"][0]
    return jnp.mean(jnp.logaddexp(0, z) - y * z)


@pytest.fixture(scope="module")
def problem():
    """Logistic regression with many more zeros than ones, and clients of 10 to 80 samples."""
    rng = np.random.default_rng(0)
    clients = []
    for i, n in enumerate((10, 30, 80)):
        x = rng.normal(size=(n, 5)) + 0.3 * i
        clients.append((x, (x[:, 0] + rng.normal(size=n) > 1.0 + 0.3 * i).astype(float)))
    return cfl.Problem(logistic_loss, {"kernel": np.zeros((5, 1)), "bias": np.zeros(1)}, clients)


def gradient_without_features(problem, weights):
    """The kernel's gradient where the intercept alone is fitted: p = the mean label."""
    sizes = [len(y) for _, y in problem.clients]
    share = np.concatenate([np.full(n, n if weights == "size" else 1.0) / n for n in sizes])
    share /= share.sum()
    x, y = (np.concatenate(parts) for parts in zip(*problem.clients, strict=True))
    return (share * (share @ y - y)) @ x


INTERCEPT = cfl.ByName({"bias": cfl.Zero(), "*": cfl.L1(1.0)})


@pytest.mark.parametrize("weights", ["uniform", "size"])
def test_weight_max_is_that_of_the_fitted_intercept(problem, weights):
    gradient = gradient_without_features(problem, weights)
    expected = np.abs(gradient).max()
    forms = [INTERCEPT, cfl.L1({"kernel": 1.0, "bias": 0.0})]
    for phi in forms:
        found = cfl.weight_max(problem, phi, weights=weights)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert cfl.weight_max(problem, INTERCEPT, "*.weight", weights=weights) == found
    group = cfl.ByName({"bias": cfl.Zero(), "*": cfl.GroupLasso(1.0, "columns")})
    found = cfl.weight_max(problem, group, weights=weights)
    np.testing.assert_allclose(found, np.linalg.norm(gradient), rtol=1e-6)
    log_sum = cfl.ByName({"bias": cfl.Zero(), "*": cfl.LogSum(1.0, 0.5)})
    found = cfl.weight_max(problem, log_sum, weights=weights)
    np.testing.assert_allclose(found, 0.5 * expected, rtol=1e-6)


def test_weight_max_with_factors_and_with_a_constrained_intercept(problem):
    factors = np.array([[0.5], [1.0], [2.0], [1.0], [0.0]])
    phi = cfl.ByName({"bias": cfl.Zero(), "*": cfl.L1(factors)})
    top = cfl.weight_max(problem, phi)
    options = dict(rounds=3000, tolerance=1e-9, dtype="float64", eval_every=100, progress=False)
    _, (above, below) = cfl.path(problem, phi, ALGORITHM, [1.01 * top, 0.99 * top], **options)
    assert np.any(below["kernel"][:4]) and not np.any(above["kernel"][:4])
    assert above["kernel"][4] != 0
    # All labels are rarely 1, so an intercept >= 0 stays at 0.
    bound = cfl.ByName({"bias": cfl.NonNegative(), "*": cfl.L1(1.0)})
    x, y = zip(*problem.clients, strict=True)
    at_zero = np.mean([a.T @ (0.5 - b) / len(b) for a, b in zip(x, y, strict=True)], axis=0)
    np.testing.assert_allclose(cfl.weight_max(problem, bound), np.abs(at_zero).max(), rtol=1e-6)


def test_a_path_with_an_intercept_and_weights_by_size(problem):
    table, models = cfl.path(
        problem,
        cfl.ByName({"bias": cfl.Zero(), "*": cfl.L1(np.ones((5, 1)))}),  # the program from above
        ALGORITHM,
        3,
        weights="size",
        rounds=3000,
        tolerance=1e-9,
        dtype="float64",
        eval_every=100,
        progress=False,
    )
    top = np.abs(gradient_without_features(problem, "size")).max()
    np.testing.assert_allclose(table.weight, top * np.array([1.0, 0.1, 0.01]), rtol=1e-6)
    assert not np.any(models[0]["kernel"]) and np.any(models[1]["kernel"])
    y = np.concatenate([y for _, y in problem.clients])
    np.testing.assert_allclose(models[0]["bias"], np.log(y.mean() / (1 - y.mean())), rtol=1e-6)


def test_a_sweep_reaches_into_by_name_and_returns_models(problem):
    phi = cfl.ByName({"bias": cfl.SquaredL2(0.1), "*": cfl.L1(1.0)})
    grid = {"regularizer.*.weight": [0.3, 0.01], "local_lr": [0.1, 0.2]}
    table, models = cfl.sweep(problem, phi, ALGORITHM, grid, models=True, trials=2, **QUICK)
    assert len(models) == 4 and models[0]["kernel"].shape == (2, 5, 1)
    row = table[table.point == 3].iloc[-1]
    assert row["regularizer.*.weight"] == 0.01 and row["local_lr"] == 0.2
    alone = cfl.minimize(
        problem,
        cfl.ByName({"bias": cfl.SquaredL2(0.1), "*": cfl.L1(0.01)}),
        cfl.FedNMap(gamma=0.5, local_steps=2, local_lr=0.2),
        **QUICK,
    )
    np.testing.assert_allclose(models[3]["kernel"][0], alone.params["kernel"], atol=1e-6)
    every = cfl.sweep(
        problem, phi, ALGORITHM, {"regularizer.weight": [0.3, 0.01] * 2}, trials=2, **QUICK
    )
    assert len(every.columns) == len(table.columns) - 1  # a table alone, as always


def test_the_algorithms_own_regularizer_counts(problem):
    own = cfl.FedNMap(gamma=0.5, local_steps=2, local_lr=0.1, regularizer=cfl.L1(0.1))
    given = cfl.minimize(problem, cfl.L1(0.1), ALGORITHM, **QUICK)
    for phi in (None, cfl.L1(0.1)):
        result = cfl.minimize(problem, phi, own, **QUICK)
        assert result.config["regularizer"] == "L1(weight=0.1)"
        np.testing.assert_array_equal(result.history.psi, given.history.psi)
    table = cfl.sweep(problem, None, own, {"local_lr": [0.1]}, **QUICK)
    np.testing.assert_allclose(table.psi, given.history.psi, rtol=1e-6)
    for call in (
        lambda: cfl.minimize(problem, cfl.L1(0.2), own, **QUICK),
        lambda: cfl.sweep(problem, cfl.Zero(), own, {"local_lr": [0.1]}, **QUICK),
        lambda: cfl.tune(problem, cfl.L1(0.2), {"a": own}, **QUICK),
        lambda: cfl.path(problem, cfl.L1(0.2), own, 2, **QUICK),
    ):
        with pytest.raises(cfl.CompositeFLError, match=r"L1\(weight=0.1\): give one of them"):
            call()


def test_a_regularizer_may_be_given_in_words(problem):
    """As for `minimize`."""
    for run in (
        partial(cfl.path, values=[0.3, 0.01]),
        partial(cfl.sweep, grid={"regularizer.weight": [0.3, 0.01]}, models=True),
    ):
        (told, models), (meant, others) = (
            run(problem, phi, algorithm=ALGORITHM, **QUICK) for phi in ("l1:0.1", cfl.L1(0.1))
        )
        np.testing.assert_array_equal(told.psi, meant.psi)
        np.testing.assert_array_equal(models[0]["kernel"], others[0]["kernel"])


def test_weight_max_takes_words_and_refuses_what_is_no_regularizer(problem):
    assert cfl.weight_max(problem, "l1:1") == cfl.weight_max(problem, cfl.L1(1.0))
    with pytest.raises(cfl.CompositeFLError, match=r"regularizer=0.1 must be a regulariser"):
        cfl.weight_max(problem, 0.1)
    with pytest.raises(cfl.CompositeFLError, match=r"must be a cfl\.Problem"):
        cfl.weight_max([1.0], cfl.L1(1.0))


def test_a_path_needs_no_algorithm(problem):
    """It takes that of `minimize`."""
    model = cfl.models.logistic_regression(5, intercept=True).problem(problem.clients)
    options = dict(rounds=30, dtype="float64", weights="size", progress=False)
    _, (_, last) = cfl.path(model, "l1:1", values=[0.1, 0.02], **options)
    alone = cfl.minimize(model, "l1:0.02", **options)
    kernels = [params["dense0"]["kernel"] for params in (last, alone.params)]
    np.testing.assert_allclose(*kernels, atol=1e-8)
    assert alone.config["algorithm"].startswith("ProxNewton")


def test_eval_gamma_is_admissible_where_it_is_not_given():
    mcp, l1 = cfl.MCP(0.05, 0.5), cfl.L1(0.05)
    canon = partial(cfl.FedCanon, local_steps=2, local_lr=0.1)
    fednmap = partial(cfl.FedNMap, local_steps=2, local_lr=0.1, regularizer=mcp)
    both = [canon(regularizer=cfl.MCP(0.05, theta)) for theta in (3.0, 0.5)]
    gammas = {
        0.4: [fednmap(gamma=0.4)],
        0.25: [canon(regularizer=mcp)],
        1.0: [canon(regularizer=l1)],
        0.2: [fednmap(gamma=0.2), fednmap(gamma=0.4)],  # one for all runs that are compared
    }
    for gamma, algorithms in [*gammas.items(), (0.25, both)]:
        assert Options(rounds=1).settled(algorithms).gamma == gamma
        assert Options(rounds=1, eval_gamma=0.3).settled(algorithms).gamma == 0.3


def test_one_eval_gamma_for_all_runs_of_a_sweep(problem):
    """That of the algorithm, and not of the grid's points."""
    mcp = cfl.MCP(0.05, 0.5)
    algorithms = {g: cfl.FedNMap(gamma=g, local_steps=2, local_lr=0.1) for g in (0.1, 0.4)}
    table = cfl.sweep(problem, mcp, algorithms[0.4], {"gamma": [0.1, 0.4]}, **QUICK)
    told = cfl.sweep(problem, mcp, algorithms[0.1], {"gamma": [0.1] * 2}, eval_gamma=0.4, **QUICK)
    starts = [t[t["round"] == 0].natural_residual_sq.iloc[0] for t in (table, told)]
    np.testing.assert_allclose(*starts, rtol=1e-5)
    theta = cfl.sweep(problem, mcp, algorithms[0.4], {"regularizer.theta": [0.5, 3.0]}, **QUICK)
    assert np.isfinite(theta.natural_residual_sq).all()


FEDERATION = """
name = "test"
sites = ["a", "b"]
rounds = 3
regularizer = "mcp:0.05,0.5"
model = { name = "mlp", input_shape = [4], classes = 2, hidden = [3] }
algorithm = { name = "fednmap", gamma = 0.4, local_steps = 2, local_lr = 0.1 }
"""


def test_a_federation_has_the_same_defaults():
    assert Federation.parse(FEDERATION).eval_gamma is None
    with pytest.raises(cfl.CompositeFLError, match=r"pattern 'intercept' matches no parameter"):
        Federation.parse('unpenalized = ["intercept"]' + FEDERATION).check()
    with pytest.raises(cfl.CompositeFLError, match=r"eval_gamma=1.0 must be in"):
        Federation.parse("eval_gamma = 1.0" + FEDERATION).check()
