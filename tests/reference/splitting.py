"""Operator splitting: every client has a dual variable or a centre of its own."""

import numpy as np

from tests.reference.losses import soft


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


def fedpd(f, x0, *, eta, ea, Q, stages):
    """Zhang et al.; stages[t] tells after how many stages the t-th communication comes."""
    x, lam = np.tile(x0, (f.n, 1)), np.zeros((f.n, x0.size))
    own = np.tile(x0, (f.n, 1))
    for t, count in enumerate(stages):
        for stage in range(count):
            for i in range(f.n):
                for q in range(Q):
                    g = f.gradient(i, x[i], t, stage * Q + q)
                    x[i] = x[i] - ea * (g + lam[i] + (x[i] - own[i]) / eta)
                lam[i] = lam[i] + (x[i] - own[i]) / eta
                own[i] = x[i] + eta * lam[i]
        own[:] = own.mean(axis=0)
        yield own[0].copy()


def feddyn(f, x, *, mu, ea, Q, rounds):
    """Acar et al., Algorithm 1; q_i is the gradient they call grad L_k."""
    q, h = np.zeros((f.n, x.size)), np.zeros(x.size)
    for t in range(rounds):
        chosen = f.present(t)
        ends = []
        for i in chosen:
            u = x
            for l in range(Q):
                u = u - ea * (f.gradient(i, u, t, l) - q[i] + mu * (u - x))
            q[i] = q[i] - mu * (u - x)
            ends.append(u)
        h = h - mu / f.n * np.sum([u - x for u in ends], axis=0)
        x = np.mean(ends, axis=0) - h / mu
        yield x


def feddc(f, x, *, mu, ea, Q, rounds):
    """Gao et al., with the mean of the drifts over all clients as in their code."""
    h, si = np.zeros((f.n, x.size)), np.zeros((f.n, x.size))
    s = np.zeros(x.size)
    for t in range(rounds):
        chosen = f.present(t)
        ends, changes = [], []
        for i in chosen:
            u = x
            for l in range(Q):
                u = u - ea * (f.gradient(i, u, t, l) + mu * (u + h[i] - x) + s - si[i])
            h[i] = h[i] + u - x
            new = si[i] - s + (x - u) / (ea * Q)
            changes.append(new - si[i])
            si[i] = new
            ends.append(u)
        s = s + np.sum(changes, axis=0) / f.n
        x = np.mean(ends, axis=0) + h.mean(axis=0)
        yield x


def fedsplit(f, x, *, eta, ea, Q, rounds):
    """Pathak and Wainwright, with inexact proximal steps."""
    z = np.tile(x, (f.n, 1))
    for t in range(rounds):
        for i in range(f.n):
            u, centre = x, 2 * x - z[i]
            for l in range(Q):
                u = u - ea * (f.gradient(i, u, t, l) + (u - centre) / eta)
            z[i] = z[i] + 2 * (u - x)
        x = z.mean(axis=0)
        yield x
