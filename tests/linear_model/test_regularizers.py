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
from compositefl.linear_model import ElasticNet, LogisticRegression
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
