"""The proximal Newton method: against NumPy, against pooled fits, to stationary points."""

import itertools

import jax
import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.linear_model import LogisticRegression

import compositefl as cfl
from compositefl.cli.listing import costs
from compositefl.core.symmetric import from_triangle, to_triangle, triangle_size
from compositefl.engine.accounting import round_cost
from compositefl.engine.hessian import LARGEST, dense_hessian
from tests.problems import centralised_solution
from tests.reference import newton

WEIGHT = 0.01
CUTS = {"breast": (0, 30, 110, 250, 400, 569), "wine": (0, 20, 60, 100, 178)}


def unpenalised_bias(phi):
    return cfl.ByName({"*bias": cfl.Zero(), "*": phi})


L1 = unpenalised_bias(cfl.L1(WEIGHT))


def sites(name, x, y):
    """Unequal sites that differ: samples in the order of their first feature, roughly."""
    order = np.argsort(x[:, 0] + 0.3 * x[:, 0].std() * np.random.default_rng(0).normal(size=len(y)))
    return [
        (x[order[a:b]], y[order[a:b]]) for a, b in zip(CUTS[name], CUTS[name][1:], strict=False)
    ]


def breast_cancer(standardised=True):
    x, y = load_breast_cancer(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0) if standardised else x
    return cfl.models.logistic_regression(30, intercept=True).problem(sites("breast", x, y))


def solve(problem, phi, rounds=12, **options):
    options = dict(dtype="float64", weights="size", eval_every=1, progress=False) | options
    return cfl.minimize(problem, phi, cfl.ProxNewton(), rounds=rounds, **options)


def flat(params):
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])


def pooled_fit(problem):
    """The coefficients of scikit-learn with all samples in one table, intercept first."""
    x, y = newton.pooled(problem.clients, intercept=False)
    lasso = dict(l1_ratio=1, C=1 / (WEIGHT * len(y)), solver="saga")
    model = LogisticRegression(tol=1e-7, max_iter=20_000, random_state=0, **lasso).fit(x, y)
    return np.r_[model.intercept_, model.coef_[0]]


def psi(w, x, y, weight):
    return newton.logistic(w, x, y)[0] + weight @ np.abs(w)


def test_the_pooled_fit_of_scikit_learn():
    problem = breast_cancer()
    w = pooled_fit(problem)
    result = solve(problem, L1)
    best = psi(w, *newton.pooled(problem.clients), np.r_[0, np.full(30, WEIGHT)])
    gap = (result.history.psi.to_numpy() - best) / best
    assert gap[7] < 1e-6 < gap[5]
    assert (np.abs(gap[8:]) < 1e-8).all()
    found = flat(result.params)
    np.testing.assert_allclose(found, w, atol=1e-4)
    assert 0 < np.sum(found == 0) == np.sum(w == 0)


def test_raw_features():
    """No scaling: the natural residual is in other units, so psi is the proof."""
    problem = breast_cancer(standardised=False)
    x, y = newton.pooled(problem.clients)
    result = solve(problem, L1, rounds=14)
    history = result.history.psi.to_numpy()
    assert (history[10] - history[-1]) / history[-1] < 1e-6
    # Optimality in plain NumPy, feature by feature in its own units.
    w = flat(result.params)
    _, g, _ = newton.logistic(w, x, y)
    scale = x.std(0) + x.mean(0)
    active = w[1:] != 0
    assert abs(g[0]) < 1e-10 and active.sum() > 3
    np.testing.assert_allclose(
        (g[1:] / scale[1:])[active], (-WEIGHT * np.sign(w[1:]) / scale[1:])[active], atol=1e-10
    )
    assert (np.abs(g[1:])[~active] <= WEIGHT * (1 + 1e-6)).all()


@pytest.mark.parametrize("start", [0.0, 2.0], ids=["zero", "far, where steps are rejected"])
def test_trajectory_of_numpy(start):
    x, y = load_wine(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    clients = sites("wine", x[:, :5], (y == 1).astype(int))
    problem = cfl.models.logistic_regression(5, intercept=True).problem(clients)
    first = start * np.array([1, -1, 1, 1, -1, 1])
    problem = problem.with_params({"dense0": {"bias": first[:1], "kernel": first[1:, None]}})
    weight = np.r_[0, np.full(5, WEIGHT)]
    twin = list(newton.prox_newton(first, *newton.pooled(clients), weight, 9))
    rejected = [np.array_equal(a, b) for a, b in itertools.pairwise(twin)]
    assert any(rejected[:5]) == (start > 0)
    for rounds in (1, 2, 3, 5, 9):
        result = solve(problem, L1, rounds=rounds, eval_every=9)
        np.testing.assert_allclose(flat(result.params), twin[rounds - 1], rtol=0, atol=1e-9)


STATIONARY = {
    "mcp": (cfl.MCP(0.05, 3.0), 15),
    "scad": (cfl.SCAD(0.05), 15),
    "group lasso": (cfl.GroupLasso(0.1), 12),
    "nuclear norm": (cfl.NuclearNorm(0.05), 12),
    "box": (cfl.Box(-0.3, 0.5), 12),
}


@pytest.mark.parametrize("name", STATIONARY)
def test_stationary_points(name):
    phi, rounds = STATIONARY[name]
    x, y = load_wine(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    problem = cfl.models.multinomial(5, 3).problem(sites("wine", x[:, :5], y))
    result = solve(problem, unpenalised_bias(phi), rounds=rounds)
    assert result.history.natural_residual_sq.iloc[-1] ** 0.5 < 1e-8
    psi = result.history.psi.to_numpy()
    assert (np.diff(psi) <= 1e-12).all()
    kernel = result.params["dense0"]["kernel"]
    if name == "box":
        assert kernel.min() == -0.3 and kernel.max() == 0.5
    elif name == "nuclear norm":
        assert np.linalg.matrix_rank(kernel, tol=1e-12) < 3
    else:
        assert 0 < np.sum(kernel == 0) < kernel.size


def test_a_network_to_a_stationary_point(network_problem):
    """Not convex: negative eigenvalues count with their absolute values, and psi never rises."""
    result = solve(network_problem, cfl.L1(0.01), rounds=150, eval_every=5)
    psi = result.history.psi.to_numpy()
    assert (np.diff(psi) <= 1e-12).all()
    assert result.history.natural_residual_sq.iloc[-1] ** 0.5 < 1e-6


def test_any_loss_devices_and_trials(lasso_problem):
    """A quadratic is solved by the first step; its Hessian is found by differentiation."""
    phi, options = cfl.L1(0.1), dict(rounds=3, weights="uniform", eval_every=3)
    one = solve(lasso_problem, phi, devices=1, **options)
    np.testing.assert_allclose(one.params, centralised_solution(lasso_problem, 0.1), atol=1e-9)
    start = solve(lasso_problem, phi, devices=1, **options | {"rounds": 1})
    np.testing.assert_array_equal(start.params, lasso_problem.params)
    # All that may differ in one program: every device, a second trial, clients in blocks.
    assert len(jax.devices()) > 1
    several = solve(lasso_problem, phi, trials=2, client_block=2, **options)
    for params in several.params:
        np.testing.assert_allclose(params, one.params, rtol=0, atol=1e-12)


by_differentiation = jax.jit(dense_hessian, static_argnums=0)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", ["linear", "logistic", "multinomial"])
def test_hessians_of_linear_models(name, bias):
    rng = np.random.default_rng(0)
    model = cfl.models.build(name, input_shape=(2, 2), classes=2, intercept=bias)
    batch = rng.normal(size=(7, 2, 2)), rng.integers(0, 2, 7)
    weight = rng.random(7)
    with jax.enable_x64(True):
        shapes = jax.eval_shape(model.init, jax.random.key(0))
        params = jax.tree.map(lambda a: rng.normal(size=a.shape), shapes)
        mean = by_differentiation(lambda p: model.loss(p, batch), params)
        np.testing.assert_allclose(model.loss.hessian(params, batch), mean, atol=1e-13)

        def weighted(params):
            rows = jax.tree.map(lambda a: a[:, None], batch)  # batches of one sample
            return weight @ jax.vmap(model.loss, (None, 0))(params, rows)

        np.testing.assert_allclose(
            model.loss.hessian(params, batch, weight),
            by_differentiation(weighted, params),
            atol=1e-13,
        )


@pytest.mark.parametrize("p", [1, 2, 7])
def test_triangles(p):
    matrix = np.random.default_rng(p).normal(size=(p, p)).astype(np.float32)
    matrix += matrix.T
    triangle = to_triangle(matrix)
    np.testing.assert_array_equal(triangle, matrix[np.tril_indices(p)])
    assert triangle.shape == (triangle_size(p),)
    np.testing.assert_array_equal(from_triangle(triangle), matrix)


def test_costs_and_the_list():
    cost = round_cost(cfl.ProxNewton(), {"a": np.zeros((5, 4)), "b": np.zeros(3)})
    p = 23
    assert cost.bytes_down == 4 * p
    assert cost.bytes_up == 4 * (1 + p + p * (p + 1) // 2)
    assert (cost.gradients_visit, cost.hessians_visit, cost.gradients_step, cost.steps) == (
        1,
        1,
        0,
        0,
    )
    assert (cost.prox_client, cost.prox_server) == (0, 1)
    assert cost.so_far(2, 6, 0)["hessians"] == 6
    names, vectors, _, clients = costs().columns
    row = [str(cell) for cell in names.cells].index("prox-newton")
    assert str(list(vectors.cells)[row]) == "1 / 0.5p"
    assert str(list(clients.cells)[row]) == "all"


REFUSED = [
    (dict(participation=3), "compares the losses of two rounds"),
    (dict(dropout=0.1), "compares the losses of two rounds"),
    (dict(stragglers=0.5), "it has none that a client could leave out"),
]


@pytest.mark.parametrize(("options", "why"), REFUSED, ids=str)
def test_what_does_not_go_together(lasso_problem, options, why):
    with pytest.raises(cfl.CompositeFLError, match=why):
        solve(lasso_problem, None, **options)


def test_losses_without_hessian(network_problem):
    wide = cfl.models.linear_regression(LARGEST + 1).problem(
        [(np.zeros((2, LARGEST + 1)), np.zeros(2))]
    )
    with pytest.raises(cfl.CompositeFLError, match=r"2,001 parameters \(16 MB .* 2,000. FedNMap"):
        solve(wide, None)
    coupled = cfl.Problem(
        network_problem.loss, network_problem.params, network_problem.clients, coupled_batch=4
    )
    with pytest.raises(cfl.CompositeFLError, match="couples its samples"):
        solve(coupled, None)
    with pytest.raises(cfl.CompositeFLError, match="damping=-1 must be"):
        cfl.ProxNewton(damping=-1)
