"""scikit-learn on the pooled table: what one would do if the sites could share their rows."""

import warnings

import numpy as np
from benchopt import BaseSolver
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Lasso, LogisticRegression


class Solver(BaseSolver):
    """Coordinate descent, or SAGA for labels."""

    name = "scikit-learn, pooled"
    sampling_strategy = "iteration"
    requirements = ["scikit-learn"]

    def set_objective(self, X, y, sites, lmbd, logistic):
        self.X, self.y, self.lmbd, self.logistic = X, y, lmbd, logistic

    def run(self, n_iter):
        options = {"fit_intercept": False, "max_iter": max(1, n_iter), "tol": 1e-14}
        if self.logistic:
            strength = 1 / (len(self.y) * self.lmbd)
            model = LogisticRegression(C=strength, l1_ratio=1.0, solver="saga", **options)
        else:
            model = Lasso(self.lmbd, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(self.X, self.y)
        self.w = np.ravel(model.coef_)

    def get_result(self):
        return {"w": self.w}
