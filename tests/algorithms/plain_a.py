"""More methods in plain NumPy loops, see plain.py: splitting, dual averaging, momentum.

Sums and duals are kept as in the papers' pseudo-code, not as the library keeps them.
"""

import jax
import numpy as np

from compositefl.engine.sampling import Stream, participants, round_key, trial_key
from plain import LeastSquares, soft


class Sampled(LeastSquares):
    """Adds the other draws of the library: participants, and the choices of a method."""

    def __init__(self, problem, batch_size, seed, count=None):
        super().__init__(problem, batch_size, seed)
        self.count = count or self.n

    def key(self, stream, t):
        return round_key(trial_key(self.seed, 0), stream, t)

    def present(self, t):
        if self.count == self.n:
            return range(self.n)
        draw = participants(self.key(Stream.PARTICIPANTS, t), self.n, self.count, False)
        return np.flatnonzero(np.asarray(draw))

    def full_gradient(self, i, x):
        a, b = self.clients[i]
        return a.T @ (a @ x - b) / len(b)

    def coin(self, t, probability):
        return float(jax.random.uniform(self.key(Stream.SHARED, t), dtype="float32")) < probability

    def random_entries(self, i, t, p, k):
        key = jax.random.fold_in(self.key(Stream.CLIENT, t), i)
        return np.asarray(jax.random.choice(key, p, (k,), replace=False))


def fast_fedda(f, x0, weight, *, mu, gam, Q, rounds):
    """The argmin with an explicit list of all lower bounds, one (gradient, point) a step."""

    def argmin(total, count):  # total: [sum of gradients, sum of points]
        curvature = 0.5 * mu * count + gam
        centre = (0.5 * mu * total[1] + gam * x0 - total[0]) / curvature
        return soft(centre, count / curvature, weight)

    history = np.zeros((2, x0.size))
    w = x0
    for t in range(rounds):
        ends = []
        for i in f.present(t):
            bounds, wi = [history], w
            for l in range(Q):
                bounds.append(np.array([f.gradient(i, wi, t, l), wi]))
                wi = argmin(sum(bounds), t * Q + l + 1)
            ends.append(sum(bounds))
        history = np.mean(ends, axis=0)
        w = argmin(history, (t + 1) * Q)
        yield w


def fast_fedda_program(f, x0, weight, *, mu, gam, Q, rounds):
    """The authors' program: every new model enters the sum, the server's too."""
    G, X, w = np.zeros(x0.size), x0, x0
    for t in range(rounds):
        Gs, Xs = [], []
        for i in f.present(t):
            Gi, Xi, wi = G, X, w
            for l in range(Q):
                Gi = Gi + f.gradient(i, wi, t, l)
                N = t * Q + l + 1
                B = 0.5 * mu + gam / N
                wi = soft(-(Gi - 0.5 * mu * Xi - gam * x0) / (N * B), 1 / B, weight)
                Xi = Xi + wi
            Gs.append(Gi)
            Xs.append(Xi)
        G, X = np.mean(Gs, axis=0), np.mean(Xs, axis=0)
        N = (t + 1) * Q
        B = 0.5 * mu + gam / N
        w = soft(-(G - 0.5 * mu * X - gam * x0) / (N * B), 1 / B, weight)
        X = X + w
        yield w


def feddr(f, x0, weight, *, eta, a, ea, Q, rounds):
    """The server averages the xhat_i of all clients itself."""
    y, x = np.tile(x0, (f.n, 1)), np.tile(x0, (f.n, 1))
    xhat, xbar = np.tile(x0, (f.n, 1)), x0
    for t in range(rounds):
        for i in f.present(t):
            y[i] = y[i] + a * (xbar - x[i])
            for l in range(Q):
                x[i] = x[i] - ea * (f.gradient(i, x[i], t, l) + (x[i] - y[i]) / eta)
            xhat[i] = 2 * x[i] - y[i]
        xbar = soft(xhat.mean(axis=0), eta, weight)
        yield xbar


def fedadmm(f, x0, weight, *, eta, ea, Q, rounds):
    z, x, xbar = np.zeros((f.n, x0.size)), np.tile(x0, (f.n, 1)), x0
    for t in range(rounds):
        for i in f.present(t):
            for l in range(Q):
                g = f.gradient(i, x[i], t, l) + z[i] + (x[i] - xbar) / eta
                x[i] = x[i] - ea * g
            z[i] = z[i] + (x[i] - xbar) / eta
        xbar = soft((x + eta * z).mean(axis=0), eta, weight)
        yield xbar


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


def fedavg_m(f, x, *, b, ea, es, Q, rounds):
    d = np.zeros(x.size)
    for t in range(rounds):
        ends = []
        for i in f.present(t):
            xi = x
            for l in range(Q):
                xi = xi - ea * (b * f.gradient(i, xi, t, l) + (1 - b) * d)
            ends.append(xi)
        d = (x - np.mean(ends, axis=0)) / (ea * Q)
        x = x - ea * es * Q * d
        yield x


def scaffold_m(f, x, *, b, ea, es, Q, rounds):
    """The server averages the controls of all clients itself."""
    d, ci = np.zeros(x.size), np.zeros((f.n, x.size))
    for t in range(rounds):
        ends, c = [], ci.mean(axis=0)
        for i in f.present(t):
            xi, gradients = x, []
            for l in range(Q):
                gradients.append(f.gradient(i, xi, t, l))
                xi = xi - ea * (b * (gradients[-1] - ci[i] + c) + (1 - b) * d)
            ends.append(xi)
            ci[i] = np.mean(gradients, axis=0)
        d = (x - np.mean(ends, axis=0)) / (ea * Q)
        x = x - ea * es * Q * d
        yield x


def scaffold_1(f, x, *, ea, es, Q, rounds):
    """Option I; the server averages the controls of all clients itself."""
    ci = np.zeros((f.n, x.size))
    for t in range(rounds):
        ends, c = [], ci.mean(axis=0)
        for i in f.present(t):
            xi = x
            for l in range(Q):
                xi = xi - ea * (f.gradient(i, xi, t, l) - ci[i] + c)
            ends.append(xi)
            ci[i] = f.full_gradient(i, x)
        x = x + es * (np.mean(ends, axis=0) - x)
        yield x
