"""Momentum on the clients, base optimisers, recursive gradients."""

import numpy as np


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


class Adam:
    """Also SGD (both betas 0, no division) and momentum (no division)."""

    def __init__(self, kind, beta1, beta2, epsilon):
        self.kind, self.betas, self.epsilon = kind, (beta1, beta2), epsilon
        self.m = self.v = 0.0
        self.count = 0

    def apply(self, g):
        """Direction and new statistics for the gradient g."""
        b1, b2 = self.betas
        m, v = b1 * self.m + (1 - b1) * g, b2 * self.v + (1 - b2) * g**2
        if self.kind == "sgd":
            direction = g
        elif self.kind == "momentum":
            direction = m
        else:
            k = self.count + 1
            direction = m / (1 - b1**k) / (np.sqrt(v / (1 - b2**k)) + self.epsilon)
        return direction, (m, v)

    def accept(self, g):
        self.m, self.v = self.apply(g)[1]
        self.count += 1


def mime(f, x, *, ea, es, Q, rounds, base, lite=False):
    """Karimireddy et al., Mime (and MimeLite)."""
    for t in range(rounds):
        chosen = f.present(t)
        c = np.mean([f.full_gradient(i, x) for i in chosen], axis=0)
        ends = []
        for i in chosen:
            u = x
            for l in range(Q):
                g = f.gradient(i, u, t, l)
                if not lite:
                    g = g - f.gradient(i, x, t, l) + c
                u = u - ea * base.apply(g)[0]
            ends.append(u)
        x = x + es * (np.mean(ends, axis=0) - x)
        base.accept(c)
        yield x


def stem(f, x, *, ea, a, decay, Q, rounds):
    """Khanduri et al., Algorithm 1; yields the point after the server's step.

    The large first batch is the Q minibatches of round 0.
    """
    steps = [ea / (1 + decay * k) ** (1 / 3) for k in range(Q * rounds + 1)]
    first = [[f.gradient(i, x, 0, l) for l in range(Q)] for i in range(f.n)]
    d = np.mean(first, axis=(0, 1))
    yield x - steps[0] * d
    last = [x] * f.n
    for t in range(1, rounds):
        xs, ds = [], []
        for i in range(f.n):
            xi, di = last[i], d
            for l in range(Q):
                k = (t - 1) * Q + l
                new = (x if l == 0 else xi) - steps[k] * di
                weight = a * (steps[k] / ea) ** 2
                di = f.gradient(i, new, t, l) + (1 - weight) * (di - f.gradient(i, xi, t, l))
                xi = new
            xs.append(xi)
            ds.append(di)
        last = xs
        x, d = np.mean(xs, axis=0), np.mean(ds, axis=0)
        yield x - steps[t * Q] * d
