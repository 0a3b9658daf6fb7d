"""`estimate` on problems whose constants are known, and algorithms with the theory's steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import compositefl as cfl
from compositefl.theory import (
    Constants,
    estimate,
    note_outside,
    probe,
    stepsizes,
    with_theory_steps,
)
from tests.problems import network
from tests.theory.theory_problems import Quadratic

HESSIAN = np.array([2.0, 1.0, 0.6, 0.5])
WEIGHT, GAMMA, BATCH = 0.1, 0.05, 4
OPTIONS = dict(batch_size=BATCH, gamma=GAMMA, dtype="float64")


def loss(x, batch):
    hessian, centre = batch
    return 0.5 * jnp.mean(jnp.sum(hessian * (x - centre) ** 2, 1))


def samples(sizes=(20, 7, 33, 11), seed=0):
    """Clients of unequal size with one diagonal Hessian: gradients and noise in closed form."""
    rng = np.random.default_rng(seed)
    batches = []
    for size in sizes:
        centre = rng.normal(size=4) + rng.normal(size=(size, 4))
        batches.append((np.tile(HESSIAN, (size, 1)), centre))
    return cfl.Problem(loss, np.array([3.0, -3.0, 2.0, 0.02]), batches)


@pytest.fixture(scope="module")
def problem():
    return samples()


@pytest.fixture(scope="module")
def known(problem):
    centre = np.stack([a.mean(0) for _, a in problem.clients])
    q = Quadratic(np.tile(HESSIAN, (len(centre), 1)), centre, WEIGHT)
    single = [np.mean(np.sum((HESSIAN * (a - a.mean(0))) ** 2, 1)) for _, a in problem.clients]
    return q, q.constants(problem.params, GAMMA, float(np.sqrt(max(single) / BATCH)))


@pytest.fixture(scope="module")
def measured(problem):
    return estimate(problem, cfl.L1(WEIGHT), **OPTIONS)


def test_smoothness(measured):
    assert measured.L.value == pytest.approx(2.0, rel=1e-6)
    assert measured.L.value <= 2.0 * (1 + 1e-12)  # a lower bound
    assert measured.L.uncertainty < 1e-3
    assert measured.rho.value == 0


def test_noise(problem, measured, known):
    sigma = known[1].sigma
    assert measured.sigma.uncertainty < 0.1 * sigma
    assert abs(measured.sigma.value - sigma) < 4 * measured.sigma.uncertainty
    # a hundred times the minibatches: a tenth of the error
    many = estimate(problem, cfl.L1(WEIGHT), batches=6400, **OPTIONS)
    assert many.sigma.uncertainty < 0.2 * measured.sigma.uncertainty
    assert abs(many.sigma.value - sigma) < 4 * many.sigma.uncertainty
    assert estimate(problem, cfl.L1(WEIGHT), gamma=GAMMA).sigma.value == 0  # full gradients


def test_start_and_delta(problem, measured, known):
    _, c = known
    for name in ("normal_map_sq", "prox_gap_sq", "gradients_sq"):
        assert getattr(measured, name) == pytest.approx(getattr(c, name), rel=1e-12)
    assert measured.delta.value == pytest.approx(c.delta, rel=1e-10)
    # a run that is too short gives less, and its uncertainty says so
    short = estimate(problem, cfl.L1(WEIGHT), steps=4, iterates=2, **OPTIONS)
    missing = c.delta - short.delta.value
    assert 1e-3 < missing < short.delta.uncertainty


def test_heterogeneity(measured, known):
    q, _ = known
    apart = q.hessian * (q.centre - q.centre.mean(0))  # the same at every x
    assert measured.zeta.value == pytest.approx(np.linalg.norm(apart, axis=1).max(), rel=1e-10)
    assert measured.zeta.uncertainty < 1e-10


def test_lipschitz_constant_is_a_gradient_of_a_sample(problem, measured):
    x = cfl.L1(WEIGHT).prox(problem.params, GAMMA)
    largest = max(np.linalg.norm(HESSIAN * (x - a), axis=1).max() for _, a in problem.clients)
    assert 0.8 * largest < measured.lipschitz.value <= largest * (1 + 1e-12)


def test_constants_and_what_is_known_better(measured, known):
    c = measured.constants(mu=0.5, sigma=7.0)
    assert (c.mu, c.sigma, c.clients) == (0.5, 7.0, 4)
    assert c.delta == measured.delta.value
    assert stepsizes("fednmap", measured.constants(), rounds=100, local_steps=5).bound() > 0
    assert "lower bound" in str(measured)


def test_default_gamma_is_the_theorems(problem):
    assert estimate(problem, cfl.L1(WEIGHT), dtype="float64").gamma == pytest.approx(1 / 10)
    mcp = cfl.MCP(0.1, 0.8)  # rho = 1.25
    assert estimate(problem, mcp, dtype="float64").gamma == pytest.approx(1 / (5 * 3.25))


def test_single_precision(problem, measured):
    single = estimate(problem, cfl.L1(WEIGHT), **OPTIONS | {"dtype": "float32"})
    for name in ("L", "delta", "zeta"):
        assert getattr(single, name).value == pytest.approx(getattr(measured, name).value, rel=1e-4)


def test_memory_blocks_do_not_change_the_result(problem, measured, monkeypatch):
    monkeypatch.setattr(probe, "CHUNK", 4)
    monkeypatch.setattr(probe, "WORKING_SET", 1)
    blocks = estimate(problem, cfl.L1(WEIGHT), **OPTIONS)
    for name in ("L", "sigma", "delta", "zeta", "lipschitz"):
        assert getattr(blocks, name).value == pytest.approx(getattr(measured, name).value, rel=1e-9)


def test_fewer_samples_of_each_client(problem, measured):
    few = estimate(problem, cfl.L1(WEIGHT), samples=10**6, **OPTIONS)
    assert few.zeta.value == pytest.approx(measured.zeta.value)
    few = estimate(problem, cfl.L1(WEIGHT), samples=5, **OPTIONS)
    assert few.L.value == pytest.approx(2.0, rel=1e-6)
    assert few.zeta.value != pytest.approx(measured.zeta.value, rel=1e-3)


def test_curvature_of_a_network():
    """A pytree of parameters, nonconvex: against the dense Hessian of every client."""
    net = network(clients=2)
    result = estimate(net, cfl.ElasticNet(1e-3, 1e-2), steps=20, iterates=2, dtype="float64")
    flat, unravel = jax.flatten_util.ravel_pytree(net.start("float64"))
    start = cfl.ElasticNet(1e-3, 1e-2).prox(unravel(flat), result.gamma)
    flat, unravel = jax.flatten_util.ravel_pytree(start)
    norms = []
    for client in net.clients:
        hessian = jax.jit(jax.hessian(lambda v, client=client: net.loss(unravel(v), client)))(flat)
        norms.append(np.abs(np.linalg.eigvalsh(hessian)).max())
    L, spread = result.L.value, result.L.uncertainty
    # the largest over the run, so at least the one at x_0 and at most `spread` above it
    assert (1 - 1e-3) * max(norms) <= L <= max(norms) + spread + 1e-9
    assert spread > 0
    assert result.gamma == pytest.approx(1 / (5 * L))
    assert result.subgradient.value == np.inf


@pytest.mark.parametrize(
    "phi, expected", [(cfl.Zero(), 0.0), (cfl.L1(0.3), 0.6), (cfl.LInf(0.3), 0.3)]
)
def test_subgradient_bound(problem, phi, expected):
    assert estimate(problem, phi, dtype="float64").subgradient.value == pytest.approx(expected)


@pytest.mark.parametrize("phi", [cfl.SquaredL2(0.1), cfl.Box(-1.0, 1.0)])
def test_unbounded_subgradients(problem, phi):
    assert estimate(problem, phi, dtype="float64").subgradient.value == np.inf


@pytest.mark.parametrize(
    "options, message",
    [
        (dict(gamma=1.0), r"gamma=1.0 must be in \(0, 1/rho\)"),
        (dict(batches=1), "batches=1"),
        (dict(dtype="float16"), "dtype='float16'"),
        (dict(batch_size=0), "batch_size=0"),
    ],
)
def test_estimate_refuses(problem, options, message):
    with pytest.raises(cfl.CompositeFLError, match=message):
        estimate(problem, cfl.MCP(0.1, 0.8), **options)


def test_estimate_refuses_a_loss_without_curvature(problem):
    linear = cfl.Problem(lambda x, batch: jnp.mean(batch[1] @ x), problem.params, problem.clients)
    with pytest.raises(cfl.CompositeFLError, match="no curvature"):
        estimate(linear, cfl.Box(-1.0, 1.0))


def test_algorithm_with_theory_steps(problem):
    phi = cfl.L1(WEIGHT)
    arguments = (problem, phi, 200, BATCH)
    constants = estimate(problem, phi, batch_size=BATCH).constants()
    for name in (cfl.FedNMap, cfl.ZA1):
        algorithm = with_theory_steps(name, dict(local_steps=3, local_lr="theory"), *arguments)
        assert algorithm.local_steps == 3
        assert note_outside(algorithm, constants, 200) is None
        result = cfl.minimize(
            problem, phi, algorithm, rounds=200, batch_size=BATCH, eval_every=200, progress=False
        )
        psi = result.history.psi
        assert psi.iloc[-1] < psi.iloc[0]


def test_theory_steps_keep_given_numbers(problem):
    c = Constants(L=2.0, clients=4, sigma=1.0, delta=1.0)
    hyper = dict(local_steps=3, local_lr="theory", server_lr=2.0, gamma=0.03)
    algorithm = with_theory_steps(cfl.FedNMap, hyper, problem, None, 50, BATCH, constants=c)
    assert (algorithm.server_lr, algorithm.gamma) == (2.0, 0.03)
    expected = stepsizes("fednmap", c, rounds=50, local_steps=3, server_lr=2.0, gamma=0.03)
    assert algorithm.local_lr == expected.local_lr


def test_theory_steps_of_fedprox(problem):
    c = Constants(L=2.0, clients=4, delta=1.0, lipschitz=3.0)
    algorithm = with_theory_steps(
        cfl.FedProx, dict(local_steps=5), problem, None, 1000, None, constants=c, participants=2
    )
    steps = stepsizes("fedprox", c, rounds=1000, participants=2)
    assert (algorithm.eta, algorithm.local_lr) == (steps.eta, steps.local_lr)
    nonsmooth = stepsizes(cfl.FedProxNonsmooth, c, rounds=1000)
    assert nonsmooth.eta == stepsizes("fedprox", c, rounds=1000, theorem="2").eta
    assert note_outside(algorithm, c, 1000, participants=2) is None
    assert "eta=" in note_outside(algorithm, c, 10, participants=2)


def test_methods_without_a_theorem_are_refused(problem):
    with pytest.raises(cfl.CompositeFLError, match="algorithm with a theorem 'fedavg'"):
        with_theory_steps(cfl.FedAvg, dict(local_steps=3), problem, None, 10, None)
