"""The theorems against measured runs on quadratics with every constant known.

Theorem 5 is taken apart term by term: in each regime all but a few of the quantities in its bound
vanish, the measured average lies below the terms that are left, and, where such a run exists, above
the bound without the term in question, so that the term is seen to be needed. The term with the
local noise never decides: it would need more than 10^7 clients to stand out from the noise term.
The one with ||prox(z_0) - z_0|| is always smaller than those with F_nor(z_0) and grad f_i.
"""

import numpy as np
import pytest

import compositefl as cfl
from compositefl.core.component import replace
from compositefl.simulation.simulation import Simulation
from compositefl.theory import stepsizes
from tests.theory.theory_problems import Quadratic, mixed, run, soft, tiled

GAMMA = 0.2  # 1/(5 L), L = 1
LIMIT = 1 / (100 * np.sqrt(26))  # of eta_hat at m = 1


def fednmap(steps):
    return cfl.FedNMap(
        gamma=steps.gamma,
        local_lr=steps.local_lr,
        server_lr=steps.server_lr,
        local_steps=steps.setting.local_steps,
    )


def at_the_limit(c, rounds, local_steps, server_lr=1.0):
    """Theorem 5 with gamma and eta_hat at their limits."""
    local_lr = LIMIT / (local_steps * server_lr)
    return stepsizes(
        "fednmap",
        c,
        rounds=rounds,
        local_steps=local_steps,
        gamma=GAMMA,
        local_lr=local_lr,
        server_lr=server_lr,
    )


def average(out, rounds):
    """Mean over trials and rounds 0..rounds-1, as in the theorem."""
    return float(out["F"][:, :rounds].mean())


def test_descent_terms():
    """No noise, no regulariser, equal clients: the average is Delta/(eta_hat T), 27 times less."""
    q = Quadratic(np.tile([1.0, 0.2, 0.2, 0.2], (2, 1)), np.zeros((2, 4)))
    z, rounds = np.array([0.0, 1.0, -2.0, 1.0]), 8000
    c = q.constants(z, GAMMA)
    steps = at_the_limit(c, rounds, 2)
    measured = average(run(q, fednmap(steps), z, rounds=rounds), rounds)
    terms = steps.terms()
    assert measured == pytest.approx(terms["delta"] / 27, rel=0.02)
    rest = steps.bound() - terms["delta"]
    assert rest < measured < terms["delta"]


def test_normal_map_term():
    """Start with the right model but the wrong z: only F_nor(z_0) is left."""
    q = Quadratic(np.ones((2, 4)), np.zeros((2, 4)), weight=0.5)
    z, rounds = np.full(4, 0.09), 1000  # prox(z) = 0 = x*
    c = q.constants(z, GAMMA)
    assert c.delta == c.gradients_sq == 0
    steps = at_the_limit(c, rounds, 2)
    measured = average(run(q, fednmap(steps), z, rounds=rounds), rounds)
    # F_nor shrinks by 1 - eta_hat/gamma a round while the model stays
    assert measured == pytest.approx(GAMMA * c.normal_map_sq / (2 * LIMIT * rounds), rel=0.02)
    terms = steps.terms()
    assert steps.bound() - terms["normal_map"] < measured < terms["normal_map"]


def test_noise_term():
    """Start at the solution of equal clients, tiny local steps: only the noise is left."""
    q = Quadratic(np.ones((4, 4)), np.zeros((4, 4)))
    z, rounds = np.zeros(4), 4000
    c = q.constants(z, GAMMA, sigma=2.0)
    steps = at_the_limit(c, rounds, 2, server_lr=1000.0)
    out = run(q, fednmap(steps), z, rounds=rounds, sigma=2.0)
    measured = average(out, rounds)
    terms = steps.terms()
    assert set(k for k, v in terms.items() if v > 0) == {"noise", "local_noise"}
    assert terms["local_noise"] < measured < terms["noise"]


def test_start_gradients_term():
    """Start at the solution of different clients, no noise: their first drift moves the server."""
    q = mixed(weight=0.0)
    z, rounds = q.solution, 500
    c = q.constants(z, GAMMA)
    steps = at_the_limit(c, rounds, 4)
    measured = average(run(q, fednmap(steps), z, rounds=rounds), rounds)
    terms = steps.terms()
    assert steps.bound() - terms["start_gradients"] < measured < terms["start_gradients"]


@pytest.mark.parametrize("sigma", [0.0, 1.0, 10.0])
def test_theorem_5_on_a_heterogeneous_lasso(sigma):
    """The theory's own steps, everything switched on, for every number of rounds up to T."""
    q, z, rounds = mixed(), np.full(4, 2.0), 1000
    c = q.constants(z, GAMMA, sigma)
    steps = stepsizes("fednmap", c, rounds=rounds, local_steps=4)
    out = run(q, fednmap(steps), z, rounds=rounds, sigma=sigma)["F"].mean(0)
    averages = np.cumsum(out[:rounds]) / np.arange(1, rounds + 1)
    bounds = np.array([steps.bound(t) for t in range(1, rounds + 1)])
    assert np.all(averages <= bounds)
    assert averages[-1] < averages[0]


def sample_loss(x, batch):
    hessian, centre = batch
    return 0.5 * (hessian * (x - centre) ** 2).sum(1).mean()


def test_theorem_5_in_the_simulation():
    """The same with minibatches drawn by the engine, sigma known from the samples."""
    q, rng = mixed(clients=4), np.random.default_rng(1)
    batches, variances = [], []
    for hessian, centre in zip(q.hessian, q.centre, strict=True):
        spread = rng.normal(size=(30, 4))
        spread -= spread.mean(0)
        batches.append((np.tile(hessian, (30, 1)), centre + spread))
        variances.append(np.mean(np.sum((hessian * spread) ** 2, 1)))
    batch_size, rounds, z = 3, 120, np.full(4, 2.0)
    sigma = np.sqrt(max(variances) / batch_size)
    steps = stepsizes("fednmap", q.constants(z, GAMMA, sigma), rounds=rounds, local_steps=4)
    simulation = Simulation(
        cfl.Problem(sample_loss, z, batches),
        [replace(fednmap(steps), regularizer=q.phi)] * 2,
        range(2),
        seed=0,
        batch_size=batch_size,
        count=4,
        weights=np.ones(4),
        dtype="float64",
    )
    squares = []
    for t in range(rounds):
        zs = np.asarray(simulation.state().server.z.tree)
        x = soft(zs, GAMMA * q.weight)
        gradient = np.stack([q.gradients(row).mean(0) for row in x])
        squares.append(np.mean(np.sum((gradient + (zs - x) / GAMMA) ** 2, 1)))
        simulation.advance(t + 1)
    assert np.mean(squares) <= steps.bound()
    assert squares[-1] < squares[0]


def slope(sizes, values):
    return np.polyfit(np.log(sizes), np.log(values), 1)[0]


@pytest.mark.parametrize("axis", ["clients", "local_steps"])
def test_speed_up_with_the_steps_of_eq_15(axis):
    """T so large that noise limits the steps: measured average and bound fall as (nQ)^(-1/2)."""
    rounds, sizes = 24000, [4, 8, 16, 32]
    measured, bounds = [], []
    for size in sizes:
        clients, local_steps = (size, 4) if axis == "clients" else (4, size)
        q = tiled(clients)
        z = q.stationary_z(GAMMA) + np.array([0.7, -0.7, 0.7, 0.7])
        sigma = np.sqrt(0.4 * q.constants(z, GAMMA).delta)
        c = q.constants(z, GAMMA, sigma)
        steps = stepsizes("fednmap", c, rounds=rounds, local_steps=local_steps)
        assert steps.m > 1  # the guards for few rounds are not at work
        pad = (32, 4) if axis == "clients" else (4, 32)
        out = run(q, fednmap(steps), z, rounds=rounds, sigma=sigma, pad=pad, trials=1)
        measured.append(average(out, rounds))
        bounds.append(steps.bound())
    assert np.all(np.array(measured) < bounds)
    assert slope(sizes, bounds) == pytest.approx(-0.5, abs=0.01)
    assert slope(sizes, measured) <= -0.5 + 0.01


@pytest.mark.parametrize("axis", ["clients", "local_steps"])
def test_speed_up_of_the_noise_floor_with_fixed_steps(axis):
    """From the solution, eta_hat fixed: what is left is noise, and it falls as 1/(nQ)."""
    rounds, sizes = 6000, [2, 8, 32]
    measured, bounds = [], []
    for size in sizes:
        clients, local_steps = (size, 2) if axis == "clients" else (4, size)
        q = tiled(clients, copies=8)
        z = q.stationary_z(GAMMA)
        steps = at_the_limit(q.constants(z, GAMMA, 1.0), rounds, local_steps, server_lr=4.0)
        pad = (32, 4) if axis == "clients" else (4, 32)
        out = run(q, fednmap(steps), z, rounds=rounds, sigma=1.0, pad=pad, trials=2)
        measured.append(average(out, rounds))
        bounds.append(steps.bound())
    assert np.all(np.array(measured) < bounds)
    assert slope(sizes, bounds) == pytest.approx(-1.0, abs=0.01)
    # 0.04: between two and three standard errors of a slope from runs of this length
    assert slope(sizes, measured) <= -1.0 + 0.04


@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_theorem_8(sigma):
    q, z, rounds = mixed(), np.full(4, 2.0), 4000
    c = q.constants(z, 1 / (5 * 2), sigma)
    c = q.constants(z, 1 / (5 * (c.L + c.mu)), sigma)
    steps = stepsizes("fednmap", c, rounds=rounds, local_steps=4, theorem=8)
    out = run(q, fednmap(steps), z, rounds=rounds, sigma=sigma)["psi"].mean(0)
    gap = out - q.psi(q.solution)
    times = np.arange(0, rounds + 1, 250)[1:]
    assert np.all(gap[times] <= [steps.bound(t) for t in times])
    if sigma == 0:
        assert steps.bound() < 0.5 * c.delta  # the bound says something
        assert gap[-1] < steps.bound()


@pytest.mark.parametrize("sigma", [0.0, 1.0])
@pytest.mark.parametrize("theorem", ["3.5", "3.6", "3.8"])
def test_za1(theorem, sigma):
    q, z, rounds = mixed(), np.full(4, 2.0), 2000
    eta_hat = 0.1
    c = q.constants(z, eta_hat, sigma)
    steps = stepsizes("za1", c, rounds=rounds, local_steps=4, theorem=theorem)
    # delta and the gradients depend on eta_hat, the parameter of the start's prox
    c = q.constants(z, steps.eta_hat, sigma)
    given = dict(local_lr=steps.local_lr, server_lr=steps.server_lr)
    steps = stepsizes("za1", c, rounds=rounds, local_steps=4, theorem=theorem, **given)
    out = run(q, cfl.ZA1(local_steps=4, **given), z, rounds=rounds, sigma=sigma)
    if theorem == "3.5":
        measured, bound = average(out, rounds), steps.bound()
        assert measured <= bound
        assert sigma or bound < c.gradients_sq  # the bound says something
    else:
        value = out["psi"] - q.psi(q.solution) if theorem == "3.6" else out["distance"]
        start = c.delta if theorem == "3.6" else 2 * c.delta / c.mu
        times = np.arange(0, rounds + 1, 250)[1:]
        assert np.all(value.mean(0)[times] <= [steps.bound(t) for t in times])
        assert sigma or steps.bound() < 0.5 * start  # the bound says something
