"""A loss that is no mean over samples would be solved as another problem: it is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import compositefl as cfl
from tests.problems import squared_loss

RNG = np.random.default_rng(1)
CLIENTS = [(RNG.normal(size=(n, 3)), RNG.exponential(size=n)) for n in (5, 8, 4)]


def total(w, batch):
    x, y = batch
    return 0.5 * jnp.sum((x @ w - y) ** 2)


def cox(w, batch):
    """Negative partial log-likelihood over the batch's risk sets; 0 for one sample alone."""
    x, time = batch
    score = x @ w
    at_risk = time[None, :] >= time[:, None]
    sets = jax.nn.logsumexp(jnp.where(at_risk, score[None, :], -jnp.inf), axis=1)
    return jnp.mean(sets - score)


def correlation(w, batch):
    x, y = batch
    return -jnp.corrcoef(x @ w, y)[0, 1]  # NaN for one sample


def normalised(w, batch):
    x, y = batch
    return squared_loss(w, ((x - x.mean(0)) / (x.std(0) + 1e-3), y))


@pytest.mark.parametrize("loss", [total, cox, correlation, normalised])
@pytest.mark.parametrize("start", [np.zeros(3), np.ones(3)], ids=["zero", "ones"])
def test_refused(loss, start):
    with pytest.raises(cfl.CompositeFLError, match=r"mean over samples.*coupled_batch=") as error:
        cfl.Problem(loss, start, CLIENTS)
    assert error.value.parameter == "loss" and "\n" not in str(error.value)
    cfl.Problem(loss, start, CLIENTS, coupled_batch=4)


def hinge(w, batch):
    x, y = batch
    return jnp.mean(jnp.maximum(0.0, (x @ w) * y - 1e3))  # 0 at every sample


def with_ridge(w, batch):
    return squared_loss(w, batch) + 0.1 * jnp.sum(w**2)


def large_numbers(w, batch):
    """Differences of large numbers: float32 leaves three digits."""
    x, y = batch
    return jnp.mean((1e4 + x @ w) - (1e4 - y))


@pytest.mark.parametrize("loss", [squared_loss, hinge, with_ridge, large_numbers])
def test_means_are_taken(loss):
    cfl.Problem(loss, np.zeros(3), CLIENTS)
    cfl.Problem(loss, np.zeros(3), CLIENTS[:1])
    cfl.Problem(loss, np.zeros(3), [(np.ones((1, 3)), np.ones(1))])


def test_raw_features():
    big = [(1e4 * x, y) for x, y in CLIENTS]
    cfl.Problem(squared_loss, np.zeros(3), big)
    with pytest.raises(cfl.CompositeFLError, match="mean over samples"):
        cfl.Problem(total, np.zeros(3), big)


@pytest.mark.filterwarnings("error")
def test_numbers_beyond_float32_are_left_to_the_run():
    huge = [(1e200 * x, y) for x, y in CLIENTS]
    cfl.Problem(squared_loss, np.zeros(3), huge)


class Centred(torch.nn.Module):
    """Samples that depend on each other without a layer that says so."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x - x.mean(0))


def test_pytorch():
    clients = [(x, (y > 1).astype(int)) for x, y in CLIENTS]
    with pytest.raises(cfl.CompositeFLError, match=r"mean over samples.*coupled_batch="):
        cfl.models.from_torch(Centred()).problem(clients)
    cfl.models.from_torch(torch.nn.Linear(3, 2)).problem(clients)


def test_the_loop_for_pytorch_refuses_what_it_would_ignore():
    clients = [(x, (y > 1).astype(int)) for x, y in CLIENTS]
    problem = cfl.models.from_torch(torch.nn.Linear(3, 2)).problem(clients)
    for option in ({"devices": 2}, {"client_block": 1}):
        with pytest.raises(cfl.CompositeFLError, match="one after the other: leave it out"):
            cfl.minimize(problem, None, cfl.PGD(lr=0.1), rounds=1, progress=False, **option)
