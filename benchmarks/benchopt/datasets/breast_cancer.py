"""scikit-learn's breast cancer data, sorted by label over the sites."""

import numpy as np
from benchopt import BaseDataset
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import StandardScaler


class Dataset(BaseDataset):
    """569 samples of 30 features; with sites sorted by label no site can learn alone."""

    name = "breast_cancer"
    parameters = {"n_sites": [8]}
    requirements = ["scikit-learn"]

    def get_data(self):
        X, y = load_breast_cancer(return_X_y=True)
        order = np.argsort(y, kind="stable")
        X, y = StandardScaler().fit_transform(X)[order], y[order].astype(float)
        return {"X": X, "y": y, "sites": np.arange(len(y)) * self.n_sites // len(y)}
