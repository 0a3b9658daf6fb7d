"""What must not change a fit, or change it in a known way."""

import numpy as np
import pytest
from scipy import sparse

from compositefl.linear_model import (
    CoxRegression,
    ElasticNet,
    GammaRegressor,
    HuberRegressor,
    LogisticRegression,
    PoissonRegressor,
)
from tests.linear_model import tables


def table(kind, n=200):
    """(estimator, X, y) of a family."""
    X, eta = tables.wild(n)
    rng = np.random.default_rng(5)
    if kind == "gaussian":
        return ElasticNet(0.05, l1_ratio=0.7), X, eta + rng.standard_normal(n)
    if kind == "binomial":
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
        return LogisticRegression(0.03, l1_ratio=0.7), X, y
    if kind == "multinomial":
        y = np.digitize(eta + rng.standard_normal(n), [-0.5, 0.7])
        return LogisticRegression(0.02, l1_ratio=0.7), X, y
    if kind == "poisson":
        return PoissonRegressor(0.05, l1_ratio=0.7), X, rng.poisson(np.exp(0.5 + eta)).astype(float)
    if kind == "gamma":
        return GammaRegressor(0.15, l1_ratio=0.7), X, rng.gamma(2.0, np.exp(eta) / 2)
    if kind == "huber":
        y = eta + rng.standard_t(2, n)
        return HuberRegressor(0.02, l1_ratio=0.7), X, y
    return CoxRegression(0.02, l1_ratio=0.7), X, np.column_stack(tables.survival_times(eta))


KINDS = ["gaussian", "binomial", "multinomial", "poisson", "gamma", "huber", "cox"]
INDEPENDENT = KINDS[:-1]  # the strata of a Cox model are its sites, so its fit depends on them


def in_standard_units(model, X):
    return np.atleast_2d(model.coef_) * X.std(axis=0)


def assert_same(model, other, X, tolerance=1e-10):
    wanted = in_standard_units(other, X)
    assert np.abs(wanted).max() > 0.01  # there is something to compare
    assert (wanted == 0).any()
    np.testing.assert_allclose(
        in_standard_units(model, X), wanted, rtol=0, atol=tolerance * np.abs(wanted).max()
    )


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_any_split_into_sites_gives_the_same_coefficients(kind):
    model, X, y = table(kind)
    model.set_params(tol=1e-12)
    pooled = model.fit(X, y)
    whole = in_standard_units(pooled, X)
    random = np.random.default_rng(6).integers(7, size=len(y)).astype(str)
    each_its_own = np.arange(len(y)) % 60
    for sites in (tables.differing_sites(X, y, classes=y.dtype.kind == "i"), random, each_its_own):
        split = type(model)(**model.get_params()).fit(X, y, sites=sites)
        assert_same(split, pooled, X)
        assert split.sites_ == sorted(set(map(str, sites)))
    np.testing.assert_array_equal(whole, in_standard_units(pooled, X))


@pytest.mark.parametrize("kind", KINDS)
def test_standardize_is_scaling_by_hand(kind):
    model, X, y = table(kind)
    model.set_params(tol=1e-12).fit(X, y)
    by_hand = type(model)(**model.get_params() | {"standardize": False})
    Z = tables.standardised(X)
    by_hand.fit(Z, y)
    by_hand.coef_ = by_hand.coef_ / X.std(axis=0)
    assert_same(model, by_hand, X, 1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_weights_are_repetitions(kind):
    model, X, y = table(kind)
    model.set_params(tol=1e-12)
    weight = np.random.default_rng(7).integers(4, size=len(y))
    site = np.arange(len(y)) % 3
    again = np.repeat(np.arange(len(y)), weight)
    repeated = type(model)(**model.get_params()).fit(X[again], y[again], sites=site[again])
    model.fit(X, y, sites=site, sample_weight=weight)
    assert_same(model, repeated, X)


@pytest.mark.parametrize("kind", KINDS)
def test_a_factor_common_to_all_weights_changes_nothing(kind):
    model, X, y = table(kind)
    model.set_params(tol=1e-12)
    scaled = type(model)(**model.get_params()).fit(X, y, sample_weight=np.full(len(y), 1e-5))
    assert_same(scaled, model.fit(X, y), X)


@pytest.mark.parametrize("kind", [k for k in KINDS if k != "multinomial"])
def test_an_offset_shifts_the_predictor(kind):
    """With an offset X c, b is what is left of an unpenalised solution: b + c is the solution."""
    model, X, y = table(kind)
    model.set_params(alpha=0.0, tol=1e-12)
    known = np.linspace(-0.5, 0.5, X.shape[1]) / X.std(axis=0)
    shifted = type(model)(**model.get_params())
    shifted.fit(X, y, offset=(X - X.mean(axis=0)) @ known)
    model.fit(X, y)
    np.testing.assert_allclose(
        in_standard_units(shifted, X) + known * X.std(axis=0),
        in_standard_units(model, X),
        atol=1e-8,
    )


def test_a_constant_offset_is_part_of_the_intercept():
    model, X, y = table("poisson")
    plain = PoissonRegressor(**model.get_params()).fit(X, y)
    model.fit(X, y, offset=2.0)
    assert model.intercept_ + 2.0 == pytest.approx(plain.intercept_, rel=1e-9)
    assert_same(model, plain, X, 1e-8)


@pytest.mark.parametrize("kind", KINDS)
def test_penalty_factors_are_scaled_columns(kind):
    """l1 with factors f is l1 for the columns divided by f."""
    model, X, y = table(kind)
    Z = tables.standardised(X)
    factor = np.linspace(0.3, 2.5, X.shape[1])
    model.set_params(l1_ratio=1.0, tol=1e-12, standardize=False)
    scaled = type(model)(**model.get_params()).fit(Z / factor, y)
    model.set_params(penalty_factor=factor).fit(Z, y)
    np.testing.assert_allclose(
        np.atleast_2d(model.coef_), np.atleast_2d(scaled.coef_) / factor, atol=1e-9
    )


def test_a_penalty_factor_of_zero_leaves_a_feature_unpenalised():
    model, X, y = table("binomial")
    factor = np.ones(X.shape[1])
    factor[2] = 0.0
    model.set_params(alpha=10.0, penalty_factor=factor).fit(X, y)
    alone = LogisticRegression(0.0).fit(X[:, 2:3], y)
    assert model.coef_[0, 2] == pytest.approx(alone.coef_[0, 0], rel=1e-7)
    assert np.flatnonzero(model.coef_[0]).tolist() == [2]


@pytest.mark.parametrize("standardize", [True, False])
@pytest.mark.parametrize("alpha", [0.0, 0.05])
@pytest.mark.parametrize("kind", ["gaussian", "binomial", "poisson"])
def test_an_unpenalised_column_of_ones_is_an_intercept(kind, alpha, standardize):
    """As statsmodels has it; the units of the other columns are the same."""
    model, X, y = table(kind)
    Z = tables.standardised(X) * np.linspace(0.5, 3.0, X.shape[1]) + 0.5
    model.set_params(alpha=alpha, standardize=standardize)
    wanted = type(model)(**model.get_params()).fit(Z, y)
    factor = np.r_[0.0, np.ones(X.shape[1])]
    model.set_params(fit_intercept=False, penalty_factor=factor if alpha else None)
    model.fit(np.column_stack([np.ones(len(y)), Z]), y, sites=np.arange(len(y)) % 3)
    found = np.ravel(model.coef_)
    np.testing.assert_allclose(found[0], np.ravel(wanted.intercept_)[0], atol=1e-8)
    np.testing.assert_allclose(found[1:], np.ravel(wanted.coef_), atol=1e-8)
    if alpha == 0:
        errors, others = (m.summary().frame["std. error"].to_numpy() for m in (model, wanted))
        np.testing.assert_allclose(errors, others, rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_sparse_tables_are_dense_ones(kind):
    model, X, y = table(kind)
    Z = np.where(np.random.default_rng(8).random(X.shape) < 0.04, tables.standardised(X), 0.0)
    Z[:, :2] = tables.standardised(X)[:, :2]
    Z *= np.geomspace(1e-3, 1e3, X.shape[1])
    Z = np.hstack([Z, np.zeros((len(Z), 30))])  # sparse enough to stay sparse
    model.set_params(alpha=0.01, tol=1e-12)
    dense = type(model)(**model.get_params()).fit(Z, y)
    for form in (sparse.csr_matrix, sparse.csr_array, sparse.csc_matrix):
        model.fit(form(Z), y, sites=np.zeros(len(y)))
        assert_same(model, dense, Z, 1e-9)


@pytest.mark.parametrize("kind", INDEPENDENT)
def test_bounds_are_met_and_worth_what_they_cost(kind):
    """At a bound the gradient pushes outwards; inside it balances the penalty."""
    model, X, y = table(kind)
    Z = tables.standardised(X)
    lower, upper = np.full(X.shape[1], -0.05), np.full(X.shape[1], 0.1)
    lower[0], upper[1] = 0.0, np.inf
    model.set_params(tol=1e-11, alpha=0.01, standardize=False, bounds=(lower, upper)).fit(Z, y)
    b = np.atleast_2d(model.coef_)
    assert ((b >= lower) & (b <= upper)).all()
    assert (b == upper).any() or (b == lower).any()

    def objective(c):
        """The mean loss and penalty with other coefficients."""
        other = type(model)(**model.get_params())
        other.__dict__ |= {"coef_": c.reshape(model.coef_.shape), "intercept_": model.intercept_}
        if hasattr(model, "classes_"):
            other.classes_ = model.classes_
        other.n_features_in_ = X.shape[1]
        eta = other._linear_predictor(Z)
        family = model._family(len(np.unique(y)) if hasattr(model, "classes_") else 2)
        if family.has_scale:
            eta = np.column_stack([eta, np.full(len(y), model.scale_)])
        penalty = 0.7 * np.abs(c).sum() + 0.15 * (c**2).sum()
        return family.losses(eta, np.asarray(y, float)).mean() + 0.01 * penalty

    best, step = objective(b), 1e-5
    for at in np.ndindex(b.shape):
        for way in (-step, step):
            moved = b.copy()
            moved[at] = np.clip(moved[at] + way, lower[at[1]], upper[at[1]])
            assert objective(moved) >= best - 1e-14


def test_positive_is_a_lower_bound_of_zero():
    model, X, y = table("gaussian")
    model.set_params(positive=True).fit(X, y)
    bounded = ElasticNet(0.05, l1_ratio=0.7, bounds=(0, None)).fit(X, y)
    np.testing.assert_array_equal(model.coef_, bounded.coef_)
    assert (model.coef_ >= 0).all() and (model.coef_ > 0).any()


@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_a_site_of_a_cox_model_is_a_stratum(alpha):
    """Its fit depends on the strata, but not on the order of the rows or of the sites."""
    model, X, y = table("cox")
    model.set_params(alpha=alpha, tol=1e-12)
    site = np.arange(len(y)) % 4
    first = in_standard_units(model.fit(X, y, sites=site), X)
    order = np.random.default_rng(9).permutation(len(y))
    names = np.array(["d", "b", "a", "c"])[site]
    again = in_standard_units(model.fit(X[order], y[order], sites=names[order]), X)
    np.testing.assert_allclose(again, first, atol=1e-10)


def test_a_site_without_events_adds_nothing_to_a_cox_model():
    model, X, y = table("cox")
    model.set_params(alpha=0.0, standardize=False, tol=1e-12)
    site = (np.arange(len(y)) % 4).astype(str)
    y[site == "3", 1] = 0
    kept = site != "3"
    without = CoxRegression(**model.get_params()).fit(X[kept], y[kept], sites=site[kept])
    model.fit(X, y, sites=site)
    np.testing.assert_allclose(model.coef_, without.coef_, rtol=1e-8)


def test_a_far_offset_of_a_cox_model_changes_nothing():
    model, X, y = table("cox")
    plain = CoxRegression(**model.get_params()).fit(X, y)
    model.fit(X, y, offset=-2000.0)
    assert_same(model, plain, X, 1e-8)
