"""The estimators of every family."""

from compositefl.linear_model.base import GeneralizedLinearModel
from compositefl.linear_model.classification import LogisticRegression
from compositefl.linear_model.cross_validation import (
    CoxRegressionCV,
    CrossValidated,
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

# At one alpha, and with cross-validation.
BY_FAMILY: dict[str, tuple[type[GeneralizedLinearModel], type[CrossValidated] | None]] = {
    "gaussian": (ElasticNet, ElasticNetCV),
    "binomial": (LogisticRegression, LogisticRegressionCV),
    "multinomial": (LogisticRegression, LogisticRegressionCV),
    "poisson": (PoissonRegressor, PoissonRegressorCV),
    "gamma": (GammaRegressor, GammaRegressorCV),
    "huber": (HuberRegressor, None),
    "cox": (CoxRegression, CoxRegressionCV),
}
BY_NAME: dict[str, type[GeneralizedLinearModel]] = {
    cls.__name__: cls for pair in (*BY_FAMILY.values(), (Lasso,)) for cls in pair if cls is not None
}
