"""A proximal Newton method for l1-penalised logistic regression in plain NumPy."""

import numpy as np


def pooled(clients, intercept=True):
    """(X, y) of all clients, with a first column of ones."""
    x, y = (np.concatenate(part) for part in zip(*clients, strict=True))
    return np.column_stack([np.ones(len(x)), x]) if intercept else x, y


def logistic(w, x, y):
    """Mean loss, gradient and Hessian."""
    z = x @ w
    loss = np.mean(np.logaddexp(0, np.where(y == 1, -z, z)))
    chance = 1 / (1 + np.exp(-z))
    return loss, x.T @ (chance - y) / len(y), (x.T * (chance * (1 - chance))) @ x / len(y)


def coordinate_descent(x, g, B, weight, sweeps=200_000):
    """argmin g.(y - x) + 1/2 (y - x)'B(y - x) + sum_j weight_j |y_j|, one entry after the other."""
    y, q = x.copy(), g.copy()
    for _ in range(sweeps):
        before = y.copy()
        for j in range(len(y)):
            z = y[j] - q[j] / B[j, j]
            new = np.sign(z) * max(abs(z) - weight[j] / B[j, j], 0.0)
            q += B[j] * (new - y[j])
            y[j] = new
        if np.abs(y - before).max() < 1e-14:
            return y
    raise AssertionError("not converged")


def prox_newton(w, x, y, weight, rounds):
    """The accepted point after each round; the first round measures the start."""
    psi = lambda loss, w: loss + weight @ np.abs(w)  # noqa: E731
    least = np.finfo(float).eps ** (2 / 3)
    here, damping, trial, promised = None, 0.0, w, 0.0
    for _ in range(rounds):
        new = logistic(trial, x, y)
        noise = 10 * np.finfo(float).eps * (abs(new[0]) + (abs(here[0]) if here else 0))
        if here is None:
            w, here = trial, new
        else:
            share = (psi(here[0], w) - psi(new[0], trial) + noise) / (promised + noise)
            if share >= 1e-4:
                w, here = trial, new
                damping *= 0.1 if share > 0.75 else 10.0 if share < 0.25 else 1.0
            else:
                damping = max(10 * damping, 1e-2)
        damping = max(damping, least)
        yield w
        _, g, H = here
        trial = coordinate_descent(w, g, H + damping * np.diag(np.diag(H)), weight)
        d = trial - w
        promised = psi(0, w) - psi(0, trial) - g @ d - 0.5 * d @ H @ d
