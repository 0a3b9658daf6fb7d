"""The estimators are scikit-learn's in every other respect."""

import pickle

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from compositefl import linear_model
from compositefl.linear_model import (
    CoxRegression,
    ElasticNet,
    ElasticNetCV,
    GammaRegressor,
    HuberRegressor,
    Lasso,
    LogisticRegression,
    LogisticRegressionCV,
    PoissonRegressor,
    PoissonRegressorCV,
)
from tests.linear_model import tables

SMALL = {"cv": 2, "alphas": 3, "eps": 0.1}
ESTIMATORS = [
    Lasso(),
    ElasticNet(),
    LogisticRegression(),
    PoissonRegressor(),
    GammaRegressor(),
    HuberRegressor(),
    ElasticNetCV(**SMALL),
    LogisticRegressionCV(**SMALL),
    PoissonRegressorCV(**SMALL),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", ESTIMATORS, ids=lambda m: type(m).__name__)
def test_scikit_learns_own_checks(model):
    check_estimator(model)


@pytest.mark.parametrize(
    "name", [name for name in linear_model.__all__ if isinstance(getattr(linear_model, name), type)]
)
def test_clone_pickle_and_parameters(name):
    model = getattr(linear_model, name)(standardize=False, tol=1e-6)
    assert clone(model).get_params() == model.get_params()
    X, eta = tables.wild(60)
    y = np.column_stack(tables.survival_times(eta)) if "Cox" in name else np.exp(eta)
    if "Logistic" in name:
        y = eta + np.random.default_rng(1).standard_normal(60) > 0
    if name.endswith("CV"):
        model.set_params(**SMALL)
    model.fit(tables.standardised(X), y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), model.predict(X))
    assert str(copy.summary()) == str(model.summary())
    again = clone(model)
    assert not hasattr(again, "coef_")


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_sites_are_routed():
    """A site named at the fit alone has its folds of the cross-validation counted apart."""
    X, y = tables.breast_cancer()
    X, sites = X[:, :4], np.arange(len(y)) % 3
    model = LogisticRegression(0.01).set_fit_request(sites=True)
    scores = cross_val_score(model, X, y, params={"sites": sites}, cv=3)
    assert scores.min() > 0.7
    pipe = make_pipeline(StandardScaler(), model).fit(X, y, sites=sites)
    assert pipe[-1].sites_ == ["0", "1", "2"]
    search = GridSearchCV(pipe, {"logisticregression__alpha": [1e-3, 1.0]}, cv=3)
    search.fit(X, y, sites=sites)
    assert search.best_params_ == {"logisticregression__alpha": 1e-3}
    assert search.best_estimator_[-1].sites_ == ["0", "1", "2"]


@pytest.mark.usefixtures("routing")
def test_sites_that_nobody_asked_for_are_refused():
    X, y = tables.breast_cancer()
    with pytest.raises(Exception, match="sites"):
        cross_val_score(LogisticRegression(0.01), X, y, params={"sites": y}, error_score="raise")


def test_a_frame_keeps_its_names():
    pd = pytest.importorskip("pandas")
    X, y = tables.diabetes()
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(10)])
    sites = pd.Series(np.array(["a", "b"])[np.arange(len(y)) % 2], index=frame.index[::-1])
    model = ElasticNet(0.1).fit(frame, pd.Series(y), sites=sites)
    assert model.feature_names_in_.tolist() == list(frame.columns)
    assert model.sites_ == ["a", "b"]
    np.testing.assert_array_equal(model.coef_, ElasticNet(0.1).fit(X, y, sites=sites).coef_)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[frame.columns[::-1]])


def test_a_cox_model_of_a_frame():
    pd = pytest.importorskip("pandas")
    X, eta = tables.wild(80)
    time, event = tables.survival_times(eta)
    model = CoxRegression(0.01).fit(pd.DataFrame(X), pd.DataFrame({"event": event, "time": time}))
    assert 0.6 < model.score(X, np.column_stack([time, event])) < 1
