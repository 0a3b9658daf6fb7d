"""Cox models of one site are scikit-survival's."""

import numpy as np
import pytest
from sksurv.linear_model import CoxnetSurvivalAnalysis, CoxPHSurvivalAnalysis
from sksurv.metrics import concordance_index_censored
from sksurv.util import Surv

from compositefl.glm.survival import concordance
from compositefl.linear_model import CoxRegression, CoxRegressionCV
from tests.linear_model import tables


def survival(ties=True, n=200):
    X, eta = tables.wild(n)
    time, event = tables.survival_times(eta, ties=ties)
    return X, Surv.from_arrays(event, time)


@pytest.mark.parametrize("ties", [True, False])
def test_without_a_penalty(ties):
    # Newton's method until the loss stands still to 1e-14.
    X, y = survival(ties)
    Z = tables.standardised(X)
    reference = CoxPHSurvivalAnalysis(ties="breslow", tol=1e-14, n_iter=200).fit(Z, y)
    model = CoxRegression().fit(X, y)
    np.testing.assert_allclose(model.coef_ * X.std(axis=0), reference.coef_, atol=1e-6)
    assert model.score(X, y) == pytest.approx(reference.score(Z, y), abs=1e-12)


def test_a_path_with_an_elastic_net():
    # Coordinate descent with a tolerance of 1e-14. Coxnet counts Breslow's ties and divides its
    # loss by the number of samples, as here; its l1_ratio means the same.
    X, y = survival()
    Z = tables.standardised(X)
    alphas = np.geomspace(0.2, 0.002, 8)
    reference = CoxnetSurvivalAnalysis(
        alphas=alphas, l1_ratio=0.8, tol=1e-14, max_iter=10**6, normalize=False
    ).fit(Z, y)
    model = CoxRegressionCV(l1_ratio=0.8, alphas=alphas, cv=2).fit(X, y)
    path = model.coef_path_ * X.std(axis=0)[:, None]
    np.testing.assert_allclose(path, reference.coef_, atol=1e-6)
    assert (path == 0).any() and np.abs(path).max() > 0.1


@pytest.mark.parametrize("seed", range(4))
def test_the_concordance_index_is_exact(seed):
    rng = np.random.default_rng(seed)
    time = rng.integers(1, 30, 120).astype(float)
    event = rng.random(120) < 0.6
    score = rng.integers(0, 15, 120).astype(float)  # ties in scores and in times
    wanted = concordance_index_censored(event, time, score, tied_tol=0.0)[0]
    concordant, comparable = concordance(time, event, score)
    assert concordant / comparable == pytest.approx(wanted, abs=1e-12)


def test_forms_of_a_response():
    pd = pytest.importorskip("pandas")
    X, y = survival(n=100)
    pairs = np.column_stack([y["time"], y["event"]])
    frame = pd.DataFrame({"time": y["time"], "status": y["event"].astype(int)})
    coefs = [CoxRegression(0.01).fit(X, form).coef_ for form in (y, pairs, frame)]
    np.testing.assert_array_equal(coefs[0], coefs[1])
    np.testing.assert_array_equal(coefs[0], coefs[2])
