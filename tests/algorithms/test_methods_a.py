"""Splitting, dual averaging, compression and momentum: twins, identities, limits, costs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import compositefl as cfl
import plain_a
from compositefl.algorithms.compressors import Identity, RandomK, TopK, parse
from compositefl.algorithms.econtrolda import EControlDA
from compositefl.algorithms.fast_fedda import FastFedDA
from compositefl.algorithms.fedadmm import FedADMM
from compositefl.algorithms.fedavg_m import FedAvgM
from compositefl.algorithms.feddr import FedDR
from compositefl.algorithms.proxskip import ProxSkip
from compositefl.algorithms.scaffold import ScaffoldI
from compositefl.algorithms.scaffold_m import ScaffoldM
from compositefl.core.vector import Vector
from compositefl.engine.accounting import round_cost
from problems import centralised_solution

WEIGHT = 0.05
STEPS = dict(local_steps=4, local_lr=0.03, server_lr=1.5)
PLAIN = dict(Q=4, ea=0.03, es=1.5)


def solve(problem, phi, algorithm, **options):
    options = dict(rounds=15, batch_size=4, seed=7, dtype="float64", progress=False) | options
    return cfl.minimize(problem, phi, algorithm, **{"eval_every": options["rounds"]} | options)


def assert_equal(a, b, tolerance=1e-10):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=tolerance), a, b)


# Twins

MU = dict(strong_convexity=0.4, proximity=8.0)
COMPOSITE = {
    "fast-fedda": (
        FastFedDA(local_steps=4, **MU),
        lambda f, x, T: plain_a.fast_fedda(f, x, WEIGHT, mu=0.4, gam=8.0, Q=4, rounds=T),
    ),
    "fast-fedda as in code": (
        FastFedDA(local_steps=4, as_in_code=True, **MU),
        lambda f, x, T: plain_a.fast_fedda_program(f, x, WEIGHT, mu=0.4, gam=8.0, Q=4, rounds=T),
    ),
    "feddr": (
        FedDR(local_steps=4, local_lr=0.1, eta=0.8, relaxation=1.7),
        lambda f, x, T: plain_a.feddr(f, x, WEIGHT, eta=0.8, a=1.7, ea=0.1, Q=4, rounds=T),
    ),
    "fedadmm": (
        FedADMM(local_steps=4, local_lr=0.1, eta=0.8),
        lambda f, x, T: plain_a.fedadmm(f, x, WEIGHT, eta=0.8, ea=0.1, Q=4, rounds=T),
    ),
}
CENTRAL = {
    "econtrolda top-k": (
        EControlDA(lr=0.1, compressor=TopK(3), control_gain=0.3),
        lambda f, x, T: plain_a.econtrolda(
            f, x, WEIGHT, lam=lambda t: 10.0, kappa=0.3, k=3, rounds=T
        ),
    ),
    "econtrolda random-k": (  # a quarter of 8 entries, and the gain that goes with it
        EControlDA(lr=0.1, compressor="random-k:0.25", schedule="sqrt"),
        lambda f, x, T: plain_a.econtrolda(
            f, x, WEIGHT, lam=lambda t: 10.0 * t**0.5, kappa=0.25, k=2, rounds=T, draw="random"
        ),
    ),
    "proxskip": (
        ProxSkip(lr=0.2, prox_probability=0.4),
        lambda f, x, T: (
            last for _, last in plain_a.proxskip(f, x, WEIGHT, step=0.2, p=0.4, rounds=T)
        ),
    ),
}
SMOOTH = {
    "fedavg-m": (
        FedAvgM(gradient_weight=0.3, **STEPS),
        lambda f, x, T: plain_a.fedavg_m(f, x, b=0.3, rounds=T, **PLAIN),
    ),
    "scaffold-m": (
        ScaffoldM(gradient_weight=0.3, **STEPS),
        lambda f, x, T: plain_a.scaffold_m(f, x, b=0.3, rounds=T, **PLAIN),
    ),
    "scaffold-1": (ScaffoldI(**STEPS), lambda f, x, T: plain_a.scaffold_1(f, x, rounds=T, **PLAIN)),
}
ALL = COMPOSITE | CENTRAL | SMOOTH


@pytest.mark.parametrize("name", ALL)
def test_trajectory(name, lasso_problem):
    """With minibatches, and with half of the clients a round where the method has that."""
    algorithm, twin = ALL[name]
    count = None if name in CENTRAL else 3
    f = plain_a.Sampled(lasso_problem, 5, seed=11, count=count)
    models = list(twin(f, lasso_problem.params, 12))
    for stop in (1, 5, 12):
        result = solve(
            lasso_problem,
            None if name in SMOOTH else cfl.L1(WEIGHT),
            algorithm,
            rounds=stop,
            batch_size=5,
            seed=11,
            participation=count or 1.0,
        )
        np.testing.assert_allclose(result.params, models[stop - 1], rtol=0, atol=1e-12)


def test_proxskip_between_two_proxes(lasso_problem):
    """The twin's x itself, also in rounds without a prox."""
    f = plain_a.Sampled(lasso_problem, None, seed=11)
    pairs = list(plain_a.proxskip(f, lasso_problem.params, WEIGHT, step=0.2, p=0.4, rounds=12))
    skipped = 0
    for stop, (x, last) in enumerate(pairs, 1):
        result = solve(
            lasso_problem,
            cfl.L1(WEIGHT),
            ProxSkip(lr=0.2, prox_probability=0.4),
            rounds=stop,
            batch_size=None,
            seed=11,
        )
        np.testing.assert_allclose(result.server.x, x, rtol=0, atol=1e-12)
        skipped += not np.array_equal(x, last)
    assert 3 < skipped < 12


def test_coins_of_proxskip_differ_between_trials_and_seeds(lasso_problem):
    algorithm = ProxSkip(lr=0.2, prox_probability=0.5)
    options = dict(rounds=10, batch_size=None)
    a = solve(lasso_problem, cfl.L1(WEIGHT), algorithm, trials=2, **options).server.x
    b = solve(lasso_problem, cfl.L1(WEIGHT), algorithm, seed=8, **options).server.x
    assert np.abs(a[0] - a[1]).max() > 1e-4
    assert np.abs(a[0] - b).max() > 1e-4


# Identities

ONE_STEP = dict(local_steps=1, local_lr=0.1, server_lr=2.0)


@pytest.mark.parametrize(
    ("phi", "participation"), [(cfl.L1(0.02), 1.0), (cfl.MCP(0.05, 3.0), 3)], ids=["L1", "MCP"]
)
def test_feddr_without_relaxation_is_fedadmm(network_problem, phi, participation):
    local = dict(local_steps=4, local_lr=0.1, eta=0.7)
    a = solve(network_problem, phi, FedDR(relaxation=1.0, **local), participation=participation)
    b = solve(network_problem, phi, FedADMM(**local), participation=participation)
    assert_equal(a.params, b.params)
    assert_equal(a.server.xtilde, b.server.xtilde)
    c = solve(network_problem, phi, FedDR(relaxation=1.5, **local), participation=participation)
    assert np.abs(a.params["out"]["kernel"] - c.params["out"]["kernel"]).max() > 1e-3


@pytest.mark.parametrize(
    ("momentum", "plain", "participation"),
    [
        (ScaffoldM(gradient_weight=1.0, **STEPS), cfl.Scaffold(**STEPS), 3),
        (FedAvgM(gradient_weight=1.0, **STEPS), cfl.FedAvg(**STEPS), 1.0),
    ],
    ids=["scaffold", "fedavg"],
)
def test_without_momentum(network_problem, momentum, plain, participation):
    a = solve(network_problem, None, momentum, participation=participation)
    b = solve(network_problem, None, plain, participation=participation)
    assert_equal(a.params, b.params)


@pytest.mark.parametrize(
    "algorithm",
    [
        ScaffoldM(gradient_weight=1.0, composite="server-prox", **ONE_STEP),
        FedAvgM(gradient_weight=1.0, composite="server-prox", **ONE_STEP),
        ScaffoldI(composite="server-prox", **ONE_STEP),
    ],
    ids=lambda a: type(a).__name__,
)
def test_one_step_is_prox_sgd(network_problem, algorithm):
    phi = cfl.MCP(0.05, 3.0)
    reference = solve(network_problem, phi, cfl.ProxSGD(lr=0.2))
    assert_equal(solve(network_problem, phi, algorithm).params, reference.params)


def test_proxskip_that_never_skips_is_pgd(network_problem):
    phi = cfl.ElasticNet(0.05, 0.1)
    a = solve(network_problem, phi, ProxSkip(lr=0.2, prox_probability=1.0), batch_size=None)
    assert_equal(a.params, solve(network_problem, phi, cfl.PGD(lr=0.2)).params)


@pytest.mark.parametrize("compressor", [Identity(), TopK(1.0)], ids=repr)
def test_econtrolda_without_compression_is_fedda(network_problem, compressor):
    phi = cfl.L1(0.02)
    a = solve(network_problem, phi, EControlDA(lr=0.2, compressor=compressor, control_gain=0.6))
    b = solve(network_problem, phi, cfl.FedDA(local_steps=1, local_lr=0.2))
    assert_equal(a.params, b.params)
    assert_equal(a.clients.error, jax.tree.map(np.zeros_like, a.clients.error))


# Invariants with sampled clients whose uploads may get lost

PARTIAL = dict(participation=3, dropout=0.3)


@pytest.mark.parametrize("relaxation", [None, 1.9])
def test_the_server_has_the_mean_of_all_xhat(network_problem, relaxation):
    local = dict(local_steps=3, local_lr=0.1, eta=0.7)
    if relaxation is None:
        result = solve(network_problem, cfl.L1(0.02), FedADMM(**local), **PARTIAL)
        xhat = jax.tree.map(lambda x, z: x + 0.7 * z, result.clients.x, result.clients.z)
    else:
        algorithm = FedDR(relaxation=relaxation, **local)
        result = solve(network_problem, cfl.L1(0.02), algorithm, **PARTIAL)
        xhat = jax.tree.map(lambda x, y: 2 * x - y, result.clients.x, result.clients.y)
    assert_equal(result.server.xtilde, jax.tree.map(lambda a: a.mean(axis=0), xhat))


@pytest.mark.parametrize("algorithm", [ScaffoldI(**STEPS), ScaffoldM(**STEPS)])
def test_the_server_has_the_mean_of_all_controls(network_problem, algorithm):
    result = solve(network_problem, None, algorithm, **PARTIAL)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(result.server.c)) > 1e-3
    assert_equal(result.server.c, jax.tree.map(lambda a: a.mean(axis=0), result.clients.c))


# Limits

FULL = dict(batch_size=None)


def quadratic(problem):
    """Hessian and linear term of the mean loss."""
    hessian = np.mean([a.T @ a / len(b) for a, b in problem.clients], axis=0)
    return hessian, np.mean([a.T @ b / len(b) for a, b in problem.clients], axis=0)


def distance(problem, phi, algorithm, solution, **options):
    result = solve(problem, phi, algorithm, **FULL | options)
    return np.linalg.norm(result.params - solution)


def test_fast_fedda_approaches_the_solution_like_one_over_n(lasso_problem):
    solution = centralised_solution(lasso_problem, 0.1)
    algorithm = FastFedDA(local_steps=4, strong_convexity=0.2, proximity=20.0)
    errors = [
        distance(lasso_problem, cfl.L1(0.1), algorithm, solution, rounds=rounds)
        for rounds in (500, 2000, 8000)
    ]
    assert errors[0] < 1e-2
    np.testing.assert_allclose(np.array(errors[:-1]) / errors[1:], 4.0, rtol=0.1)


def test_fast_fedda_as_in_code_has_the_limit_of_a_shifted_problem(lasso_problem):
    hessian, linear = quadratic(lasso_problem)
    shifted = hessian - 0.1 / 4 * np.eye(8)  # mu_s / Q
    x = np.zeros(8)
    for _ in range(20000):
        z = x - 0.5 * (shifted @ x - linear)
        x = np.sign(z) * np.maximum(np.abs(z) - 0.5 * 0.1, 0.0)
    algorithm = FastFedDA(local_steps=4, strong_convexity=0.2, proximity=20.0, as_in_code=True)
    errors = [
        distance(lasso_problem, cfl.L1(0.1), algorithm, x, rounds=rounds)
        for rounds in (500, 2000, 8000)
    ]
    np.testing.assert_allclose(np.array(errors[:-1]) / errors[1:], 4.0, rtol=0.1)
    assert errors[-1] < 0.1 * np.linalg.norm(x - centralised_solution(lasso_problem, 0.1))


@pytest.mark.parametrize("participation", [1.0, 2])
@pytest.mark.parametrize(
    "algorithm",
    [
        FedDR(local_steps=40, local_lr=0.1, eta=1.0),
        FedDR(local_steps=3, local_lr=0.1, eta=1.0),
        FedADMM(local_steps=40, local_lr=0.1, eta=1.0),
    ],
    ids=repr,
)
def test_splitting_reaches_the_centralised_solution(lasso_problem, algorithm, participation):
    solution = centralised_solution(lasso_problem, 0.1)
    assert 0 < np.sum(solution == 0) < solution.size
    result = solve(
        lasso_problem, cfl.L1(0.1), algorithm, rounds=800, participation=participation, **FULL
    )
    np.testing.assert_allclose(result.params, solution, atol=1e-9)
    assert np.array_equal(result.params == 0, solution == 0)


@pytest.mark.parametrize(
    "algorithm",
    [
        EControlDA(lr=0.05, compressor=TopK(2)),
        EControlDA(lr=0.05, compressor=RandomK(2)),
        ProxSkip(lr=0.4, prox_probability=0.3),
        ProxSkip(lr=0.4, prox_probability=0.1),
    ],
    ids=repr,
)
def test_reaches_the_centralised_solution(lasso_problem, algorithm):
    solution = centralised_solution(lasso_problem, 0.1)
    result = solve(lasso_problem, cfl.L1(0.1), algorithm, rounds=2000, **FULL)
    np.testing.assert_allclose(result.params, solution, atol=1e-9)
    assert np.array_equal(result.params == 0, solution == 0)


def test_average_of_econtrolda_is_the_mean_of_its_models(lasso_problem):
    last = EControlDA(lr=0.05, compressor=TopK(2))
    models = [
        solve(lasso_problem, cfl.L1(0.1), last, rounds=t, **FULL).params for t in (1, 2, 3, 4)
    ]
    average = EControlDA(lr=0.05, compressor=TopK(2), output="average")
    result = solve(lasso_problem, cfl.L1(0.1), average, rounds=4, **FULL)
    np.testing.assert_allclose(result.params, np.mean(models, axis=0), atol=1e-12)


def test_average_of_econtrolda_approaches_the_solution_like_one_over_t(lasso_problem):
    solution = centralised_solution(lasso_problem, 0.1)
    algorithm = EControlDA(lr=0.05, compressor=TopK(2), output="average")
    errors = [
        distance(lasso_problem, cfl.L1(0.1), algorithm, solution, rounds=rounds)
        for rounds in (1000, 4000)
    ]
    np.testing.assert_allclose(errors[0] / errors[1], 4.0, rtol=0.05)


@pytest.mark.parametrize(
    "algorithm",
    [
        ScaffoldI(local_steps=5, local_lr=0.02),
        ScaffoldM(local_steps=5, local_lr=0.02, gradient_weight=0.3),
    ],
    ids=repr,
)
def test_control_variates_reach_the_solution_with_sampled_clients(lasso_problem, algorithm):
    hessian, linear = quadratic(lasso_problem)
    result = solve(lasso_problem, None, algorithm, rounds=4000, participation=3, **FULL)
    np.testing.assert_allclose(result.params, np.linalg.solve(hessian, linear), atol=1e-9)


@pytest.mark.parametrize("kind", [ScaffoldI, ScaffoldM])
def test_subgradient_variant_solves_a_smooth_composite_problem(lasso_problem, kind):
    hessian, linear = quadratic(lasso_problem)
    algorithm = kind(local_steps=5, local_lr=0.02, composite="subgradient")
    result = solve(lasso_problem, cfl.SquaredL2(0.2), algorithm, rounds=4000, **FULL)
    ridge = np.linalg.solve(hessian + 2 * 0.2 * np.eye(8), linear)
    np.testing.assert_allclose(result.params, ridge, atol=1e-9)


def test_drift_of_fedavg_m_is_proportional_to_the_gradient_weight(lasso_problem):
    hessian, linear = quadratic(lasso_problem)
    solution = np.linalg.solve(hessian, linear)
    steps = dict(local_steps=5, local_lr=0.01)
    fedavg = distance(lasso_problem, None, cfl.FedAvg(**steps), solution, rounds=4000)
    assert fedavg > 1e-3
    for b in (0.4, 0.2, 0.1):
        algorithm = FedAvgM(gradient_weight=b, **steps)
        error = distance(lasso_problem, None, algorithm, solution, rounds=4000)
        np.testing.assert_allclose(error / fedavg, b, rtol=0.1)


# Compressors


@pytest.mark.parametrize("compressor", [TopK(5), TopK(0.2), RandomK(5), RandomK(0.2)], ids=repr)
def test_compressors_keep_k_entries_and_contract(compressor):
    rng = np.random.default_rng(0)
    tree = {"a": rng.normal(size=(4, 5)).astype(np.float32), "b": rng.normal(size=5) * 100}
    v = Vector({name: jnp.asarray(leaf, jnp.float32) for name, leaf in tree.items()})
    keys = jax.random.split(jax.random.key(0), 2000)
    out = jax.vmap(lambda key: compressor(v, key))(keys).tree
    flat = np.concatenate([np.asarray(out[n]).reshape(2000, -1) for n in "ab"], axis=1)
    whole = np.concatenate([np.asarray(v.tree[n]).ravel() for n in "ab"])
    assert (np.sum(flat != 0, axis=1) == 5).all()
    assert np.all((flat == 0) | (flat == whole))
    assert compressor.delta(25) == 0.2
    lost = np.sum((flat - whole) ** 2, axis=1) / np.sum(whole**2)
    if isinstance(compressor, TopK):
        assert lost.max() <= 0.8
        assert np.all(flat[:, 20:] == whole[20:])  # the five large ones, all in one leaf
    else:
        np.testing.assert_allclose(lost.mean(), 0.8, rtol=0.02)
        np.testing.assert_allclose((flat != 0).mean(axis=0), 0.2, atol=0.04)
    assert compressor.message_bytes(v) == 5 * (4 + 4)


def test_compressors_from_text():
    assert parse("top-k:0.1") == TopK(0.1) and parse("top-k:1.0") == TopK(1.0)
    assert parse("random-k:20") == RandomK(20) and parse("identity") == Identity()
    for text, message in {
        "topk:3": "did you mean 'top-k'",
        "top-k": "must be top-k:k with a number",
        "random-k:x": "must be random-k:k with a number",
        "identity:2": "without a number",
        "top-k:1.5": "must be a share",
        "top-k:0": "must be a share",
    }.items():
        with pytest.raises(cfl.CompositeFLError, match=message):
            EControlDA(lr=0.1, compressor=text)


# Costs

# vectors down, vectors up, prox on a client (as a function of Q), prox on the server
COSTS = {
    FastFedDA: (3, 2, lambda q: q, 1),
    FedDR: (1, 1, lambda q: 0, 1),
    FedADMM: (1, 1, lambda q: 0, 1),
    ScaffoldI: (2, 2, lambda q: 0, 0),
    FedAvgM: (2, 1, lambda q: 0, 0),
    ScaffoldM: (3, 2, lambda q: 0, 0),
}
EXTRA = {
    FastFedDA: dict(strong_convexity=0.1, proximity=10.0),
    FedDR: dict(local_lr=0.1, eta=0.5),
    FedADMM: dict(local_lr=0.1, eta=0.5),
}
X0 = {"a": np.zeros((30, 4), np.float32), "b": np.zeros(7, np.float32)}
VECTOR = 127 * 4


@pytest.mark.parametrize("kind", COSTS, ids=lambda k: k.__name__)
def test_costs_match_the_overview_table(kind):
    down, up, prox_client, prox_server = COSTS[kind]
    cost = round_cost(kind(local_steps=9, **EXTRA.get(kind, dict(local_lr=0.1))), X0)
    clock = 4 if kind is FastFedDA else 0
    assert cost.bytes_down == down * VECTOR + clock
    assert cost.bytes_up == up * VECTOR
    assert cost.prox_client == prox_client(9)
    assert cost.prox_server == prox_server
    assert cost.steps == 9 and cost.gradients_step == 1
    assert cost.gradients_visit == (1 if kind is ScaffoldI else 0)


def test_costs_of_the_one_step_methods():
    coin = 4
    skip = round_cost(ProxSkip(lr=0.1, prox_probability=0.5), X0)
    assert (skip.bytes_down, skip.bytes_up) == (VECTOR, VECTOR + coin)
    compressed = round_cost(EControlDA(lr=0.1, compressor=TopK(13)), X0)
    assert (compressed.bytes_down, compressed.bytes_up) == (VECTOR, 13 * 8)
    assert round_cost(EControlDA(lr=0.1, compressor=RandomK(0.1)), X0).bytes_up == 13 * 8
    assert round_cost(EControlDA(lr=0.1, compressor=Identity()), X0).bytes_up == VECTOR
    for cost in (skip, compressed):
        assert (cost.prox_client, cost.prox_server) == (0, 1)
        assert (cost.steps, cost.gradients_step, cost.gradients_visit) == (1, 1, 0)


def test_compressed_run_of_a_network(network_problem):
    result = solve(network_problem, cfl.L1(0.02), EControlDA(lr=0.1, compressor=TopK(5)))
    last = result.history.iloc[-1]
    assert last.bytes_up == 15 * 5 * 5 * (8 + 4)  # rounds, clients, k, a double and an index
    assert_equal(result.server.h, jax.tree.map(lambda a: a.mean(axis=0), result.clients.h))


# Refusals


def test_numbers_outside_their_range_are_refused():
    local = dict(local_steps=2, local_lr=0.1)
    for make, message in {
        lambda: FedDR(eta=1.0, relaxation=2.1, **local): r"relaxation=2.1 must be in \(0, 2\]",
        lambda: FedDR(eta=0.0, **local): "eta=0.0 must be a finite number > 0",
        lambda: FedADMM(eta=-1.0, **local): "eta=-1.0",
        lambda: FedAvgM(gradient_weight=0.0, **local): "gradient_weight=0.0 must be in",
        lambda: ScaffoldM(gradient_weight=1.1, **local): "gradient_weight=1.1 must be in",
        lambda: ProxSkip(lr=0.1, prox_probability=0.0): "prox_probability=0.0 must be in",
        lambda: EControlDA(lr=0.1, control_gain=1.5): "control_gain=1.5 must be in",
        lambda: FastFedDA(local_steps=2, strong_convexity=0.0, proximity=1.0): "strong_convexity",
        lambda: FastFedDA(local_steps=0, strong_convexity=0.1, proximity=1.0): "local_steps=0",
        lambda: TopK(True): "k=True must be",
    }.items():
        with pytest.raises(cfl.CompositeFLError, match=message):
            make()


def test_runs_outside_the_theory_are_refused(lasso_problem):
    local = dict(local_steps=2, local_lr=0.1)
    mcp = cfl.MCP(0.05, 3.0)  # rho = 1/3
    for phi, algorithm, options, message in [
        (mcp, FedDR(eta=3.0, **local), {}, r"eta=3.0 must be in \(0, 1/rho\)"),
        (mcp, FedADMM(eta=3.5, **local), {}, r"eta=3.5 must be in \(0, 1/rho\)"),
        (mcp, ProxSkip(lr=0.4, prox_probability=0.1), {}, "lr/prox_probability=4.0 must be in"),
        (mcp, EControlDA(lr=0.1), {}, "needs a convex regulariser"),
        (
            mcp,
            FastFedDA(local_steps=2, strong_convexity=0.5, proximity=1.0),
            {},
            "2/strong_convexity=4.0 must be in",
        ),
        (None, EControlDA(lr=0.1, schedule="linear"), {}, "schedule='linear'"),
        (None, EControlDA(lr=0.1, output="best"), {}, "output='best'"),
        (
            None,
            EControlDA(lr=0.1, compressor=TopK(9)),
            {},
            "k=9 entries of a model that has only 8",
        ),
        (None, EControlDA(lr=0.1), dict(participation=2), "needs all clients in every round"),
        (None, EControlDA(lr=0.1), dict(dropout=0.1), "needs all clients in every round"),
        (
            None,
            FastFedDA(local_steps=2, **MU),
            dict(stragglers=0.5),
            "needs all local steps of every client",
        ),
        (cfl.L1(0.1), FedAvgM(**local), {}, "defined without a regulariser"),
        (
            cfl.Box(-1.0, 1.0),
            FedAvgM(composite="subgradient", **local),
            {},
            "cannot enforce a constraint",
        ),
        (
            cfl.ByName({"*": cfl.NonNegative()}),
            cfl.FedAvg(composite="subgradient", **local),
            {},
            "cannot enforce a constraint",
        ),
        (
            cfl.L1(0.1),
            cfl.Scaffnew(composite="server-prox", **local),
            {},
            "needs random=False",
        ),
        (
            cfl.MCP(0.1, 2.0),
            cfl.FedNMap(gamma=np.float32(2.5), **local),
            {},
            r"gamma=2.5 must be in \(0, 1/rho\)",
        ),
        (cfl.L1(0.1), ScaffoldM(**local), {}, "defined without a regulariser"),
    ]:
        with pytest.raises(cfl.CompositeFLError, match=message):
            solve(lasso_problem, phi, algorithm, rounds=1, **options)
