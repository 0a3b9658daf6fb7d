"""Tables for the tests, and ways to cut them into sites that differ."""

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine


def standardised(X):
    deviation = X.std(axis=0)
    return (X - X.mean(axis=0)) / np.where(deviation > 0, deviation, 1.0)


def breast_cancer():
    return load_breast_cancer(return_X_y=True)


def diabetes():
    """With its features in the units that they were measured in."""
    return load_diabetes(return_X_y=True, scaled=False)


def wine():
    return load_wine(return_X_y=True)


def digits():
    """Zeros to threes among the first 400, with 64 pixels, some of which are the same for all."""
    X, y = load_digits(return_X_y=True)
    some = np.flatnonzero(y[:400] < 4)
    return X[some], y[some]


def wild(n=300, p=8, seed=0):
    """Features in scales from 1e-6 to 1e6, one with a mean of 1e8; and what they say of a target.

    (X, eta): eta is a linear predictor of unit size.
    """
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((n, p)) @ (np.eye(p) + 0.3 * rng.standard_normal((p, p)))
    eta = standardised(Z) @ np.linspace(1.0, -0.5, p) / np.sqrt(p)
    X = Z * np.geomspace(1e-6, 1e6, p)
    X[:, 3] += 1e8 * np.ptp(X[:, 3]) / 1e3  # 1e5 times as far from zero as it is wide
    X[:, -1] += 1e8
    return X, eta


def differing_sites(X, y, classes=False):
    """One sample; one class alone (or the largest targets); the rest by a feature, unequal."""
    n = len(y)
    site = np.full(n, "", dtype=object)
    site[0] = "single"
    order = np.argsort(y[1:], kind="stable") + 1
    alone = order[-min(40, int(np.sum(y[1:] == y[order[-1]])) - 1) :] if classes else order[-20:]
    site[alone] = "one-sided"
    rest = np.flatnonzero(site == "")
    rest = rest[np.argsort(X[rest, 0], kind="stable")]
    small, middle, large = np.split(rest, [len(rest) // 10, len(rest) // 2])
    site[small], site[middle], site[large] = "a", "b", "c"
    return site.astype(str)


def survival_times(eta, seed=0, ties=True):
    """(time, event) with hazards exp(eta); rounded times tie."""
    rng = np.random.default_rng(seed)
    time = rng.exponential(np.exp(-eta))
    censored = rng.exponential(1.5, len(eta))
    event = time <= censored
    time = np.minimum(time, censored)
    return (np.ceil(time * 20) / 20 if ties else time), event
