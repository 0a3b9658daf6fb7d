"""The methods once more, in plain NumPy loops, straight from the papers' pseudo-code.

They share nothing with the library but the numbers of the samples drawn, so that trajectories can
be compared. Each yields the model after every round.
"""

import numpy as np

from compositefl.engine.sampling import Stream, minibatch, round_key, trial_key


class LeastSquares:
    """Gradients of the clients' losses, on the samples that the library would draw."""

    def __init__(self, problem, batch_size, seed):
        self.clients = problem.clients
        self.batch_size = batch_size
        self.seed = seed
        self.n = len(self.clients)

    def gradient(self, i, x, t, l):
        a, b = self.clients[i]
        if self.batch_size is not None:
            key = round_key(trial_key(self.seed, 0), Stream.MINIBATCH, t)
            rows = np.asarray(minibatch(key, i, l, self.batch_size, len(b)))
            a, b = a[rows], b[rows]
        return a.T @ (a @ x - b) / len(b)


def soft(z, t, weight):
    return np.sign(z) * np.maximum(np.abs(z) - t * weight, 0.0)


def fednmap(f, z, weight, *, gamma, ea, es, Q, rounds):
    """Algorithm 1 with the corrections c_i and the uploads y_i of the paper."""
    c = np.zeros((f.n, z.size))
    y = np.zeros((f.n, z.size))
    for t in range(rounds):
        c = c - y + y.mean(axis=0)
        x = soft(z, gamma, weight)
        for i in range(f.n):
            zi = z
            for l in range(Q):
                g = f.gradient(i, soft(zi, gamma, weight), t, l)
                zi = zi - ea * (g + (z - x) / gamma + c[i])
            y[i] = (z - zi) / (ea * Q)
        z = z - ea * es * Q * y.mean(axis=0)
        yield soft(z, gamma, weight)


def za1(f, xbar, weight, *, ea, es, Q, rounds):
    """Zhang et al., Algorithm 1."""
    eh = ea * es * Q
    c = np.zeros((f.n, xbar.size))
    for t in range(rounds):
        p = soft(xbar, eh, weight)
        zhats, means = [], []
        for i in range(f.n):
            zhat, z, total = p, p, 0.0
            for l in range(Q):
                g = f.gradient(i, z, t, l)
                total = total + g
                zhat = zhat - ea * (g + c[i])
                z = soft(zhat, (l + 1) * ea, weight)
            zhats.append(zhat)
            means.append(total / Q)
        xbar = p + es * (np.mean(zhats, axis=0) - p)
        c = (p - xbar) / eh - np.array(means)
        yield soft(xbar, eh, weight)


def fedcanon(f, x, weight, *, ea, es, Q, rounds):
    """Zhou et al.: alpha = eta_hat, beta = eta_a, c_i <- c_i + v - v_i."""
    alpha = ea * es * Q
    c = np.zeros((f.n, x.size))
    for t in range(rounds):
        v = np.zeros((f.n, x.size))
        for i in range(f.n):
            z = x
            for l in range(Q):
                z = z - ea * (f.gradient(i, z, t, l) + c[i])
            v[i] = (x - z) / (ea * Q)
        c = c + v.mean(axis=0) - v
        x = soft(x - alpha * v.mean(axis=0), alpha, weight)
        yield x


def fedmid(f, x, weight, *, ea, es, Q, rounds):
    """Yuan et al., FedMiD with the Euclidean mirror map."""
    for t in range(rounds):
        ends = []
        for i in range(f.n):
            xi = x
            for l in range(Q):
                xi = soft(xi - ea * f.gradient(i, xi, t, l), ea, weight)
            ends.append(xi)
        x = soft(x + es * (np.mean(ends, axis=0) - x), ea * es * Q, weight)
        yield x


def fedda(f, y, weight, *, ea, es, Q, rounds):
    """Yuan et al., FedDualAvg: the prox parameter is the sum of all steps so far."""
    for t in range(rounds):
        elapsed = ea * es * Q * t
        ends = []
        for i in range(f.n):
            yi = y
            for l in range(Q):
                yi = yi - ea * f.gradient(i, soft(yi, elapsed + l * ea, weight), t, l)
            ends.append(yi)
        y = y + es * (np.mean(ends, axis=0) - y)
        yield soft(y, ea * es * Q * (t + 1), weight)


def scaffold(f, x, *, ea, es, Q, rounds):
    """Karimireddy et al., option II."""
    c, ci = np.zeros(x.size), np.zeros((f.n, x.size))
    for t in range(rounds):
        dx, dc = [], []
        for i in range(f.n):
            xi = x
            for l in range(Q):
                xi = xi - ea * (f.gradient(i, xi, t, l) - ci[i] + c)
            new = ci[i] - c + (x - xi) / (ea * Q)
            dx.append(xi - x)
            dc.append(new - ci[i])
            ci[i] = new
        x = x + es * np.mean(dx, axis=0)
        c = c + np.mean(dc, axis=0)
        yield x


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
