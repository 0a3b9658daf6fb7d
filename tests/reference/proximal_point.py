"""Proximal points of the clients' losses, and an exact one for piecewise linear losses."""

import numpy as np


def fedprox(f, x, *, eta, ea, Q, accuracy, rounds, one_minibatch=False):
    """Yuan and Li, eq 3 (or Algorithm 1), solved by gradient steps up to Li et al.'s rule."""
    for t in range(rounds):
        ends = []
        for i in range(f.n):
            u = x
            for l in range(Q):
                g = f.gradient(i, u, t, 0 if one_minibatch else l) + (u - x) / eta
                if l == 0:
                    start = np.linalg.norm(g)
                if np.linalg.norm(g) <= accuracy * start:
                    break
                u = u - ea * g
            ends.append(u)
        x = np.mean(ends, axis=0)
        yield x


def exact_prox(c, d, low, high, x, eta, sweeps=3000):
    """The minimiser of mean_j max_{low <= y <= high} y (c_j u - d_j) + ||u - x||^2/(2 eta), and
    the minimum from the dual side, which no value can be below.

    The absolute loss has y in [-1, 1], the hinge loss [0, 1]. By coordinate ascent on the dual
    problem, u = x - eta mean_j y_j c_j.
    """
    n = len(d)
    y, u = np.zeros(n), np.array(x, float)
    curvature = eta / n * (c**2).sum(axis=1)
    for _ in range(sweeps):
        before = y.copy()
        for j in range(n):
            new = np.clip(y[j] + (c[j] @ u - d[j]) / curvature[j], low, high)
            u = u - eta / n * (new - y[j]) * c[j]
            y[j] = new
        if np.abs(y - before).max() < 1e-15:
            break
    return u, y @ (c @ x - d) / n - eta / 2 * np.sum((y @ c / n) ** 2)
