"""What the solvers of this library share."""

import numpy as np
from benchopt import BaseSolver

import compositefl as cfl


class Federated(BaseSolver):
    """A method of the library; `algorithm(step)` makes it, step = 1 / (smoothness of f)."""

    sampling_strategy = "iteration"
    requirements = ["pip::compositefl"]
    local_steps = 5

    def set_objective(self, X, y, sites, lmbd, logistic):
        clients = [(X[sites == site], y[sites == site]) for site in np.unique(sites)]
        kind = cfl.models.logistic_regression if logistic else cfl.models.linear_regression
        labels = (lambda y: y.astype(int)) if logistic else (lambda y: y)
        clients = [(x, labels(t)) for x, t in clients]
        self.problem = kind(X.shape[1]).problem(clients)
        self.phi = cfl.L1(float(lmbd))
        # of the roughest client, since local steps are on its own loss
        largest = max(np.linalg.norm(x, 2) ** 2 / len(x) for x, _ in clients)
        self.step = 1.0 / (largest * (0.25 if logistic else 1.0))

    def algorithm(self, step):
        """The method with its step sizes."""
        raise NotImplementedError

    def warm_up(self):
        """Compile, which is no part of the time."""
        self.run(1)

    def run(self, n_iter):
        result = cfl.minimize(
            self.problem,
            self.phi,
            self.algorithm(self.step),
            rounds=max(1, n_iter),
            eval_every=max(1, n_iter),
            weights="size",
            dtype="float64",
            progress=False,
        )
        self.w = np.ravel(result.params["dense0"]["kernel"])

    def get_result(self):
        return {"w": np.asarray(self.w, float)}
