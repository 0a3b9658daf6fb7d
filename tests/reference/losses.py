"""The clients' losses and the draws that the reference implementations share with the library."""

from functools import cache

import jax
import numpy as np

from compositefl.engine.sampling import Stream, minibatch, participants, round_key, trial_key


@cache
def drawn(seed, t, i, l, batch_size, size):
    """The samples that the library draws; kept, because drawing takes longer than the loops."""
    key = round_key(trial_key(seed, 0), Stream.MINIBATCH, t)
    return np.asarray(jax.jit(minibatch, static_argnums=3)(key, i, l, batch_size, size))


class LeastSquares:
    """The clients' least-squares losses plus (ridge/2)||x||^2, `count` clients per round."""

    def __init__(self, problem, batch_size, seed, ridge=0.0, count=None):
        self.clients, self.n = problem.clients, len(problem.clients)
        self.batch_size, self.seed, self.ridge = batch_size, seed, ridge
        self.count = count or self.n

    def gradient(self, i, x, t, l):
        if self.batch_size is None:
            return self.full_gradient(i, x)
        size = len(self.clients[i][1])
        return self.full_gradient(i, x, drawn(self.seed, t, i, l, self.batch_size, size))

    def full_gradient(self, i, x, rows=slice(None)):
        a, b = (part[rows] for part in self.clients[i])
        return a.T @ (a @ x - b) / len(b) + self.ridge * x

    def key(self, stream, t):
        return round_key(trial_key(self.seed, 0), stream, t)

    def present(self, t):
        """The clients of round t."""
        if self.count == self.n:
            return range(self.n)
        who, _ = participants(self.key(Stream.PARTICIPANTS, t), self.n, self.count, False)
        return np.sort(np.asarray(who))

    def coin(self, t, probability):
        return float(jax.random.uniform(self.key(Stream.SHARED, t), dtype="float32")) < probability

    def random_entries(self, i, t, p, k):
        key = jax.random.fold_in(self.key(Stream.CLIENT, t), i)
        return np.asarray(jax.random.choice(key, p, (k,), replace=False))


def soft(z, t, weight):
    """prox of t * weight * ||.||_1."""
    return np.sign(z) * np.maximum(np.abs(z) - t * weight, 0.0)
