"""skglm on the pooled table."""

import warnings

import numpy as np
from benchopt import BaseSolver
from skglm import GeneralizedLinearEstimator
from skglm.datafits import Logistic, Quadratic
from skglm.penalties import L1
from skglm.solvers import AndersonCD


class Solver(BaseSolver):
    """Coordinate descent with working sets and extrapolation."""

    name = "skglm, pooled"
    sampling_strategy = "iteration"
    requirements = ["pip::skglm"]

    def set_objective(self, X, y, sites, lmbd, logistic):
        self.X, self.y = np.asfortranarray(X), 2 * y - 1 if logistic else y
        self.parts = (Logistic if logistic else Quadratic), lmbd

    def warm_up(self):
        """Compile, which is no part of the time."""
        self.run(1)

    def run(self, n_iter):
        datafit, lmbd = self.parts
        solver = AndersonCD(max_iter=max(1, n_iter), tol=1e-14, fit_intercept=False)
        model = GeneralizedLinearEstimator(datafit(), L1(lmbd), solver)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(self.X, self.y)
        self.w = np.ravel(model.coef_)

    def get_result(self):
        return {"w": self.w}
