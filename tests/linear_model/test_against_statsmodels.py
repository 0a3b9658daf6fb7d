"""Estimates, standard errors and intervals of unpenalised fits are those of statsmodels.

statsmodels iterates its GLMs until the deviance stands still to 1e-14 and PHReg until its steps
are below 1e-12, on features in standard units where the table has wild ones.
"""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats

from compositefl.linear_model import (
    CoxRegression,
    ElasticNet,
    GammaRegressor,
    LogisticRegression,
    PoissonRegressor,
)
from tests.linear_model import tables

ESTIMATORS = {
    "gaussian": (ElasticNet, sm.families.Gaussian()),
    "binomial": (LogisticRegression, sm.families.Binomial()),
    "poisson": (PoissonRegressor, sm.families.Poisson()),
    "gamma": (GammaRegressor, sm.families.Gamma(sm.families.links.Log())),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_standard_errors(name, weighted):
    X, eta = tables.wild()
    rng = np.random.default_rng(4)
    y = {
        "gaussian": lambda: eta + rng.standard_normal(len(eta)),
        "binomial": lambda: (rng.random(len(eta)) < 1 / (1 + np.exp(-eta))).astype(float),
        "poisson": lambda: rng.poisson(np.exp(eta)).astype(float),
        "gamma": lambda: rng.gamma(3.0, np.exp(eta) / 3),
    }[name]()
    ours, family = ESTIMATORS[name]
    weight = rng.integers(1, 4, len(y)).astype(float) if weighted else np.ones(len(y))
    offset = 0.1 * rng.standard_normal(len(y))
    design = np.column_stack([np.ones(len(y)), tables.standardised(X)])
    reference = sm.GLM(y, design, family=family, offset=offset, var_weights=weight)
    reference = reference.fit(tol=1e-14, maxiter=100)
    model = ours(0.0)
    site = tables.differing_sites(X, y, classes=name == "binomial")
    model.fit(X, y, sites=site, sample_weight=weight, offset=offset)
    units = X.std(axis=0)
    np.testing.assert_allclose(np.ravel(model.coef_) * units, reference.params[1:], atol=1e-6)
    table = model.summary().frame
    np.testing.assert_allclose(table["std. error"][1:] * units, reference.bse[1:], rtol=1e-6)
    statistic = "t" if name in ("gaussian", "gamma") else "z"
    np.testing.assert_allclose(table[statistic][1:], reference.tvalues[1:], rtol=1e-5, atol=1e-5)
    law = stats.t(len(y) - 9) if statistic == "t" else stats.norm
    reach = law.ppf(0.975) * reference.bse[1:]
    np.testing.assert_allclose(
        table["upper 95 %"][1:] * units, reference.params[1:] + reach, rtol=1e-5
    )


@pytest.mark.parametrize("name", ["poisson", "gamma"])
def test_the_null_model_of_a_score_has_the_offset(name):
    """D^2 is one minus deviance over null deviance, which both have the exposure in them."""
    rng = np.random.default_rng(5)
    X, exposure = rng.standard_normal((200, 2)), rng.uniform(0.1, 10.0, 200)
    mean = exposure * np.exp(X @ [0.4, -0.2])
    y = rng.poisson(mean).astype(float) if name == "poisson" else rng.gamma(3.0, mean / 3)
    weight = rng.integers(1, 4, 200).astype(float)
    ours, family = ESTIMATORS[name]
    design, shift = sm.add_constant(X), np.log(exposure)
    reference = sm.GLM(y, design, family=family, offset=shift, var_weights=weight)
    reference = reference.fit(tol=1e-14, maxiter=100)
    model = ours(0.0).fit(X, y, sample_weight=weight, offset=shift)
    score = model.score(X, y, sample_weight=weight, offset=shift)
    assert score == pytest.approx(1 - reference.deviance / reference.null_deviance, rel=1e-6)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("largest", [2.0, 1e4, 1e7])
def test_exposures_of_very_different_size(largest):
    """One site has single patients, another rows of many person-years."""
    rng = np.random.default_rng(3)
    X = rng.standard_normal((600, 3))
    registry = np.arange(600) >= 570
    years = np.where(registry, largest, 1.0) * rng.uniform(0.01, 2, 600)
    y = rng.poisson(years * np.exp(-1 + X @ [0.3, -0.2, 0.1])).astype(float)
    reference = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson(), offset=np.log(years))
    reference = reference.fit(tol=1e-15, maxiter=200)
    model = PoissonRegressor(0.0).fit(X, y, sites=registry, offset=np.log(years))
    assert np.abs((model.coef_ - reference.params[1:]) / reference.bse[1:]).max() < 1e-6
    np.testing.assert_allclose(model.summary().frame["std. error"], reference.bse, rtol=1e-6)


@pytest.mark.filterwarnings("error")
def test_one_event_for_every_exposure():
    """A constant target is no reason to refuse where the offset differs."""
    X, eta = tables.wild(200)
    waited = np.log(np.random.default_rng(8).exponential(np.exp(-eta)))
    Z = tables.standardised(X)
    model = PoissonRegressor(0.0).fit(Z, np.ones(200), sites=np.arange(200) % 3, offset=waited)
    reference = sm.GLM(np.ones(200), sm.add_constant(Z), sm.families.Poisson(), offset=waited)
    reference = reference.fit(tol=1e-13)
    np.testing.assert_allclose(np.r_[model.intercept_, model.coef_], reference.params, atol=1e-8)
    np.testing.assert_allclose(model.summary().frame["std. error"], reference.bse, rtol=1e-6)


def test_wild_offsets_are_no_separation():
    rng = np.random.default_rng(0)
    X, offset = rng.standard_normal((700, 5)), 7 * rng.standard_normal(700)
    y = rng.poisson(np.minimum(np.exp(offset - 6 + X @ [0.5, -0.3, 0.2, 0.0, 0.1]), 1e8))
    reference = sm.GLM(y, sm.add_constant(X), family=sm.families.Poisson(), offset=offset)
    reference = reference.fit(tol=1e-15, maxiter=300)
    model = PoissonRegressor(0.0).fit(X, y, offset=offset)
    assert np.abs((model.coef_ - reference.params[1:]) / reference.bse[1:]).max() < 1e-4


@pytest.mark.parametrize("name", ["gaussian", "gamma"])
def test_rows_without_a_weight_do_not_count(name):
    rng = np.random.default_rng(6)
    X = rng.standard_normal((90, 3))
    y = rng.gamma(3.0, np.exp(X @ [0.2, 0.1, 0.0]))
    weight = (np.arange(90) % 3 > 0).astype(float)
    there = weight > 0
    some = ESTIMATORS[name][0](0.0).fit(X[there], y[there])
    every = ESTIMATORS[name][0](0.0).fit(X, y, sample_weight=weight)
    columns = ["coefficient", "std. error", "p-value"]
    np.testing.assert_allclose(
        every.summary().frame[columns], some.summary().frame[columns], rtol=1e-9
    )


def test_the_intercept_and_its_error_are_in_original_units():
    X, y = tables.diabetes()
    reference = sm.OLS(y, sm.add_constant(X)).fit()
    table = ElasticNet(0.0).fit(X, y, sites=tables.differing_sites(X, y)).summary().frame
    np.testing.assert_allclose(table["coefficient"], reference.params, rtol=1e-6)
    np.testing.assert_allclose(table["std. error"], reference.bse, rtol=1e-6)
    np.testing.assert_allclose(table["p-value"], reference.pvalues, rtol=1e-5, atol=1e-12)


@pytest.mark.filterwarnings("ignore:the data do not determine")
def test_what_collinear_columns_leave_determined():
    X, y = tables.diabetes()
    X = X[:, :4]
    reference = sm.OLS(y, sm.add_constant(X)).fit()
    sum_of_two, moved = X[:, 1] + X[:, 2], X[:, 0] + 1
    for column, unknown in ((X[:, 0], [1, 5]), (sum_of_two, [2, 3, 5]), (moved, [0, 1, 5])):
        table = ElasticNet(0.0).fit(np.column_stack([X, column]), y).summary().frame
        assert np.flatnonzero(np.isnan(table["std. error"])).tolist() == unknown
        rest = [i for i in range(5) if i not in unknown]
        np.testing.assert_allclose(table["coefficient"][rest], reference.params[rest], rtol=1e-5)
        np.testing.assert_allclose(table["std. error"][rest], reference.bse[rest], rtol=1e-6)
        np.testing.assert_allclose(table["p-value"][rest], reference.pvalues[rest], rtol=1e-4)


@pytest.mark.parametrize("ties", [True, False])
def test_strata_of_a_cox_model(ties):
    X, eta = tables.wild()
    time, event = tables.survival_times(eta, ties=ties)
    site = tables.differing_sites(X, time)
    if ties:
        assert len(np.unique(time)) < 100
    reference = sm.PHReg(
        time, tables.standardised(X), status=event, strata=site, ties="breslow"
    ).fit(method="newton", tol=1e-12, maxiter=100, disp=False)
    model = CoxRegression().fit(X, np.column_stack([time, event]), sites=site)
    units = X.std(axis=0)
    np.testing.assert_allclose(model.coef_ * units, reference.params, atol=1e-6)
    table = model.summary().frame
    np.testing.assert_allclose(table["std. error"] * units, reference.bse, rtol=1e-6)
    assert model.n_iter_ <= 15


def test_a_frame_with_names_and_a_ratio_for_each():
    pd = pytest.importorskip("pandas")
    X, y = tables.breast_cancer()
    X = pd.DataFrame(X[:, :2], columns=["radius", "texture"])
    model = LogisticRegression(0.0).fit(X, np.array(["malignant", "benign"])[y])
    frame = model.summary().frame
    assert frame["name"].tolist() == ["(intercept)", "radius", "texture"]
    np.testing.assert_allclose(frame["odds ratio"], np.exp(frame["coefficient"]))
    low, high = frame["odds ratio lower"], frame["odds ratio upper"]
    assert (low < frame["odds ratio"]).all() and (frame["odds ratio"] < high).all()
    text = str(model.summary())
    assert "radius" in text and "1 site," in text and "std. error" in text
