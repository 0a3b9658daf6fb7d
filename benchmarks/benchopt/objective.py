"""psi(w) = mean of the losses of all samples + lambda ||w||_1; sites keep their samples."""

import numpy as np
from benchopt import BaseObjective


class Objective(BaseObjective):
    """The lasso, or sparse logistic regression for labels 0 and 1, of the pooled table."""

    name = "Composite federated learning"
    min_benchopt_version = "1.7"
    parameters = {"reg": [0.1, 0.01]}  # lambda as a share of the weight that makes w = 0 optimal

    def set_data(self, X, y, sites):
        self.X, self.y, self.sites = X, y, sites
        self.logistic = set(np.unique(y)) <= {0, 1}
        residual = (0.5 - y) if self.logistic else -y
        self.lmbd = self.reg * np.abs(X.T @ residual).max() / len(y)

    def evaluate_result(self, w):
        z = self.X @ w
        if self.logistic:
            loss, slope = np.logaddexp(0, z) - self.y * z, 1 / (1 + np.exp(-z)) - self.y
        else:
            loss, slope = 0.5 * (z - self.y) ** 2, z - self.y
        gradient = self.X.T @ slope / len(z)
        shrunk = w - gradient
        shrunk = np.sign(shrunk) * np.maximum(np.abs(shrunk) - self.lmbd, 0)
        return {
            "value": float(np.mean(loss) + self.lmbd * np.abs(w).sum()),
            "natural_residual": float(np.linalg.norm(w - shrunk)),
            "zeros": float(np.mean(w == 0)),
        }

    def get_one_result(self):
        return {"w": np.zeros(self.X.shape[1])}

    def get_objective(self):
        data = {"X": self.X, "y": self.y, "sites": self.sites}
        return data | {"lmbd": self.lmbd, "logistic": self.logistic}
