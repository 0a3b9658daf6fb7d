"""Nonsmooth losses: the certified solver of the local problems and the methods that use it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog, minimize

import compositefl as cfl
from compositefl.algorithms import (
    FedMSPPNonsmooth,
    FedProxNonsmooth,
)
from compositefl.algorithms.certified import begin_solve, improve
from compositefl.core.vector import Vector
from compositefl.engine.sampling import Stream, minibatch, round_key, trial_key
from tests.algorithms.helpers import (
    SEED,
    assert_equal,
    solve,
)
from tests.reference import (
    proximal_point,
)


def absolute_loss(w, batch):
    c, d = batch
    return jnp.mean(jnp.abs(c @ w - d))


def hinge_loss(w, batch):
    c, d = batch
    return jnp.mean(jnp.maximum(c @ w - d, 0.0))


def phase_loss(w, batch):
    """Robust phase retrieval: weakly convex, neither convex nor smooth."""
    c, d = batch
    return jnp.mean(jnp.abs((c @ w) ** 2 - d))


NONSMOOTH = {"absolute": (absolute_loss, -1.0), "hinge": (hinge_loss, 0.0)}


def nonsmooth_problem(kind):
    """Heterogeneous regression, or classification with labels folded into c = -y a, d = -1."""
    rng = np.random.default_rng(5)
    clients = []
    for size in (12, 9, 15, 10):
        a = rng.normal(size=(size, 5)) + 0.3 * rng.normal(size=5)
        target = a @ (rng.normal(size=5) + np.array([1.0, -1.0, 0.5, 0.0, 0.0]))
        if kind == "hinge":
            flip = np.where(rng.random(size) < 0.2, -1.0, 1.0)
            clients.append((-(np.sign(target) * flip)[:, None] * a, -np.ones(size)))
        else:
            clients.append((a, target + 0.3 * rng.standard_t(2, size)))
    return cfl.Problem(NONSMOOTH[kind][0], np.zeros(5), clients)


def minimum(problem, low):
    """min of the clients' mean loss, by linear programming."""
    p, clients = problem.params.size, problem.clients
    c = np.concatenate([c for c, _ in clients])
    d = np.concatenate([d for _, d in clients])
    weight = np.concatenate([np.full(len(d), 1 / len(d)) for _, d in clients]) / len(clients)
    n = len(d)
    rows = [np.hstack([side * c, -np.eye(n)]) for side in (low, 1.0)]
    bounds = np.concatenate([side * d for side in (low, 1.0)])
    cost = np.concatenate([np.zeros(p), weight])
    return linprog(cost, np.vstack(rows), bounds, bounds=[(None, None)] * (p + n)).fun


def solver_path(loss, batch, x, eta, nu, steps):
    """(h(best), upper, lower) after each step of the certified solver, in float64."""
    m = 1 / eta - nu

    def body(solve, l):
        value, slope = jax.value_and_grad(loss)(solve.u.tree, batch)
        solve = improve(solve, value, Vector(slope), nu, m, l == 0)
        best = solve.best.tree
        h = loss(best, batch) + jnp.sum((best - x) ** 2) / (2 * eta)
        return solve, (h, solve.upper, solve.lower)

    with jax.enable_x64(True):
        x = jnp.asarray(x, jnp.float64)
        batch = jax.tree.map(jnp.asarray, batch)
        start = begin_solve(Vector(x))
        return [np.asarray(v) for v in jax.lax.scan(body, start, jnp.arange(steps))[1]]


@pytest.mark.parametrize("kind", NONSMOOTH)
def test_certificate_is_a_bound(kind):
    loss, low = NONSMOOTH[kind]
    problem = nonsmooth_problem(kind)
    for (c, d), eta in zip(problem.clients, (1.0, 3.0, 3.0, 10.0), strict=True):
        x = problem.params
        u, exact = proximal_point.exact_prox(c, d, low, 1.0, x, eta)
        r = c @ u - d
        assert np.mean(np.maximum(low * r, r)) + np.sum((u - x) ** 2) / (2 * eta) < exact + 1e-9
        h, upper, lower = solver_path(loss, (c, d), x, eta, 0.0, 400)
        np.testing.assert_allclose(h, upper, atol=1e-12)
        assert np.all(lower <= exact + 1e-12) and np.all(h >= exact - 1e-12)
        assert np.all(np.diff(upper) <= 0) and np.all(np.diff(lower) >= 0)
        gap = upper - lower
        assert gap[0] > 0.3 and gap[-1] < 0.01 * gap[0]


def test_certificate_of_a_weakly_convex_loss():
    rng = np.random.default_rng(0)
    c = rng.normal(size=(12, 2))
    batch = (c, (c @ np.array([1.0, -0.5])) ** 2)
    nu = 2 * np.linalg.eigvalsh(c.T @ c / 12)[-1]
    x, eta = np.array([0.05, 0.3]), 0.7 / nu

    def h(u):
        return np.mean(np.abs((c @ u) ** 2 - batch[1])) + np.sum((u - x) ** 2) / (2 * eta)

    tight = dict(xatol=1e-12, fatol=1e-15, maxiter=10000)
    starts = [x, x + 1, x - 1, np.array([1.0, -0.5])]
    exact = min(minimize(h, s, method="Nelder-Mead", options=tight).fun for s in starts)
    best, upper, lower = solver_path(phase_loss, batch, x, eta, nu, 400)
    assert np.all(lower <= exact + 1e-12) and np.all(best >= exact - 1e-9)
    assert (upper - lower)[-1] < 0.01 * (upper - lower)[0]
    _, upper, lower = solver_path(phase_loss, batch, x, eta, 0.0, 400)
    assert lower[-1] > upper[-1] + 1e-3  # a modulus that is too small shows as a negative gap


@pytest.mark.parametrize("kind", NONSMOOTH)
def test_nonsmooth_fedprox(kind):
    low = NONSMOOTH[kind][1]
    problem, eta, accuracy = nonsmooth_problem(kind), 3.0, 1e-2
    options = dict(eta=eta, accuracy=accuracy)
    result = solve(problem, None, FedProxNonsmooth(local_steps=2000, **options), rounds=1)
    exact = [
        proximal_point.exact_prox(c, d, low, 1.0, problem.params, eta)[0]
        for c, d in problem.clients
    ]
    # h is strongly convex with 1/eta: ||u - u*||^2 <= 2 eta gap.
    assert np.linalg.norm(result.params - np.mean(exact, 0)) <= np.sqrt(2 * eta * accuracy)
    assert result.server.gap <= accuracy and result.server.unsolved == 0
    assert 4 * 2 < result.history.gradients.iloc[-1] < 4 * 2000
    cut = solve(problem, None, FedProxNonsmooth(local_steps=2, **options), rounds=1)
    assert cut.server.gap > accuracy and cut.server.unsolved == 1


@pytest.mark.parametrize("kind", NONSMOOTH)
def test_objective_of_nonsmooth_fedprox_falls_with_eta(kind):
    problem, start = nonsmooth_problem(kind), []
    best = minimum(problem, NONSMOOTH[kind][1])
    errors = []
    for eta in (0.4, 0.1, 0.025):
        algorithm = FedProxNonsmooth(local_steps=1000, eta=eta, accuracy=1e-4 * eta)
        history = solve(problem, None, algorithm, rounds=round(60 / eta)).history
        start.append(history.psi.iloc[0] - best)
        errors.append(history.psi.iloc[-1] - best)
    assert errors[0] < 0.2 * start[0]
    assert errors[0] > 2 * errors[1] > 4 * errors[2] > 0


@pytest.mark.parametrize("kind", NONSMOOTH)
def test_nonsmooth_fedmspp(kind):
    low = NONSMOOTH[kind][1]
    problem, eta, accuracy = nonsmooth_problem(kind), 0.5, 1e-3
    algorithm = FedMSPPNonsmooth(local_steps=2000, eta=eta, accuracy=accuracy)
    result = solve(problem, None, algorithm, rounds=1, batch_size=6)
    key = round_key(trial_key(SEED, 0), Stream.MINIBATCH, 0)
    exact = []
    for i, (c, d) in enumerate(problem.clients):
        rows = np.asarray(minibatch(key, i, 0, 6, len(d)))
        exact.append(proximal_point.exact_prox(c[rows], d[rows], low, 1.0, problem.params, eta)[0])
    assert np.linalg.norm(result.params - np.mean(exact, 0)) <= np.sqrt(2 * eta * accuracy)
    assert result.server.gap <= accuracy and result.server.unsolved == 0
    psi = solve(problem, None, algorithm, rounds=150, batch_size=6).history.psi
    best = minimum(problem, low)
    assert 0 < psi.iloc[-1] - best < 0.4 * (psi.iloc[0] - best)


def test_regularizer_inside_the_nonsmooth_loss():
    """The subgradient variant is the same as the regulariser written into the loss."""
    problem = nonsmooth_problem("absolute")
    phi = cfl.MCP(0.3, 4.0)

    def whole(w, batch):
        return absolute_loss(w, batch) + phi.value(w)

    inside = cfl.Problem(whole, problem.params, problem.clients)
    options = dict(local_steps=50, eta=0.5, accuracy=1e-3)
    a = solve(problem, phi, FedProxNonsmooth(composite="subgradient", **options), rounds=5)
    b = solve(inside, None, FedProxNonsmooth(weak_convexity=float(phi.rho), **options), rounds=5)
    assert_equal(a.params, b.params)
    assert_equal(a.server.gap, b.server.gap)
