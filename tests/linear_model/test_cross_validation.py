"""Cross-validation side by side is a plain loop over folds and alphas with single fits."""

import numpy as np
import pytest
from sklearn.metrics import log_loss, mean_poisson_deviance, roc_auc_score
from sklearn.model_selection import KFold, LeaveOneOut

from compositefl.glm.survival import Times, partial_likelihood
from compositefl.linear_model import (
    CoxRegression,
    CoxRegressionCV,
    ElasticNet,
    ElasticNetCV,
    LogisticRegression,
    LogisticRegressionCV,
    PoissonRegressor,
    PoissonRegressorCV,
)
from tests.linear_model import tables


def folds_and_sites(n):
    rng = np.random.default_rng(11)
    return rng.integers(4, size=n), np.array(["a", "b", "c"])[rng.integers(3, size=n)]


def loop(single, X, y, fold, sites, alphas, deviance):
    """Mean, standard error, best and one-standard-error alpha as glmnet defines them."""
    values, weights = [], []
    for out in np.unique(fold):
        train, test = fold != out, fold == out
        row = []
        for alpha in alphas:
            single.set_params(alpha=alpha, tol=1e-10)
            single.fit(X[train], y[train], sites=sites[train])
            row.append(deviance(single, X, y, train, test))
        values.append([v for v, _ in row])
        weights.append(row[0][1])
    values, weights = np.array(values), np.array(weights) / np.sum(weights)
    mean = weights @ values
    error = np.sqrt(weights @ (values - mean) ** 2 / (len(values) - 1))
    best = int(np.argmin(mean))
    one = int(np.argmax(mean <= mean[best] + error[best]))
    return values, mean, error, alphas[best], alphas[one]


def check(model, single, X, y, deviance):
    fold, sites = folds_and_sites(len(X))
    model.set_params(cv=fold, alphas=7, eps=1e-2, tol=1e-10, cv_tol=1e-10).fit(X, y, sites=sites)
    alphas = model.alphas_
    values, mean, error, best, one = loop(single, X, y, fold, sites, alphas, deviance)
    np.testing.assert_allclose(model.cv_scores_, values, rtol=1e-7)
    np.testing.assert_allclose(model.cv_mean_, mean, rtol=1e-7)
    np.testing.assert_allclose(model.cv_error_, error, rtol=1e-6)
    assert (model.alpha_, model.alpha_1se_) == (best, one)
    # The path is single fits, too, and the model is the one at the best alpha.
    for at, alpha in enumerate(alphas):
        found = single.set_params(alpha=alpha).fit(X, y, sites=sites)
        np.testing.assert_allclose(
            model.coef_path_[..., at] * X.std(axis=0),
            np.squeeze(found.coef_) * X.std(axis=0),
            atol=1e-7,
        )
        if alpha == best:
            np.testing.assert_allclose(
                model.coef_ * X.std(axis=0), found.coef_ * X.std(axis=0), atol=1e-7
            )
    assert model.n_iter_ <= 2 + 4 * len(alphas) + 15


def test_two_classes():
    X, y = tables.breast_cancer()

    def deviance(m, X, y, train, test):
        return 2 * log_loss(y[test], m.predict_proba(X[test])), test.sum()

    check(LogisticRegressionCV(), LogisticRegression(l1_ratio=1.0), X, y, deviance)


def test_several_classes():
    X, y = tables.wine()

    def deviance(m, X, y, train, test):
        return 2 * log_loss(y[test], m.predict_proba(X[test])), test.sum()

    check(LogisticRegressionCV(l1_ratio=0.5), LogisticRegression(l1_ratio=0.5), X, y, deviance)


def test_numbers():
    X, y = tables.diabetes()

    def deviance(m, X, y, train, test):
        return np.mean((m.predict(X[test]) - y[test]) ** 2), test.sum()

    check(ElasticNetCV(l1_ratio=0.9), ElasticNet(l1_ratio=0.9), X, y, deviance)


def test_counts():
    X, eta = tables.wild(200)
    y = np.random.default_rng(12).poisson(np.exp(0.5 + eta)).astype(float)

    def deviance(m, X, y, train, test):
        return mean_poisson_deviance(y[test], m.predict(X[test])), test.sum()

    check(PoissonRegressorCV(), PoissonRegressor(l1_ratio=1.0), X, y, deviance)


def test_survival():
    """The deviance of a fold: that of all samples less that of the training samples."""
    X, eta = tables.wild(200)
    y = np.column_stack(tables.survival_times(eta))

    def loss(eta, y, sites):
        """Above the smallest one, in which tied events share their hazard."""
        total = 0.0
        for name in np.unique(sites):
            mine = np.flatnonzero(sites == name)
            mine = mine[np.argsort(y[mine, 0], kind="stable")]
            times = Times.of(y[mine, 0], y[mine, 1])
            total += partial_likelihood(times, eta[mine], np.ones(len(mine))).loss
            tied = np.unique(y[mine, 0][y[mine, 1] > 0], return_counts=True)[1]
            total -= np.sum(tied * np.log(tied))
        return total

    _, sites = folds_and_sites(len(X))

    def deviance(m, X, y, train, test):
        eta = m.predict(X)
        whole, rest = loss(eta, y, sites), loss(eta[train], y[train], sites[train])
        events = y[test, 1].sum()
        return 2 * (whole - rest) / events, events

    check(CoxRegressionCV(), CoxRegression(l1_ratio=1.0), X, y, deviance)


def test_the_deviance_of_survival_does_not_depend_on_the_size_of_the_weights():
    X, eta = tables.wild(120)
    y = np.column_stack(tables.survival_times(eta))
    fold, sites = folds_and_sites(len(X))
    weight = np.linspace(0.5, 2.0, len(X))
    one, other = (
        CoxRegressionCV(cv=fold, alphas=4, eps=0.1).fit(X, y, sites=sites, sample_weight=w)
        for w in (weight, 1000 * weight)
    )
    np.testing.assert_allclose(other.cv_scores_, one.cv_scores_, rtol=1e-6)


@pytest.mark.parametrize("scoring", ["auc", "accuracy"])
def test_other_scores_of_classes(scoring):
    X, y = tables.breast_cancer()
    X = X[:, [4, 9, 11, 14, 18]]  # weak features: scores that are not all 1
    fold, sites = folds_and_sites(len(X))
    model = LogisticRegressionCV(cv=fold, alphas=4, scoring=scoring).fit(X, y, sites=sites)
    for number, out in enumerate(np.unique(fold)):
        train, test = fold != out, fold == out
        for at, alpha in enumerate(model.alphas_):
            single = LogisticRegression(alpha).fit(X[train], y[train], sites=sites[train])
            eta = single.decision_function(X[test])
            if scoring == "auc":
                wanted = roc_auc_score(y[test], eta)
                assert model.cv_scores_[number, at] == pytest.approx(wanted, abs=1e-3)
            else:
                wanted = np.mean((eta > 0) == y[test])
                assert model.cv_scores_[number, at] == pytest.approx(wanted, abs=1e-12)
    assert model.alpha_ == model.alphas_[np.argmax(model.cv_mean_)]


@pytest.mark.parametrize("scoring", ["auc", "deviance"])
def test_a_fold_without_weight_is_not_there(scoring):
    X, y = tables.breast_cancer()
    fold, _ = folds_and_sites(len(X))
    there = fold != 2
    model = LogisticRegressionCV(alphas=[0.1, 0.01], scoring=scoring)
    wanted = model.set_params(cv=fold[there]).fit(X[there], y[there]).cv_scores_
    found = model.set_params(cv=fold).fit(X, y, sample_weight=there.astype(float)).cv_scores_
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_histogram_of_scores_with_outliers_keeps_three_digits():
    rng = np.random.default_rng(13)
    X = rng.standard_t(1.5, (2000, 1))  # linear predictors with heavy tails
    y = (rng.random(2000) < 1 / (1 + np.exp(-X[:, 0]))).astype(int)
    fold = np.arange(2000) % 2
    model = LogisticRegressionCV(cv=fold, alphas=[1e-3], scoring="auc").fit(X, y)
    wanted = [roc_auc_score(y[fold == k], X[fold == k, 0]) for k in range(2)]
    np.testing.assert_allclose(model.cv_scores_[:, 0], wanted, atol=1e-3)


@pytest.mark.parametrize("scoring", ["mse", "mae", "r2"])
def test_other_scores_of_numbers(scoring):
    X, y = tables.diabetes()
    fold, sites = folds_and_sites(len(X))
    model = ElasticNetCV(l1_ratio=1.0, cv=fold, alphas=[5.0, 1.0], scoring=scoring)
    model.fit(X, y, sites=sites)
    for number, out in enumerate(np.unique(fold)):
        train, test = fold != out, fold == out
        single = ElasticNet(1.0, l1_ratio=1.0).fit(X[train], y[train])
        error = single.predict(X[test]) - y[test]
        wanted = {
            "mse": np.mean(error**2),
            "mae": np.mean(np.abs(error)),
            "r2": single.score(X[test], y[test]),
        }[scoring]
        assert model.cv_scores_[number, 1] == pytest.approx(wanted, rel=1e-7)


def test_a_fold_without_a_score_is_left_out_and_said():
    """One class in a fold has no AUC; the other folds have."""
    X, y = tables.breast_cancer()
    X = X[:, :3]
    fold = np.arange(len(y)) % 3
    fold[np.flatnonzero(y == 1)[:10]] = 7
    keep = (fold < 3) | (y == 1)
    with pytest.warns(RuntimeWarning, match="fold"):
        model = LogisticRegressionCV(cv=fold[keep], alphas=5, scoring="auc").fit(X[keep], y[keep])
    assert np.isfinite(model.cv_mean_).all()
    assert model.alpha_ < model.alphas_[0]


def test_one_sample_has_no_r2():
    """Minus infinity as the mean of all alphas would choose the first of them."""
    X, y = tables.diabetes()
    fold = np.minimum(np.arange(60), 40)  # samples alone, and a fold of twenty
    with pytest.warns(RuntimeWarning, match="40 of 41 folds have no r2"):
        model = ElasticNetCV(cv=fold, alphas=4, scoring="r2").fit(X[:60], y[:60])
    assert model.cv_scores_.shape == (1, 4) and np.isfinite(model.cv_mean_).all()
    with pytest.raises(ValueError, match="no fold has a r2"):
        ElasticNetCV(cv=LeaveOneOut(), alphas=4, scoring="r2").fit(X[:20], y[:20])


def test_folds_that_no_site_has_drawn_are_said():
    X, y = tables.diabetes()
    with pytest.warns(RuntimeWarning, match="[0-9]+ of 30 folds are empty"):
        ElasticNetCV(cv=30, alphas=4).fit(X[:30], y[:30], sites=np.arange(30) % 3)


def test_a_splitter_gives_the_folds():
    X, y = tables.diabetes()
    fold = np.arange(len(y)) * 3 // len(y)
    one = ElasticNetCV(cv=fold, alphas=5).fit(X, y)
    other = ElasticNetCV(cv=KFold(3), alphas=5).fit(X, y)
    assert np.abs(one.cv_mean_ - other.cv_mean_).max() < 0.05 * one.cv_mean_.max()
    assert other.cv_scores_.shape == (3, 5)


def test_folds_of_a_site_depend_on_its_name_and_the_seed_alone():
    X, y = tables.diabetes()
    _, sites = folds_and_sites(len(X))
    order = np.argsort(sites, kind="stable")
    one = ElasticNetCV(cv=5, alphas=4, random_state=3).fit(X, y, sites=sites)
    same = ElasticNetCV(cv=5, alphas=4, random_state=3).fit(X[order], y[order], sites=sites[order])
    other = ElasticNetCV(cv=5, alphas=4, random_state=4).fit(X, y, sites=sites)
    np.testing.assert_allclose(one.cv_mean_, same.cv_mean_, rtol=1e-9)
    assert np.abs(one.cv_mean_ - other.cv_mean_).max() > 1e-6 * one.cv_mean_.max()


def test_the_best_of_several_ratios():
    X, y = tables.diabetes()
    fold, sites = folds_and_sites(len(X))
    model = ElasticNetCV(l1_ratio=[0.2, 0.9], cv=fold, alphas=6).fit(X, y, sites=sites)
    best = {
        r: ElasticNetCV(l1_ratio=r, cv=fold, alphas=6).fit(X, y, sites=sites).cv_mean_.min()
        for r in (0.2, 0.9)
    }
    assert model.l1_ratio_ == min(best, key=best.get)
    assert model.cv_mean_.min() == pytest.approx(min(best.values()))


@pytest.mark.parametrize("penalty, ratio", [("l1", 1.0), ("l2", 0.0)])
def test_a_penalty_by_name_has_its_own_ratio(penalty, ratio):
    """Not the l1_ratio of the estimator, which is 0.5 by default."""
    X, y = tables.diabetes()
    named = ElasticNetCV(penalty=penalty, cv=3, alphas=4).fit(X, y)
    wanted = ElasticNetCV(l1_ratio=ratio, cv=3, alphas=4).fit(X, y)
    assert named.l1_ratio_ == ratio
    np.testing.assert_array_equal(named.coef_path_, wanted.coef_path_)


def test_rounds_along_a_path():
    """At most 4 on average, 15 for a single alpha, on three families."""
    X, eta = tables.wild(200)
    counts = np.random.default_rng(14).poisson(np.exp(0.5 + eta)).astype(float)
    times = np.column_stack(tables.survival_times(eta))
    for model, table, y in (
        (LogisticRegressionCV(), *tables.breast_cancer()),
        (PoissonRegressorCV(), X, counts),
        (CoxRegressionCV(), X, times),
    ):
        model.set_params(cv=2, alphas=50).fit(table, y, sites=np.arange(len(y)) % 2)
        assert model.n_iter_ <= 4 * len(model.alphas_)


def test_one_standard_error_selects_a_larger_alpha():
    X, y = tables.diabetes()
    fold, _ = folds_and_sites(len(X))
    best = ElasticNetCV(cv=fold, alphas=20).fit(X, y)
    one = ElasticNetCV(cv=fold, alphas=20, select="1se").fit(X, y)
    assert one.alpha_1se_ == best.alpha_1se_ > best.alpha_
    at = int(np.argmax(best.alphas_ == best.alpha_1se_))
    np.testing.assert_array_equal(one.coef_, best.coef_path_[:, at])
