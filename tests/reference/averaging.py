"""Federated mirror descent and dual averaging."""

import numpy as np

from tests.reference.losses import soft


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
