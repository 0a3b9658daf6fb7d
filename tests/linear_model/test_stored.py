"""A model comes back from its file, and a file that is none is refused in one line."""

import json

import numpy as np
import pytest

from compositefl import linear_model
from compositefl.core.errors import CompositeFLError
from compositefl.linear_model import Lasso, LogisticRegression, load_model, save_model
from tests.linear_model import tables

X, ETA = tables.wild(60)
X = tables.standardised(X)[:, :3]
CLASSES = np.digitize(ETA, np.quantile(ETA, [0.3, 0.6]))


def fitted(name):
    """An estimator of this name, and what it predicts."""
    cls = getattr(linear_model, name.rstrip("3"))
    more = {"cv": 2, "alphas": 3, "eps": 0.1} if name.endswith("CV") else {"alpha": 0.1}
    y = np.column_stack(tables.survival_times(ETA)) if "Cox" in name else np.exp(ETA / 9)
    if "Logistic" in name:
        y = CLASSES if name.endswith("3") else CLASSES > 0
    return cls(**more).fit(X, y)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*linear_model.stored.BY_NAME, "LogisticRegression3"])
def test_every_estimator_comes_back(name, tmp_path):
    model = fitted(name)
    save_model(model, tmp_path / "m.json")
    again = load_model(tmp_path / "m.json")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert str(again.summary()) == str(model.summary())


@pytest.mark.parametrize(
    ("name", "intercept"),
    [
        ("ElasticNet", True),
        ("ElasticNet", False),
        ("LogisticRegression", True),
        ("CoxRegression", 1),
    ],
)
def test_standard_errors_come_back(name, intercept, tmp_path):
    y = np.column_stack(tables.survival_times(ETA)) if "Cox" in name else ETA + X[:, 2] ** 2
    y = y > 1 if "Logistic" in name else y
    model = getattr(linear_model, name)(alpha=0.0, fit_intercept=bool(intercept)).fit(X, y)
    save_model(model, tmp_path / "m.json")
    again = load_model(tmp_path / "m.json")
    assert str(again.summary()) == str(model.summary()) and "std. error" in str(again.summary())


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """The contents of two files, of numbers and of classes."""
    folder = tmp_path_factory.mktemp("models")
    save_model(Lasso(0.1).fit(X, ETA), folder / "lasso")
    save_model(LogisticRegression(0.0).fit(X, ETA + X[:, 2] ** 2 > 1), folder / "logistic")
    return {file.name: json.loads(file.read_text()) for file in folder.iterdir()}


WRONG = [  # of which model, changes of it, what is told
    ("lasso", {"coefficients": None}, "coef_ has shape (); it must be (3,)"),
    ("lasso", {"coefficients": [[[1, 2, 3]]]}, "coef_ has shape (1, 1, 3); it must be (3,)"),
    ("lasso", {"coefficients": [1, 2]}, "coef_ has shape (2,); it must be (3,)"),
    ("lasso", {"coefficients": [1e400, 0, 0]}, "coef_ must hold finite numbers"),
    ("lasso", {"coefficients": "x"}, "could not convert"),
    ("lasso", {"intercept": [1, 2]}, "intercept_ has shape (2,); it must be ()"),
    ("lasso", {"intercept": None}, "intercept_ must hold finite numbers"),
    ("lasso", {"features": [1, 2, 3]}, "features must be a list of names"),
    ("lasso", {"features": "abc"}, "features must be a list of names"),
    ("lasso", {"classes": [1]}, "classes do not go with Lasso"),
    ("lasso", {"means_": None}, "means_ has shape (); it must be (3,)"),
    ("lasso", {"sites": 3}, "sites must be a list"),
    ("lasso", {"about": 3}, "about entries by names"),
    ("lasso", {"n_iter_": "x"}, "n_iter_='x' must be a whole number"),
    ("lasso", {"alpha_max_": "x"}, "alpha_max_=x must be a number"),
    ("lasso", {"parameters": [1]}, "must be a mapping"),
    ("logistic", {"classes": None}, "classes do not go with LogisticRegression, or are missing"),
    ("logistic", {"classes": [1]}, "classes have shape (1,); they are at least 2"),
    ("logistic", {"classes": [1, 1]}, "classes are [1, 1]; they must differ"),
    (
        "logistic",
        {"inference": {"estimate": ["a"] * 4, "covariance": [[1] * 4] * 4, "freedom": None}},
        "could not convert string to float: 'a'",
    ),
    (
        "logistic",
        {"inference": {"estimate": [1] * 4, "covariance": [[1] * 4] * 4, "freedom": "x"}},
        "could not convert string to float: 'x'",
    ),
    ("logistic", {"classes": [1, 2, 3]}, "coef_ has shape (1, 3); it must be (3, 3)"),
    ("logistic", {"coefficients": [1, 2, 3]}, "coef_ has shape (3,); it must be (1, 3)"),
    ("logistic", {"intercept": 1.0}, "intercept_ has shape (); it must be (1,)"),
    (
        "logistic",
        {"inference": {"estimate": [1], "covariance": [[1, 2]], "freedom": None}},
        "estimate has shape (1,); it must be (4,)",
    ),
    (
        "logistic",
        {"inference": {"estimate": [1] * 4, "covariance": [[1, 2]], "freedom": None}},
        "covariance has shape (1, 2); it must be (4, 4)",
    ),
]


@pytest.mark.parametrize(("which", "changes", "text"), WRONG)
def test_a_damaged_model(saved, tmp_path, which, changes, text):
    file = tmp_path / "m.json"
    file.write_text(json.dumps(saved[which]))
    load_model(file)
    file.write_text(json.dumps(saved[which] | changes))
    with pytest.raises(CompositeFLError) as caught:
        load_model(file)
    assert str(caught.value).startswith(f"{file} is a damaged model, or of another version: ")
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_a_nested_file_is_no_model(tmp_path):
    (tmp_path / "m.json").write_text("[" * 100_000)
    with pytest.raises(CompositeFLError, match=r"m\.json is no model: maximum recursion"):
        load_model(tmp_path / "m.json")
