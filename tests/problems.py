"""Small problems with known answers, shared by the tests."""

import jax
import jax.numpy as jnp
import numpy as np

import compositefl as cfl
from compositefl.problem import External


def squared_loss(w, batch):
    x, y = batch
    return 0.5 * jnp.mean((x @ w - y) ** 2)


def lasso(clients=6, features=8, samples=(12, 7, 9, 15, 12, 10), seed=3):
    """A heterogeneous least-squares problem: every client has its own true weights."""
    rng = np.random.default_rng(seed)
    batches = []
    for size in samples[:clients]:
        x = rng.normal(size=(size, features)) * rng.uniform(0.5, 1.5, features)
        w = rng.normal(size=features) * (rng.random(features) < 0.6)
        batches.append((x, x @ w + 0.1 * rng.normal(size=size)))
    return cfl.Problem(squared_loss, np.linspace(-0.5, 0.5, features), batches)


def centralised_solution(problem, weight, iterations=20000):
    """Proximal gradient in plain NumPy for f + weight * ||x||_1, f the clients' mean."""
    x = np.zeros(problem.params.shape[0])
    hessian = np.mean([a.T @ a / len(b) for a, b in problem.clients], axis=0)
    linear = np.mean([a.T @ b / len(b) for a, b in problem.clients], axis=0)
    step = 1.0 / np.linalg.eigvalsh(hessian)[-1]
    for _ in range(iterations):
        z = x - step * (hessian @ x - linear)
        x = np.sign(z) * np.maximum(np.abs(z) - step * weight, 0.0)
    return x


def network(clients=5, seed=0):
    """A tiny sigmoid network with a pytree of parameters and clients of unequal size."""
    rng = np.random.default_rng(seed)
    batches = []
    for i in range(clients):
        size = 9 + 3 * i
        x = rng.normal(size=(size, 4)) + i / clients
        batches.append({"x": x, "y": rng.integers(0, 3, size).astype(np.int32)})
    params = {
        "hidden": {"kernel": rng.normal(size=(4, 5)), "bias": rng.normal(size=5)},
        "out": {"kernel": rng.normal(size=(5, 3)), "bias": np.zeros(3)},
    }
    return cfl.Problem(cross_entropy, params, batches)


def cross_entropy(params, batch):
    hidden = jax.nn.sigmoid(batch["x"] @ params["hidden"]["kernel"] + params["hidden"]["bias"])
    logits = hidden @ params["out"]["kernel"] + params["out"]["bias"]
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), batch["y"][:, None], 1))


class Outside(External):
    """A loss that the engine must not look into."""

    def __init__(self, loss):
        self.loss, self.both = jax.jit(loss), jax.jit(jax.value_and_grad(loss))

    def __call__(self, params, batch):
        return np.asarray(self.loss(params, batch))

    def value_and_gradient(self, params, batch):
        assert all(isinstance(a, np.ndarray) for a in jax.tree.leaves((params, batch)))
        return jax.tree.map(np.asarray, self.both(params, batch))
