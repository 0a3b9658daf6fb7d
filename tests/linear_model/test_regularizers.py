"""Regularisers of the library in estimators: stationary points, and those of skglm.

The tables are such that the whole objective is convex although MCP and SCAD are not: the stationary
point is the minimiser, and both must find it.
"""

import os
import re

import numpy as np
import pytest

from compositefl import GroupLasso
from compositefl.core.errors import CompositeFLError
from compositefl.linear_model import ElasticNet, ElasticNetCV, LogisticRegression
from compositefl.linear_model.base import GeneralizedLinearModel
from compositefl.regularizers import MCP, SCAD
from tests.linear_model import tables

RNG = np.random.default_rng(30)
X = tables.standardised(RNG.standard_normal((200, 6)))
Y = X @ [2.0, -1.0, 0.3, 0.15, 0.0, 0.0] + 0.5 * RNG.standard_normal(200)
SITES = np.arange(200) % 3
slow = pytest.mark.skipif(
    not os.environ.get("COMPOSITEFL_SLOW_TESTS"), reason="numba compiles; COMPOSITEFL_SLOW_TESTS=1"
)
GROUPS = [0, 0, 1, 1, 2, 2]
PENALTIES = {
    "mcp": (ElasticNet(0.2, penalty="mcp"), MCP(0.2, 3.0)),
    "scad": (ElasticNet(0.2, penalty="scad"), SCAD(0.2, 3.7)),
    "groups": (ElasticNet(penalty=GroupLasso(0.3, groups=GROUPS)), GroupLasso(0.3, groups=GROUPS)),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", PENALTIES)
def test_the_natural_residual_vanishes(name):
    """b = prox(b - t grad f(b)) with t below 1 / rho."""
    import jax

    model, phi = PENALTIES[name]
    model.fit(X, Y, sites=SITES)
    gradient = X.T @ (model.predict(X) - Y) / len(Y)
    step = min(1.0, 0.5 * float(phi.max_prox))
    with jax.enable_x64(True):
        moved = np.asarray(phi.prox(model.coef_ - step * gradient, step))
    np.testing.assert_allclose(moved, model.coef_, atol=1e-8)
    assert (model.coef_ == 0).any() and np.abs(model.coef_).max() > 1
    assert model.n_iter_ <= 15


def descent(kind, alpha, factors, X, y):
    """Plain coordinate descent as ncvreg's, lambda times a factor of each feature."""
    n, p = X.shape
    b, centre = np.zeros(p), y.mean()
    for _ in range(2000):
        for j in range(p):
            size = np.mean(X[:, j] ** 2)
            z = X[:, j] @ (y - centre - X @ b) / n + size * b[j]
            b[j] = one_entry(kind, z, size, alpha * factors[j])
    return b


def one_entry(kind, z, size, weight):
    """The minimiser of size t^2 / 2 - z t + penalty(|t|), tried on every piece of the penalty."""
    soft = np.sign(z) * max(abs(z) - weight, 0.0) / size
    if kind == "mcp":
        bent = np.sign(z) * max(abs(z) - weight, 0.0) / (size - 1 / 3.0)
        return bent if abs(bent) <= 3.0 * weight else z / size
    if abs(soft) <= weight:
        return soft
    bent = (z - np.sign(z) * 3.7 * weight / 2.7) / (size - 1 / 2.7)
    return bent if abs(bent) <= 3.7 * weight else z / size


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kind", ["mcp", "scad"])
def test_a_factor_for_every_feature(kind):
    """An unpenalised feature, one with half a weight and one with twice as much."""
    factors = np.array([1.0, 0.5, 0.0, 2.0, 1.0, 0.0])
    model = ElasticNet(0.2, penalty=kind, penalty_factor=factors).fit(X, Y, sites=SITES)
    wanted = descent(kind, 0.2, factors, X, Y)
    np.testing.assert_allclose(model.coef_, wanted, atol=1e-8)
    assert (model.coef_[[3, 4]] == 0).all() and (model.coef_[[2, 5]] != 0).all()
    ones = ElasticNet(0.2, penalty=kind, penalty_factor=np.ones(6)).fit(X, Y, sites=SITES)
    np.testing.assert_allclose(ones.coef_, PENALTIES[kind][0].fit(X, Y).coef_, atol=1e-12)


@pytest.mark.filterwarnings("error")
def test_a_path_with_an_unpenalised_feature():
    """It begins where all others leave zero: at the largest slope of the fit to that feature."""
    factors = np.array([0.0, 1.0, 1.0, 2.0, 1.0, 1.0])
    kind = {"penalty": "mcp", "penalty_factor": factors}
    model = ElasticNetCV(**kind, cv=3, alphas=5, eps=0.05).fit(X, Y, sites=SITES)
    slope = X[:, 0] @ (Y - Y.mean()) / (X[:, 0] @ X[:, 0])
    pull = np.abs(X.T @ (Y - Y.mean() - X[:, 0] * slope)) / len(Y)
    assert model.alpha_max_ == pytest.approx((pull[1:] / factors[1:]).max(), rel=1e-6)
    np.testing.assert_allclose(model.coef_path_[:, 0], [slope, 0, 0, 0, 0, 0], atol=1e-6)
    for alpha, b in zip(model.alphas_, model.coef_path_.T, strict=True):
        np.testing.assert_allclose(b, descent("mcp", alpha, factors, X, Y), atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_the_weights_of_an_object_are_factors_on_a_path():
    factors = np.array([0.0, 1.0, 1.0, 2.0, 1.0, 1.0])
    path = {"cv": 3, "alphas": 4, "eps": 0.05}
    named = ElasticNetCV(penalty="mcp", penalty_factor=factors, **path).fit(X, Y)
    model = ElasticNetCV(penalty=MCP(factors, 3.0), **path).fit(X, Y)
    assert model.alpha_max_ == named.alpha_max_
    np.testing.assert_array_equal(model.coef_path_, named.coef_path_)
    with pytest.raises(CompositeFLError, match="own weights"):
        ElasticNetCV(penalty=MCP(factors, 3.0), penalty_factor=factors, **path).fit(X, Y)


@pytest.mark.filterwarnings("error")
def test_factors_of_several_classes():
    """Without a penalty the gradient of every class vanishes at the free feature alone."""
    y = np.digitize(Y, [-1.0, 1.0])
    factors = [0.0, 1.0, 1.0, 1.0, 1.0, 50.0]
    model = LogisticRegression(0.05, penalty="scad", penalty_factor=factors).fit(X, y, sites=SITES)
    gradient = (model.predict_proba(X) - np.eye(3)[y]).T @ X / len(y)
    np.testing.assert_allclose(gradient[:, 0], 0.0, atol=1e-8)
    assert (model.coef_[:, 5] == 0).all() and (model.coef_[:, 0] != 0).all()


@pytest.mark.parametrize("penalty", ["mcp:0.1,3", GroupLasso(0.1, groups=GROUPS)])
def test_factors_of_a_penalty_with_its_own_numbers_are_refused(penalty):
    with pytest.raises(CompositeFLError, match="own weights; penalty factors belong to"):
        ElasticNet(penalty=penalty, penalty_factor=np.ones(6)).fit(X, Y)
    with pytest.raises(CompositeFLError, match="has no bounds"):
        ElasticNet(penalty=penalty, positive=True).fit(X, Y)


def test_more_features_than_a_penalty_takes():
    """A larger alpha would not help: the subproblem of MCP has all features."""
    wide = np.random.default_rng(32).standard_normal((5, 4001))
    with pytest.raises(CompositeFLError, match=r"MCP.* of all 4,001 coefficients"):
        ElasticNet(penalty="mcp").fit(wide, wide[:, 0])


@pytest.mark.parametrize("penalty", ["simplex:1", "box:0.1,0.5"])
def test_a_set_without_zero_is_refused(penalty):
    with pytest.raises(CompositeFLError, match="does not allow coefficients of zero"):
        ElasticNet(penalty=penalty).fit(X, Y, sites=SITES)


def test_classes_with_mcp():
    import jax

    y = (np.random.default_rng(31).random(200) < 1 / (1 + np.exp(-Y))).astype(int)
    model = LogisticRegression(0.05, penalty="mcp").fit(X, y, sites=SITES)
    phi = MCP(0.05, 3.0)
    gradient = X.T @ (model.predict_proba(X)[:, 1] - y) / len(y)
    with jax.enable_x64(True):
        moved = np.asarray(phi.prox(model.coef_[0] - gradient, 1.0))
    np.testing.assert_allclose(moved, model.coef_[0], atol=1e-8)
    assert (model.coef_ == 0).any()


@pytest.mark.parametrize("name", [pytest.param(name, marks=slow) for name in PENALTIES])
def test_skglm_finds_the_same(name):
    # Its working sets end when the violation of stationarity is below 1e-12.
    from skglm import GeneralizedLinearEstimator
    from skglm.datafits import Quadratic, QuadraticGroup
    from skglm.penalties import SCAD as SCADPenalty
    from skglm.penalties import MCPenalty, WeightedGroupL2
    from skglm.solvers import AndersonCD, GroupBCD

    if name == "groups":
        indices, edges = np.arange(6, dtype=np.int32), np.arange(0, 7, 2, dtype=np.int32)
        datafit = QuadraticGroup(edges, indices)
        penalty = WeightedGroupL2(0.3, np.ones(3), edges, indices)
        solver = GroupBCD(tol=1e-12, max_iter=1000, fit_intercept=True)
    else:
        datafit = Quadratic()
        penalty = MCPenalty(0.2, 3.0) if name == "mcp" else SCADPenalty(0.2, 3.7)
        solver = AndersonCD(tol=1e-12, max_iter=1000)
    reference = GeneralizedLinearEstimator(datafit, penalty, solver).fit(X, Y)
    model = PENALTIES[name][0].fit(X, Y, sites=SITES)
    np.testing.assert_allclose(model.coef_, reference.coef_, atol=1e-6)
    np.testing.assert_allclose(model.intercept_, reference.intercept_, atol=1e-6)


def test_the_example_of_the_docstring_fits_one_output():
    """A group lasso in words has rows as groups, which only several classes have."""
    example = re.search('text such as "(.*?)"', GeneralizedLinearModel.__doc__)[1]
    assert np.isfinite(ElasticNet(penalty=example).fit(X, Y).coef_).all()
