"""Methods with one gradient per client and round."""

import numpy as np

from tests.reference.losses import soft


def prox_sgd(f, x, weight, *, step, rounds):
    for t in range(rounds):
        g = np.mean([f.gradient(i, x, t, 0) for i in range(f.n)], axis=0)
        x = soft(x - step * g, step, weight)
        yield x


def norm_sgd(f, z, weight, *, step, gamma, rounds):
    for t in range(rounds):
        x = soft(z, gamma, weight)
        g = np.mean([f.gradient(i, x, t, 0) for i in range(f.n)], axis=0)
        z = z - step * (g + (z - x) / gamma)
        yield soft(z, gamma, weight)


def proxskip(f, x, weight, *, step, p, rounds):
    """Yields (x, x after the last prox)."""
    h, last = np.zeros(x.size), x
    for t in range(rounds):
        g = np.mean([f.gradient(i, x, t, 0) for i in range(f.n)], axis=0)
        xh = x - step * (g - h)
        if f.coin(t, p):
            x = last = soft(xh - step / p * h, step / p, weight)
        else:
            x = xh
        h = h + p / step * (x - xh)
        yield x, last


def econtrolda(f, x0, weight, *, lam, kappa, k, rounds, draw="top"):
    """lam is a function of the number of rounds so far."""
    h, e = np.zeros((f.n, x0.size)), np.zeros((f.n, x0.size))
    G, x = np.zeros(x0.size), x0
    for t in range(rounds):
        for i in range(f.n):
            g = f.gradient(i, x, t, 0)
            s = g - h[i] + kappa * e[i]
            if draw == "top":
                kept = np.argsort(-np.abs(s))[:k]
            else:
                kept = f.random_entries(i, t, x.size, k)
            h[i][kept] += s[kept]
            e[i] += g - h[i]
        G = G + h.mean(axis=0)
        x = soft(x0 - G / lam(t + 1), (t + 1) / lam(t + 1), weight)
        yield x
