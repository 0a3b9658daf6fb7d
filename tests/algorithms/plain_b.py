"""More methods in plain NumPy loops, straight from the papers' pseudo-code.

As in `plain`, they share only the random draws with the library, and yield the model after every
round. `present(t)` lists the clients of round t, by default all of them.
"""

from functools import cache

import jax
import numpy as np

from compositefl.engine.sampling import Stream, minibatch, participants, round_key, trial_key


@cache
def drawn(seed, t, i, l, batch_size, size):
    """The samples that the library draws; kept, because drawing takes longer than the twins."""
    key = round_key(trial_key(seed, 0), Stream.MINIBATCH, t)
    return np.asarray(jax.jit(minibatch, static_argnums=3)(key, i, l, batch_size, size))


class Losses:
    """The clients' least-squares losses plus (ridge/2)||x||^2."""

    def __init__(self, problem, batch_size, seed, ridge=0.0):
        self.clients, self.n = problem.clients, len(problem.clients)
        self.batch_size, self.seed, self.ridge = batch_size, seed, ridge

    def gradient(self, i, x, t, l):
        size = len(self.clients[i][1])
        return self.full_gradient(i, x, drawn(self.seed, t, i, l, self.batch_size, size))

    def full_gradient(self, i, x, rows=slice(None)):
        a, b = (part[rows] for part in self.clients[i])
        return a.T @ (a @ x - b) / len(b) + self.ridge * x


def sampled(f, count):
    """The clients that the library draws in round t."""

    def present(t):
        key = round_key(trial_key(f.seed, 0), Stream.PARTICIPANTS, t)
        return np.flatnonzero(np.asarray(participants(key, f.n, count, False)))

    return present


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


def feddyn(f, x, *, mu, ea, Q, rounds, present=None):
    """Acar et al., Algorithm 1; q_i is the gradient they call grad L_k."""
    q, h = np.zeros((f.n, x.size)), np.zeros(x.size)
    for t in range(rounds):
        chosen = present(t) if present else range(f.n)
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


def feddc(f, x, *, mu, ea, Q, rounds, present=None):
    """Gao et al., with the mean of the drifts over all clients as in their code."""
    h, si = np.zeros((f.n, x.size)), np.zeros((f.n, x.size))
    s = np.zeros(x.size)
    for t in range(rounds):
        chosen = present(t) if present else range(f.n)
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


def scaffnew(f, x, *, gamma, p, lengths):
    """Mishchenko et al., step by step; lengths[t] steps up to the t-th head of the shared coin."""
    xi, h = np.tile(x, (f.n, 1)), np.zeros((f.n, x.size))
    for t, length in enumerate(lengths):
        for l in range(length):
            g = np.array([f.gradient(i, xi[i], t, l) for i in range(f.n)])
            xi = xi - gamma * (g - h)
        mean = np.tile(xi.mean(axis=0), (f.n, 1))
        h = h + p / gamma * (mean - xi)
        xi = mean
        yield mean[0]


def vrl_sgd(f, x, *, ea, Q, rounds):
    """Liang et al., Algorithm 1."""
    correction = np.zeros((f.n, x.size))
    for t in range(rounds):
        ends = []
        for i in range(f.n):
            u = x
            for l in range(Q):
                u = u - ea * (f.gradient(i, u, t, l) - correction[i])
            ends.append(u)
        x = np.mean(ends, axis=0)
        correction = correction + (x - np.array(ends)) / (ea * Q)
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


def mime(f, x, *, ea, es, Q, rounds, base, lite=False, present=None):
    """Karimireddy et al., Mime (and MimeLite)."""
    for t in range(rounds):
        chosen = present(t) if present else range(f.n)
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
