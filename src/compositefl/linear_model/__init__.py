"""Generalised linear models of tables at several sites, with scikit-learn's interface.

The fit equals that of the pooled table: sites send sums over their samples, and a proximal Newton
method at the server needs a handful of them.
"""

from compositefl.linear_model.classification import LogisticRegression
from compositefl.linear_model.cross_validation import (
    CoxRegressionCV,
    ElasticNetCV,
    GammaRegressorCV,
    LogisticRegressionCV,
    PoissonRegressorCV,
)
from compositefl.linear_model.regression import (
    ElasticNet,
    GammaRegressor,
    HuberRegressor,
    Lasso,
    PoissonRegressor,
)
from compositefl.linear_model.stored import load_model, save_model
from compositefl.linear_model.survival import CoxRegression

__all__ = [
    "CoxRegression",
    "CoxRegressionCV",
    "ElasticNet",
    "ElasticNetCV",
    "GammaRegressor",
    "GammaRegressorCV",
    "HuberRegressor",
    "Lasso",
    "LogisticRegression",
    "LogisticRegressionCV",
    "PoissonRegressor",
    "PoissonRegressorCV",
    "load_model",
    "save_model",
]
