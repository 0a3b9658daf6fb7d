"""Methods that correct a client's gradient by what the other clients see."""

import numpy as np

from tests.reference.losses import soft


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
