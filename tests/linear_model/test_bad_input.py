"""What is wrong is said in one line; what only looks wrong is fitted."""

import datetime
import re
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.model_selection import KFold, RepeatedKFold, ShuffleSplit, TimeSeriesSplit

from compositefl.core.errors import CompositeFLError, ConvergenceWarning
from compositefl.linear_model import (
    CoxRegression,
    CoxRegressionCV,
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

RNG = np.random.default_rng(20)
X = RNG.standard_normal((40, 3))
NUMBERS = X @ [1.0, -1.0, 0.5] + RNG.standard_normal(40)
CLASSES = (X @ [1.0, -1.0, 0.5] > 0).astype(int)
FLIPPED = CLASSES ^ (np.arange(40) % 5 == 0)  # not separated
COUNTS = RNG.poisson(np.exp(0.3 * NUMBERS)).astype(float)
SITES = np.array(["north", "south"])[np.arange(40) % 2]
TIMES = np.column_stack([RNG.exponential(size=40), np.arange(40) % 2])


def changed(values, at, value):
    out = np.array(values, dtype=float)
    out[at] = value
    return out


def frame_with_words():
    return pd.DataFrame({"age": X[:, 0], "sex": ["f", "m"] * 20, "ward": ["a"] * 40})


BAD = {
    "a missing value": (Lasso(), changed(X, (3, 1), np.nan), NUMBERS, {}, "'x1' of site 'south'"),
    "an infinite value": (Lasso(), changed(X, (4, 2), np.inf), NUMBERS, {}, "infinite.*'x2'"),
    "missing in a sparse table": (
        Lasso(impute="mean"),
        sparse.csr_matrix(changed(X, (3, 1), np.nan)),
        NUMBERS,
        {},
        "sparse",
    ),
    "a missing target": (Lasso(), X, changed(NUMBERS, 5, np.nan), {}, "y has NaN"),
    "a missing class": (LogisticRegression(), X, changed(FLIPPED, 5, np.nan), {}, "y has NaN"),
    "a missing label": (
        LogisticRegression(),
        X,
        np.array(["no", "yes", None], object)[np.where(np.arange(40) == 5, 2, FLIPPED)],
        {},
        "y has NaN",
    ),
    "a label that pandas misses": (
        LogisticRegression(),
        X,
        pd.Series(np.array(["no", "yes"])[FLIPPED]).where(np.arange(40) != 5),
        {},
        "y has NaN",
    ),
    "dates as a target": (
        Lasso(),
        X,
        np.arange(40).astype("datetime64[D]"),
        {},
        "y holds dates",
    ),
    "a missing event": (
        CoxRegression(),
        X,
        pd.DataFrame(
            {"time": TIMES[:, 0], "event": pd.array([True, None] * 20, dtype="boolean")},
        ),
        {},
        "events that are missing",
    ),
    "dates as times": (
        CoxRegression(),
        X,
        pd.DataFrame({"time": pd.date_range("2020", periods=40), "event": [True, False] * 20}),
        {},
        "times that are dates",
    ),
    "dates of Python as times": (
        CoxRegression(),
        X,
        np.array([[datetime.date(2020, 1, 1 + i % 20), i % 2] for i in range(40)], object),
        {},
        "times that are dates",
    ),
    "words as times": (
        CoxRegression(),
        X,
        pd.DataFrame({"time": ["late"] * 40, "event": [True, False] * 20}),
        {},
        "times that are no numbers",
    ),
    "dates as a table": (
        Lasso(),
        np.arange(80).astype("datetime64[D]").reshape(40, 2),
        NUMBERS,
        {},
        "X holds dates",
    ),
    "durations in lists": (
        Lasso(),
        [[np.timedelta64(i, "D")] for i in range(40)],
        NUMBERS,
        {},
        "X holds dates",
    ),
    "a table whose squares overflow": (Lasso(), X * 1e200, NUMBERS, {}, "'x0' of X.*e.200.*unit"),
    "a table whose squares vanish": (Lasso(), X * 1e-200, NUMBERS, {}, "'x0' of X.*e-200.*unit"),
    "a sparse column whose squares vanish": (
        Lasso(),
        sparse.csr_matrix(X * [1.0, 1e-200, 0.0]),
        NUMBERS,
        {},
        "'x1' of X.*e-200.*unit",
    ),
    "a target whose squares overflow": (ElasticNet(0.0), X, NUMBERS * 1e200, {}, "y has.*e.200"),
    "a target whose squares vanish": (HuberRegressor(), X, NUMBERS * 1e-200, {}, "y has.*e-200"),
    "an offset whose square overflows": (
        ElasticNet(0.0),
        X,
        NUMBERS,
        {"offset": np.full(40, 1e200)},
        "offset has numbers beyond",
    ),
    "weights with which sums overflow": (
        ElasticNet(0.0),
        X * 1e120,
        NUMBERS,
        {"sample_weight": np.full(40, 1e120)},
        "overflow: choose other units",
    ),
    "words as weights": (Lasso(), X, NUMBERS, {"sample_weight": ["a"] * 40}, "sample_weight.*no n"),
    "dates as offsets": (
        Lasso(),
        X,
        NUMBERS,
        {"offset": np.arange(40).astype("datetime64[D]")},
        "offset has values that are no numbers",
    ),
    "words as factors": (Lasso(penalty_factor=["a"] * 3), X, NUMBERS, {}, "penalty_factor.*no num"),
    "a word as l1_ratio": (ElasticNet(l1_ratio="a"), X, NUMBERS, {}, "l1_ratio='a'.*in .0, 1"),
    "words as l1_ratios": (ElasticNetCV(l1_ratio=["a"]), X, NUMBERS, {}, "l1_ratio=.*several"),
    "part of an alpha": (ElasticNetCV(alphas=2.5), X, NUMBERS, {}, "alphas=2.5.*whole number"),
    "alphas that are true": (ElasticNetCV(alphas=True), X, NUMBERS, {}, "alphas=True.*whole"),
    "a table of alphas": (ElasticNetCV(alphas=[[1.0, 2.0]]), X, NUMBERS, {}, "alphas=.*a list"),
    "words as alphas": (ElasticNetCV(alphas=["a"]), X, NUMBERS, {}, "alphas=.*a list"),
    "the end of a path above its start": (ElasticNetCV(eps=2.0), X, NUMBERS, {}, "eps=2.0"),
    "a word as folds": (ElasticNetCV(cv="ten"), X, NUMBERS, {}, "cv=ten"),
    "a path of no penalty": (ElasticNetCV(penalty="none"), X, NUMBERS, {}, "no alpha to choose"),
    "a path of a set": (ElasticNetCV(penalty="box:-1,1"), X, NUMBERS, {}, "no weight that"),
    "a constant target": (ElasticNet(), X, np.full(40, 2.5), {}, "2.5 for all samples"),
    "counts of zero alone": (PoissonRegressor(), X, np.zeros(40), {}, "0 for all samples"),
    "one class": (LogisticRegression(), X, np.full(40, "yes"), {}, "one class alone, .*yes"),
    "a class of weight zero": (
        LogisticRegression(),
        X,
        FLIPPED,
        {"sample_weight": 1.0 - FLIPPED},
        "class .* no samples",
    ),
    "separated classes": (LogisticRegression(0.0), X, CLASSES, {}, "separated.*alpha=0.001"),
    "several separated classes": (
        LogisticRegression(0.0),
        X,
        np.digitize(X[:, 0], [-0.5, 0.5]),
        {},
        "separated.*alpha=0.001",
    ),
    "separated by an unpenalised feature": (
        LogisticRegression(0.1, penalty_factor=[0.0, 1.0, 1.0]),
        X,
        (X[:, 0] > 0).astype(int),
        {},
        "separated",
    ),
    "separated apart from ties": (
        LogisticRegression(0.0),
        np.column_stack([np.arange(40) < 10, X[:, 1]]).astype(float),
        np.where(np.arange(40) < 10, 1, FLIPPED),
        {},
        "grow for ever.*alpha=0.001",
    ),
    "no counts in a group": (
        PoissonRegressor(0.0),
        np.column_stack([np.arange(40) < 10, X[:, 1]]).astype(float),
        np.where(np.arange(40) < 10, 0, COUNTS),
        {},
        "grow for ever.*alpha=0.001",
    ),
    "no events in a group": (
        CoxRegression(),
        np.column_stack([np.arange(40) < 10, X[:, 1]]).astype(float),
        np.column_stack([TIMES[:, 0], np.where(np.arange(40) < 10, 0, TIMES[:, 1])]),
        {},
        "grow for ever.*alpha=0.001",
    ),
    "negative counts": (PoissonRegressor(), X, changed(COUNTS, 4, -1.0), {}, "site 'north'.*-1"),
    "a zero of a gamma model": (GammaRegressor(), X, COUNTS, {}, "above 0 for the family gamma"),
    "a negative alpha": (Lasso(-0.1), X, NUMBERS, {}, "alpha=-0.1"),
    "a negative alpha of a path": (ElasticNetCV(alphas=[1.0, -0.1]), X, NUMBERS, {}, "alphas"),
    "an alpha that is no number": (Lasso("1"), X, NUMBERS, {}, "alpha='1'"),
    "an infinite alpha": (Lasso(np.inf), X, NUMBERS, {}, "alpha=inf"),
    "l1_ratio above 1": (ElasticNet(l1_ratio=1.5), X, NUMBERS, {}, "l1_ratio=1.5"),
    "epsilon of 1": (HuberRegressor(epsilon=1.0), X, NUMBERS, {}, "epsilon=1.0"),
    "few sites": (Lasso(), X, NUMBERS, {"sites": SITES[:39]}, "sites.*40 samples"),
    "few targets": (Lasso(), X, NUMBERS[:39], {}, "40 samples and y has 39"),
    "few weights": (Lasso(), X, NUMBERS, {"sample_weight": np.ones(39)}, "sample_weight.*40"),
    "a negative weight": (Lasso(), X, NUMBERS, {"sample_weight": -np.ones(40)}, "negative"),
    "weights of zero": (Lasso(), X, NUMBERS, {"sample_weight": np.zeros(40)}, "zero"),
    "an infinite offset": (Lasso(), X, NUMBERS, {"offset": np.full(40, np.inf)}, "offset"),
    "a nameless site": (
        Lasso(),
        X,
        NUMBERS,
        {"sites": np.where(SITES == "north", "", "b")},
        "site",
    ),
    "a missing site": (
        Lasso(),
        X,
        NUMBERS,
        {"sites": np.where(SITES == "north", None, "b")},
        "site",
    ),
    "a site that pandas misses": (
        Lasso(),
        X,
        NUMBERS,
        {"sites": pd.Series(SITES, dtype="string").where(np.arange(40) != 5)},
        "no site for 1 samples, first sample 5",
    ),
    "crossing bounds": (Lasso(bounds=(1.0, -1.0)), X, NUMBERS, {}, "above its upper"),
    "bounds without zero": (Lasso(bounds=(0.5, 1.0)), X, NUMBERS, {}, "leave 0"),
    "three bounds": (Lasso(bounds=(0.0, 1.0, 2.0)), X, NUMBERS, {}, "bounds"),
    "few factors": (Lasso(penalty_factor=[1.0, 2.0]), X, NUMBERS, {}, "3 numbers"),
    "a negative factor": (Lasso(penalty_factor=[1.0, 2.0, -1.0]), X, NUMBERS, {}, "penalty_factor"),
    "an infinite factor": (
        Lasso(penalty_factor=[1.0, 2.0, np.inf]),
        X,
        NUMBERS,
        {},
        "penalty_factor=.*finite",
    ),
    "a path without a penalty": (
        ElasticNetCV(penalty_factor=[0.0, 0.0, 0.0]),
        X,
        NUMBERS,
        {},
        "no feature has a penalty",
    ),
    "an intercept in words": (Lasso(fit_intercept="no"), X, NUMBERS, {}, "fit_intercept='no' must"),
    "units in words": (Lasso(standardize=None), X, NUMBERS, {}, "standardize=None must be True"),
    "no l1_ratio": (ElasticNetCV(l1_ratio=[]), X, NUMBERS, {}, "l1_ratio=.*several"),
    "an unknown penalty": (Lasso(penalty="l7"), X, NUMBERS, {}, "l7"),
    "words in a target": (Lasso(), X, np.array(["a"] * 40), {}, "no numbers"),
    "classes of an unknown kind": (LogisticRegression(), X, NUMBERS, {}, "nknown label type"),
    "one fold": (ElasticNetCV(cv=1), X, NUMBERS, {}, "cv=1"),
    "more folds than samples": (ElasticNetCV(cv=41), X, NUMBERS, {}, "41 folds"),
    "repeated folds": (
        ElasticNetCV(cv=RepeatedKFold(n_splits=3, n_repeats=2)),
        X,
        NUMBERS,
        {},
        "into several folds",
    ),
    "random splits": (
        ElasticNetCV(cv=ShuffleSplit(50, random_state=0)),
        X,
        NUMBERS,
        {},
        "into several folds",
    ),
    "a splitter that leaves samples out": (
        ElasticNetCV(cv=TimeSeriesSplit(3)),
        X,
        NUMBERS,
        {},
        "out of every fold",
    ),
    "a gap before a fold": (
        ElasticNetCV(cv=[(train[1:], out) for train, out in KFold(4).split(X)]),
        X,
        NUMBERS,
        {},
        "train on all samples",
    ),
    "a missing fold": (
        ElasticNetCV(cv=changed(np.arange(40) % 4, 3, np.nan)),
        X,
        NUMBERS,
        {},
        "cv has NaN",
    ),
    "an unknown score": (ElasticNetCV(scoring="auc"), X, NUMBERS, {}, "scoring='auc'"),
    "a rare class": (
        LogisticRegressionCV(cv=3),
        X,
        np.where(np.arange(40) == 3, 2, FLIPPED),
        {},
        "fewer folds",
    ),
    "all counts in one fold": (
        PoissonRegressorCV(cv=np.arange(40) // 20),
        X,
        np.where(np.arange(40) < 20, COUNTS, 0),
        {},
        "fewer folds",
    ),
    "all events in one fold": (
        CoxRegressionCV(cv=np.arange(40) // 20),
        X,
        np.column_stack([TIMES[:, 0], np.where(np.arange(40) < 20, TIMES[:, 1], 0)]),
        {},
        "fewer folds",
    ),
    "no events": (CoxRegression(), X, TIMES * [1, 0], {}, "no event"),
    "negative times": (CoxRegression(), X, TIMES * [-1, 1], {}, "negative"),
    "events of 2": (CoxRegression(), X, TIMES * [1, 2], {}, "events other"),
    "times without events": (CoxRegression(), X, TIMES[:, 0], {}, "structured array"),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", BAD)
def test_one_line_says_what_is_wrong(case):
    model, table, y, more, message = BAD[case]
    with pytest.raises(ValueError) as caught:
        model.fit(table, y, **({"sites": SITES} | more))
    text = str(caught.value)
    assert "\n" not in text
    assert re.search(message, text), text


POISSON = PoissonRegressor(0.1).fit(X, COUNTS)
COX = CoxRegression(0.1).fit(X, TIMES)
BAD_SCORES = {
    "negative counts": (POISSON, -COUNTS, {}, "y must not be negative for the family poisson"),
    "a zero of a gamma model": (
        GammaRegressor(0.1).fit(X, COUNTS + 1),
        COUNTS,
        {},
        "y must be above 0",
    ),
    "words": (POISSON, ["a"] * 40, {}, "no numbers"),
    "few targets": (POISSON, COUNTS[:39], {}, "40 samples and y has 39"),
    "few weights": (POISSON, COUNTS, {"sample_weight": np.ones(39)}, "sample_weight.*40"),
    "weights of zero": (POISSON, COUNTS, {"sample_weight": np.zeros(40)}, "zero"),
    "few times": (COX, TIMES[:39], {}, "40 samples and y has 39"),
    "times of one event, the last": (
        COX,
        np.column_stack([np.arange(40), np.arange(40) == 39]),
        {},
        "no two samples can be compared",
    ),
    "one time with a weight": (
        COX,
        TIMES,
        {"sample_weight": np.arange(40) == 3},
        "no two samples can be compared",
    ),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("case", BAD_SCORES)
def test_one_line_says_what_is_wrong_with_a_score(case):
    model, y, more, message = BAD_SCORES[case]
    with pytest.raises(ValueError, match=message):
        model.score(X, y, **more)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("model", [PoissonRegressor(0.1), GammaRegressor(0.1)])
def test_the_score_of_a_constant_target(model):
    """As scikit-learn's R^2: 0, and 1 where the constant is predicted."""
    model.fit(X, COUNTS + 1)
    assert model.score(X, np.full(40, 2.0)) == 0.0
    assert model.score(X[:1], [2.0]) == 0.0
    assert model.score(X[:1], model.predict(X[:1])) == 1.0
    if isinstance(model, PoissonRegressor):
        assert model.score(X, np.zeros(40)) == 0.0


def test_columns_of_words_are_named():
    with pytest.raises(CompositeFLError, match="no numbers: sex, ward"):
        Lasso().fit(frame_with_words(), NUMBERS)


def test_columns_of_polars_are_named():
    pl = pytest.importorskip("polars")
    frame = pl.DataFrame({"age": X[:, 0], "old": X[:, 1] > 0, "n": np.arange(40)})
    assert np.isfinite(Lasso().fit(frame, NUMBERS).coef_).all()
    days = pl.Series("day", np.arange(40).astype("datetime64[D]"))
    with pytest.raises(CompositeFLError, match="no numbers: sex, day"):
        Lasso().fit(frame.with_columns(pl.Series("sex", ["f", "m"] * 20), days), NUMBERS)


def test_a_confidence_in_percent():
    with pytest.raises(CompositeFLError, match="confidence=95"):
        ElasticNet(0.0).fit(X, NUMBERS).summary(95)


@pytest.mark.parametrize(
    "model, rows, note",
    [
        (HuberRegressor(0.0), 40, "not for the family huber"),
        (ElasticNet(0.0), 4, "no more samples than coefficients"),
        (ElasticNet(0.0, positive=True), 40, "without a penalty.* and without bounds"),
    ],
)
def test_a_summary_says_why_it_has_no_errors(model, rows, note):
    text = str(model.fit(X[:rows], NUMBERS[:rows]).summary())
    assert re.search(note, text), text


# --- what only looks wrong ----------------------------------------------------------------------


def test_string_labels():
    named = LogisticRegression(0.01).fit(X, np.array(["no", "yes"])[FLIPPED], sites=SITES)
    plain = LogisticRegression(0.01).fit(X, FLIPPED, sites=SITES)
    np.testing.assert_array_equal(named.coef_, plain.coef_)
    assert set(named.predict(X)) == {"no", "yes"}


@pytest.mark.filterwarnings("error")
def test_more_features_than_samples():
    """A lasso is stationary: |X'(Xb - y)/n| <= alpha, with equality where b is not zero."""
    wide = np.random.default_rng(21).standard_normal((30, 100))
    y = wide[:, :3].sum(axis=1) + 0.1 * np.random.default_rng(22).standard_normal(30)
    for fit_intercept in (True, False):
        model = Lasso(0.05, standardize=False, fit_intercept=fit_intercept).fit(wide, y)
        gradient = wide.T @ (model.predict(wide) - y) / 30
        moving = model.coef_ != 0
        np.testing.assert_allclose(
            gradient[moving], -0.05 * np.sign(model.coef_[moving]), atol=1e-8
        )
        assert np.abs(gradient).max() <= 0.05 + 1e-8
        assert 3 <= moving.sum() < 30


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("alpha", [0.0, 0.1])
def test_constant_columns_get_zero(alpha):
    constant = np.column_stack([X[:, 0], np.full(40, 1e7), X[:, 1], np.zeros(40), X[:, 2]])
    model = ElasticNet(alpha).fit(constant, NUMBERS, sites=SITES)
    plain = ElasticNet(alpha).fit(X, NUMBERS)
    assert model.coef_[1] == model.coef_[3] == 0
    np.testing.assert_allclose(model.coef_[[0, 2, 4]], plain.coef_, atol=1e-9)
    if alpha == 0:
        errors = model.summary().frame["std. error"].to_numpy()
        np.testing.assert_allclose(
            errors[[1, 3, 5]], plain.summary().frame["std. error"][1:], rtol=1e-7
        )


@pytest.mark.parametrize("model", [ElasticNet(0.0), LogisticRegression(0.0), PoissonRegressor(0.0)])
def test_duplicate_columns_without_a_penalty(model):
    """The coefficients are not unique; what they predict is. Their errors are not known, and it
    is said of which; the others are those of the fit without the duplicate."""
    y = {"ElasticNet": NUMBERS, "LogisticRegression": FLIPPED, "PoissonRegressor": COUNTS}
    y = y[type(model).__name__]
    single = type(model)(**model.get_params()).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="not determine all .*: x0, x3 are collinear"):
        model.fit(np.column_stack([X, X[:, 0]]), y, sites=SITES)
    coef = np.ravel(model.coef_)
    folded = coef[:3] + np.array([coef[3], 0, 0])
    np.testing.assert_allclose(folded, np.ravel(single.coef_), atol=1e-7)
    errors = model.summary().frame["std. error"].to_numpy()
    assert np.isnan(errors[[1, 4]]).all()
    known = single.summary().frame["std. error"].to_numpy()
    np.testing.assert_allclose(errors[[0, 2, 3]], known[[0, 2, 3]], rtol=1e-6)
    assert "NaN: the data do not determine" in str(model.summary())


def test_more_features_than_samples_without_a_penalty():
    wide = np.random.default_rng(23).standard_normal((20, 40))
    with pytest.warns(ConvergenceWarning, match=r"x6, x7, \.\.\. are collinear"):
        model = ElasticNet(0.0).fit(wide, NUMBERS[:20])
    np.testing.assert_allclose(model.predict(wide), NUMBERS[:20], atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_features_that_tell_nothing():
    """A balanced design with a target that is orthogonal to it: the gradient is rounding."""
    design = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]] * 10, float)
    y = np.tile([0.1, -0.1, -0.1, 0.1], 10) + 0.7
    for alpha in (0.0, 0.01):
        model = ElasticNet(alpha).fit(design, y, sites=SITES)
        np.testing.assert_allclose(model.coef_, 0, atol=1e-12)
        assert model.intercept_ == pytest.approx(0.7)


@pytest.mark.filterwarnings("error")
def test_a_narrow_target_far_from_zero():
    """What rounding leaves of such a target is fitted, and no round too many."""
    y = 1e4 + 1e-3 * NUMBERS
    model = ElasticNet(0.0).fit(X, y, sites=SITES)
    wanted = np.linalg.lstsq(X - X.mean(axis=0), y - y.mean(), rcond=None)[0]
    np.testing.assert_allclose(model.coef_, wanted, atol=1e-6 * np.abs(wanted).max())
    assert model.n_iter_ <= 15


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("far", [0, 6])
def test_a_robust_fit_that_is_exact(far):
    """The scale of y falls to nothing, and with it what rounding leaves of a gradient grows."""
    y = X @ [1.0, 2.0, 0.0] + 3.0 + np.where(np.arange(40) < far, NUMBERS, 0.0)
    model = HuberRegressor(0.0).fit(X, y, sites=SITES)
    np.testing.assert_allclose(model.coef_, [1.0, 2.0, 0.0], atol=1e-8)
    assert model.converged_
    assert model.scale_ < 1e-8


@pytest.mark.filterwarnings("error")
def test_a_robust_fit_with_a_small_scale_given():
    y = 1e4 + NUMBERS
    model = HuberRegressor(0.0, scale=1e-7).fit(X[:, :1], y, sites=SITES)
    residual = model.predict(X[:, :1]) - y
    assert model.converged_
    assert np.median(residual) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.filterwarnings("error")
def test_bounds_keep_separated_classes_finite():
    model = LogisticRegression(0.0, bounds=(-5, 5)).fit(X, CLASSES, sites=SITES)
    assert np.abs(model.coef_).max() == 5


@pytest.mark.filterwarnings("error")
def test_offsets_that_separate_the_classes_are_no_separation():
    """The coefficients are finite as long as the features do not separate what is left."""
    offset = np.where(FLIPPED == 1, 3.0, -3.0)
    model = LogisticRegression(0.0).fit(X, FLIPPED, sites=SITES, offset=offset)
    eta = model.decision_function(X, offset=offset)
    gradient = (1 / (1 + np.exp(-eta)) - FLIPPED) @ np.column_stack([np.ones(40), X])
    np.testing.assert_allclose(gradient, 0, atol=1e-7)


@pytest.mark.filterwarnings("error")
def test_large_coefficients_are_not_mistaken_for_infinite_ones():
    """Nearly separated classes: large, finite, and equal to scikit-learn's."""
    import sklearn.linear_model as sk

    x = np.linspace(-1, 1, 200)[:, None]
    y = (x[:, 0] > 0).astype(int)
    y[[99, 100]] = [1, 0]
    model = LogisticRegression(0.0).fit(x, y, sites=np.arange(200) % 3)
    wanted = sk.LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-12).fit(x, y)
    np.testing.assert_allclose(model.coef_, wanted.coef_, rtol=1e-6)
    assert model.coef_[0, 0] > 30


@pytest.mark.filterwarnings("error")
def test_missing_values_become_the_mean_of_all_sites():
    holes = changed(X, ([1, 7, 20], [0, 0, 2]), np.nan)
    filled = np.where(np.isnan(holes), np.nanmean(holes, axis=0), holes)
    model = ElasticNet(0.1, impute="mean").fit(holes, NUMBERS, sites=SITES)
    wanted = ElasticNet(0.1).fit(filled, NUMBERS)
    np.testing.assert_allclose(model.coef_, wanted.coef_, atol=1e-10)
    np.testing.assert_allclose(model.predict(holes), wanted.predict(filled), atol=1e-9)


def test_too_few_rounds_are_a_warning():
    with pytest.warns(RuntimeWarning, match="1 of 1 alphas did not converge in 1 rounds"):
        LogisticRegression(1e-4, max_iter=1).fit(X, FLIPPED)


@pytest.mark.filterwarnings("error")
def test_one_sample_per_site():
    one = LogisticRegression(0.02).fit(X, FLIPPED, sites=np.arange(40))
    pooled = LogisticRegression(0.02).fit(X, FLIPPED)
    np.testing.assert_allclose(one.coef_, pooled.coef_, atol=1e-10)


def test_a_boolean_table():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LogisticRegression(0.01).fit(X > 0, FLIPPED > 0)
    assert model.classes_.tolist() == [False, True]
    assert np.isfinite(tables.standardised(model.coef_)).all()
