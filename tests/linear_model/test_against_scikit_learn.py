"""The fit over sites is scikit-learn's fit of the pooled table, to 1e-6 of the largest coefficient.

Both see features in standard units where scikit-learn's solvers need them to be precise; `wild`
tables go to the library as they are, with the reference scaled back by hand.
"""

import numpy as np
import pytest
import sklearn.linear_model as sk
from scipy.optimize import minimize
from sklearn.linear_model._huber import _huber_loss_and_gradient

from compositefl.linear_model import (
    ElasticNet,
    GammaRegressor,
    HuberRegressor,
    Lasso,
    LogisticRegression,
    PoissonRegressor,
)
from tests.linear_model import tables


def assert_close(found, wanted, tolerance=1e-6):
    wanted = np.asarray(wanted)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * np.abs(wanted).max())


def deviation(X):
    """1 for a constant column, whose coefficient is zero anyway."""
    found = X.std(axis=0)
    return np.where(found > 0, found, 1.0)


def in_units(reference, X):
    """Coefficients and intercepts of a fit to standardised features, in the units of X."""
    coef = reference.coef_ / X.std(axis=0)
    return coef, reference.intercept_ - coef @ X.mean(axis=0)


@pytest.mark.parametrize("l1_ratio", [0.0, 0.5, 1.0])
def test_two_classes(l1_ratio):
    # newton-cholesky is quadratic near its end; saga runs until its steps are below 1e-12.
    X, y = tables.breast_cancer()
    Z, alpha = tables.standardised(X), 0.05
    solver = "saga" if l1_ratio else "newton-cholesky"
    reference = sk.LogisticRegression(
        C=1 / (alpha * len(y)), l1_ratio=l1_ratio, solver=solver, tol=1e-12, max_iter=20_000
    ).fit(Z, y)
    model = LogisticRegression(alpha, l1_ratio=l1_ratio)
    model.fit(X, y, sites=tables.differing_sites(X, y, classes=True))
    coef, intercept = in_units(reference, X)
    assert_close(model.coef_ * X.std(axis=0), coef * X.std(axis=0))
    assert_close(model.intercept_, intercept)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(Z), atol=1e-6)
    assert model.n_iter_ <= 15


@pytest.mark.parametrize(("table", "alpha"), [("wine", 0.01), ("digits", 0.01)])
def test_several_classes(table, alpha):
    # newton-cholesky for several classes drops a redundant one; its ridge makes them unique.
    X, y = getattr(tables, table)()
    Z = tables.standardised(X)
    reference = sk.LogisticRegression(
        C=1 / (alpha * len(y)), l1_ratio=0, solver="newton-cholesky", tol=1e-12, max_iter=200
    ).fit(Z, y)
    model = LogisticRegression(alpha, l1_ratio=0.0)
    model.fit(X, y, sites=tables.differing_sites(X, y, classes=True))
    assert_close(model.coef_ * deviation(X), reference.coef_)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(Z), atol=1e-6)
    assert (model.predict(X) == reference.predict(Z)).all()
    assert model.n_iter_ <= 15


def test_several_classes_with_an_elastic_net():
    # saga until its steps are below 1e-12.
    X, y = tables.wine()
    Z, alpha = tables.standardised(X), 0.05
    reference = sk.LogisticRegression(
        C=1 / (alpha * len(y)), l1_ratio=0.7, solver="saga", tol=1e-12, max_iter=20_000
    ).fit(Z, y)
    model = LogisticRegression(alpha, l1_ratio=0.7)
    model.fit(X, y, sites=tables.differing_sites(X, y, classes=True))
    assert_close(model.coef_ * X.std(axis=0), reference.coef_)
    np.testing.assert_allclose(model.predict_proba(X), reference.predict_proba(Z), atol=1e-6)


@pytest.mark.parametrize("l1_ratio", [0.3, 1.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_least_squares(l1_ratio, fit_intercept):
    # Coordinate descent until the duality gap is below 1e-14 of the variance.
    X, y = tables.diabetes()
    alpha = 2.0
    reference = sk.ElasticNet(
        alpha=alpha, l1_ratio=l1_ratio, fit_intercept=fit_intercept, tol=1e-14, max_iter=10**6
    ).fit(tables.standardised(X), y)
    model = ElasticNet(
        alpha, l1_ratio=l1_ratio, fit_intercept=fit_intercept, standardize=False
    ).fit(tables.standardised(X), y, sites=tables.differing_sites(X, y))
    assert_close(model.coef_, reference.coef_)
    assert model.intercept_ == pytest.approx(reference.intercept_, abs=1e-6)
    assert model.n_iter_ <= 15


def test_the_lasso_is_the_elastic_net_without_its_square():
    X, y = tables.diabetes()
    lasso, net = Lasso(1.5).fit(X, y), ElasticNet(1.5, l1_ratio=1.0).fit(X, y)
    np.testing.assert_array_equal(lasso.coef_, net.coef_)
    assert 0 < np.sum(lasso.coef_ == 0) < 10


@pytest.mark.parametrize("kind", ["poisson", "gamma"])
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_counts_and_positive_numbers_at_wild_scales(kind, alpha):
    # newton-cholesky on standardised features is quadratic near its end.
    X, eta = tables.wild()
    rng = np.random.default_rng(1)
    mean = np.exp(0.5 + eta)
    y = rng.poisson(mean) if kind == "poisson" else rng.gamma(2.0, mean / 2)
    ours, theirs = {
        "poisson": (PoissonRegressor, sk.PoissonRegressor),
        "gamma": (GammaRegressor, sk.GammaRegressor),
    }[kind]
    Z = tables.standardised(X)
    reference = theirs(alpha=alpha, solver="newton-cholesky", tol=1e-12).fit(Z, y)
    model = ours(alpha).fit(X, y, sites=tables.differing_sites(X, y))
    assert_close(model.coef_ * X.std(axis=0), reference.coef_)
    np.testing.assert_allclose(model.predict(X), reference.predict(Z), rtol=1e-6)
    assert model.score(X, y) == pytest.approx(reference.score(Z, y), abs=1e-9)
    assert model.n_iter_ <= 15


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_outliers(alpha):
    # scikit-learn ends when its objective hardly falls, at four digits: L-BFGS goes on from there
    # with its objective until nothing falls.
    X, y = tables.diabetes()
    Z, y = tables.standardised(X), y / y.std()
    y[::25] += 10.0
    reference = sk.HuberRegressor(epsilon=1.5, alpha=alpha, tol=1e-10, max_iter=10_000).fit(Z, y)
    start = np.concatenate([reference.coef_, [reference.intercept_, reference.scale_]])
    for _ in range(3):
        start = minimize(
            _huber_loss_and_gradient,
            start,
            args=(Z, y, 1.5, alpha, np.ones(len(y))),
            jac=True,
            method="BFGS",
            options={"gtol": 1e-10},
        ).x
    model = HuberRegressor(alpha / len(y), epsilon=1.5, standardize=False)
    model.fit(Z, y, sites=tables.differing_sites(X, y))
    assert_close(model.coef_, start[:-2])
    assert model.intercept_ == pytest.approx(start[-2], rel=1e-6)
    assert model.scale_ == pytest.approx(start[-1], rel=1e-6)


@pytest.mark.filterwarnings("error")
def test_least_squares_at_wild_scales():
    # Both at alpha = 0, where the pseudo-inverse of standardised features is the answer.
    X, eta = tables.wild()
    y = 1e4 + 1e-3 * (eta + np.random.default_rng(2).standard_normal(len(eta)))
    Z = tables.standardised(X)
    wanted = np.linalg.lstsq(Z, y - y.mean(), rcond=None)[0]
    model = ElasticNet(0.0).fit(X, y, sites=tables.differing_sites(X, y))
    assert_close(model.coef_ * X.std(axis=0), wanted)


def test_two_classes_at_wild_scales():
    # newton-cholesky on standardised features, without a penalty.
    X, eta = tables.wild()
    y = np.random.default_rng(3).random(len(eta)) < 1 / (1 + np.exp(-eta))
    reference = sk.LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12)
    reference.fit(tables.standardised(X), y)
    model = LogisticRegression(0.0)
    model.fit(X, y, sites=tables.differing_sites(X, y.astype(int), classes=True))
    assert_close(model.coef_ * X.std(axis=0), reference.coef_)
