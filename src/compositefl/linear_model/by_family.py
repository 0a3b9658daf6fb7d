"""The estimators of every family."""

from typing import Any

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
from compositefl.linear_model.survival import CoxRegression

BY_FAMILY: dict[str, tuple[Any, Any]] = {  # at one alpha, and with cross-validation
    "gaussian": (ElasticNet, ElasticNetCV),
    "binomial": (LogisticRegression, LogisticRegressionCV),
    "multinomial": (LogisticRegression, LogisticRegressionCV),
    "poisson": (PoissonRegressor, PoissonRegressorCV),
    "gamma": (GammaRegressor, GammaRegressorCV),
    "huber": (HuberRegressor, None),
    "cox": (CoxRegression, CoxRegressionCV),
}
BY_NAME: dict[str, Any] = {
    cls.__name__: cls for pair in (*BY_FAMILY.values(), (Lasso,)) for cls in pair if cls is not None
}
