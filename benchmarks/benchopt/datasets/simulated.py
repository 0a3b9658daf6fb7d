"""Sites with features of different averages and spreads."""

import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    """A sparse linear model, the same at all sites; heterogeneity: how their features differ."""

    name = "simulated"
    parameters = {
        "n_sites, n_samples, n_features": [(10, 1000, 100)],
        "heterogeneity": [0.0, 1.0],
        "task": ["regression", "classification"],
    }

    def get_data(self):
        rng = np.random.default_rng(0)
        sites = np.arange(self.n_samples) % self.n_sites
        shift = self.heterogeneity * rng.normal(size=(self.n_sites, self.n_features))
        X = rng.normal(size=(self.n_samples, self.n_features)) + shift[sites]
        w = rng.normal(size=self.n_features) * (rng.random(self.n_features) < 0.1)
        z = X @ w
        if self.task == "classification":
            y = (rng.random(self.n_samples) < 1 / (1 + np.exp(-z))).astype(float)
        else:
            y = z + 0.5 * rng.normal(size=self.n_samples)
        return {"X": X / np.sqrt(np.mean(X**2)), "y": y, "sites": sites}
