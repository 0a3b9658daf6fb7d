"""Methods with a local penalty, a dual variable or a base optimiser: against plain twins, the
identities between them, where they converge to, the certified solver, costs, refusals."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import linprog, minimize

import compositefl as cfl
import plain_b as plain
from compositefl.algorithms.certified import begin_solve, improve
from compositefl.algorithms.feddc import FedDC
from compositefl.algorithms.feddyn import FedDyn
from compositefl.algorithms.fedmspp import FedMSPP, FedMSPPNonsmooth
from compositefl.algorithms.fedpd import FedPD
from compositefl.algorithms.fedprox import FedProx
from compositefl.algorithms.fedprox_nonsmooth import FedProxNonsmooth
from compositefl.algorithms.fedsplit import FedSplit
from compositefl.algorithms.geometric import geometric
from compositefl.algorithms.mime import Mime, MimeLite
from compositefl.algorithms.scaffnew import Scaffnew
from compositefl.algorithms.stem import STEM
from compositefl.algorithms.vrl_sgd import VRLSGD
from compositefl.core.component import replace
from compositefl.core.errors import CompositeFLError
from compositefl.core.vector import Vector
from compositefl.engine.accounting import round_cost
from compositefl.engine.sampling import Stream, minibatch, round_key, trial_key
from problems import centralised_solution

STEPS = dict(local_steps=4, local_lr=0.03)
PLAIN = dict(Q=4, ea=0.03)
SEED = 11


def solve(problem, phi, algorithm, **options):
    options = dict(rounds=12, batch_size=4, seed=SEED, dtype="float64", progress=False) | options
    return cfl.minimize(problem, phi, algorithm, eval_every=options["rounds"], **options)


def assert_equal(a, b, tolerance=1e-10):
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=0, atol=tolerance), a, b)


def started_at_prox(problem, phi, t):
    with jax.enable_x64(True):
        start = jax.tree.map(np.asarray, phi.prox(problem.start("float64"), t))
    return cfl.Problem(problem.loss, start, problem.clients)


# Against plain twins ----------------------------------------------------------------------------


def lengths(algorithm, rounds):
    """The random numbers of local steps, which a twin cannot draw by itself."""
    keys = [round_key(trial_key(SEED, 0), Stream.SHARED, t) for t in range(rounds)]
    return [int(algorithm.draw_steps(key)) for key in keys]


def twin_of_fedpd(f, x, T):
    counts = lengths(TWINS["fedpd"][0], T)
    assert {count % 4 for count in counts} == {0} and len(set(counts)) > 1
    return plain.fedpd(f, x, eta=0.6, stages=[count // 4 for count in counts], **PLAIN)


def twin_of_scaffnew(f, x, T):
    counts = lengths(TWINS["scaffnew"][0], T)
    assert len(set(counts)) > 2
    return plain.scaffnew(f, x, gamma=0.03, p=1 / 4, lengths=counts)


def mime_twin(kind, lite=False):
    def twin(f, x, T, **options):
        base = plain.Adam(kind, 0.7, 0.9, 1e-2)
        return plain.mime(f, x, es=1.5, rounds=T, base=base, lite=lite, **PLAIN, **options)

    return twin


MIME = dict(beta1=0.7, beta2=0.9, epsilon=1e-2, server_lr=1.5, **STEPS)
TWINS = {
    "fedprox": (
        FedProx(eta=0.6, accuracy=0.8, **STEPS),
        lambda f, x, T: plain.fedprox(f, x, eta=0.6, accuracy=0.8, rounds=T, **PLAIN),
    ),
    "fedmspp": (
        FedMSPP(eta=0.6, accuracy=0.8, **STEPS),
        lambda f, x, T: plain.fedprox(
            f, x, eta=0.6, accuracy=0.8, rounds=T, one_minibatch=True, **PLAIN
        ),
    ),
    "fedpd": (FedPD(eta=0.6, skip=0.5, **STEPS), twin_of_fedpd),
    "feddyn": (FedDyn(mu=0.7, **STEPS), partial(plain.feddyn, mu=0.7, **PLAIN)),
    "feddc": (FedDC(mu=0.2, **STEPS), partial(plain.feddc, mu=0.2, **PLAIN)),
    "fedsplit": (FedSplit(eta=0.6, **STEPS), partial(plain.fedsplit, eta=0.6, **PLAIN)),
    "scaffnew": (Scaffnew(**STEPS), twin_of_scaffnew),
    "vrl-sgd": (VRLSGD(**STEPS), partial(plain.vrl_sgd, **PLAIN)),
    "mime-sgd": (Mime(**MIME), mime_twin("sgd")),
    "mime-momentum": (Mime(optimizer="momentum", **MIME), mime_twin("momentum")),
    "mime-adam": (Mime(optimizer="adam", **MIME), mime_twin("adam")),
    "mimelite-adam": (MimeLite(optimizer="adam", **MIME), mime_twin("adam", lite=True)),
    "stem": (
        STEM(gradient_weight=0.3, step_decay=0.5, **STEPS),
        partial(plain.stem, a=0.3, decay=0.5, **PLAIN),
    ),
}


def models(twin, f, x, rounds, **options):
    takes_rounds = isinstance(twin, partial)
    return list(
        twin(f, x, rounds=rounds, **options) if takes_rounds else twin(f, x, rounds, **options)
    )


@pytest.mark.parametrize("name", TWINS)
def test_trajectory(name, lasso_problem):
    """The subgradient variant, with no regulariser and with one whose gradient the twin adds."""
    algorithm, twin = TWINS[name]
    algorithm = replace(algorithm, composite="subgradient")
    for ridge, rounds in ((0.0, 1), (0.0, 12), (0.3, 12)):
        f = plain.Losses(lasso_problem, 5, SEED, ridge)
        expected = models(twin, f, lasso_problem.params, 12)[rounds - 1]
        phi = cfl.SquaredL2(ridge / 2)
        result = solve(lasso_problem, phi, algorithm, batch_size=5, rounds=rounds)
        np.testing.assert_allclose(result.params, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", TWINS)
def test_single_precision(name, lasso_problem):
    algorithm, twin = TWINS[name]
    expected = models(twin, plain.Losses(lasso_problem, 5, SEED), lasso_problem.params, 12)[-1]
    result = solve(lasso_problem, None, algorithm, batch_size=5, dtype="float32")
    assert result.params.dtype == np.float32
    np.testing.assert_allclose(result.params, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", ["feddyn", "feddc", "mime-momentum"])
def test_trajectory_with_sampled_clients(name, lasso_problem):
    algorithm, twin = TWINS[name]
    f = plain.Losses(lasso_problem, 5, SEED)
    expected = models(twin, f, lasso_problem.params, 12, present=plain.sampled(f, 3))[-1]
    result = solve(lasso_problem, None, algorithm, batch_size=5, participation=3)
    np.testing.assert_allclose(result.params, expected, rtol=0, atol=1e-12)


# Identities -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "algorithm",
    [VRLSGD(**STEPS), Scaffnew(random=False, **STEPS), FedDC(mu=0.0, drift=False, **STEPS)],
    ids=lambda a: type(a).__name__,
)
def test_these_are_scaffold(network_problem, algorithm):
    reference = solve(network_problem, None, cfl.Scaffold(**STEPS))
    assert_equal(solve(network_problem, None, algorithm).params, reference.params)


def test_vrl_sgd_is_scaffold_with_the_prox_on_the_server_too(lasso_problem):
    phi, variant = cfl.L1(0.05), dict(composite="server-prox", **STEPS)
    moved = started_at_prox(lasso_problem, phi, 0.12)
    reference = solve(moved, phi, cfl.Scaffold(**variant))
    assert_equal(solve(lasso_problem, phi, VRLSGD(**variant)).params, reference.params)


def test_fedpd_without_skipping_is_feddyn(lasso_problem):
    """Both solve their local problems exactly, from different starts."""
    exact = dict(local_steps=200, local_lr=0.15)
    a = solve(lasso_problem, None, FedPD(eta=0.8, **exact), batch_size=None)
    b = solve(lasso_problem, None, FedDyn(mu=1.25, **exact), batch_size=None)
    assert_equal(a.params, b.params)


def test_fedprox_without_penalty_is_fedavg(network_problem):
    reference = solve(network_problem, None, cfl.FedAvg(**STEPS))
    result = solve(network_problem, None, FedProx(eta=float("inf"), **STEPS))
    assert_equal(result.params, reference.params)
    other = solve(network_problem, None, FedProx(eta=1.0, **STEPS))
    assert np.abs(other.params["out"]["bias"] - reference.params["out"]["bias"]).max() > 1e-4


def test_fedmspp_with_full_batches_is_fedprox(lasso_problem):
    options = dict(eta=0.5, accuracy=0.5, local_steps=20, local_lr=0.03)
    a = solve(lasso_problem, None, FedMSPP(**options), batch_size=None)
    b = solve(lasso_problem, None, FedProx(**options), batch_size=None)
    assert_equal(a.params, b.params)


def test_stem_without_momentum_is_fedavg_one_gradient_step_later(lasso_problem):
    ahead = solve(lasso_problem, None, cfl.PGD(lr=0.03), rounds=1)
    moved = cfl.Problem(lasso_problem.loss, ahead.params, lasso_problem.clients)
    reference = solve(moved, None, cfl.FedAvg(**STEPS), batch_size=None, rounds=11)
    stem = STEM(gradient_weight=1.0, **STEPS)
    result = solve(lasso_problem, None, stem, batch_size=None, rounds=12)
    assert_equal(result.params, reference.params)


def test_one_local_step_is_sgd(lasso_problem):
    phi = cfl.L1(0.05)
    one = dict(local_steps=1, local_lr=0.1, composite="server-prox")
    sgd = solve(lasso_problem, phi, cfl.ProxSGD(lr=0.1))
    assert_equal(solve(lasso_problem, phi, MimeLite(**one)).params, sgd.params)
    exact = solve(lasso_problem, phi, cfl.PGD(lr=0.1))
    assert_equal(solve(lasso_problem, phi, Mime(**one)).params, exact.params)
    moved = solve(started_at_prox(lasso_problem, phi, 0.1), phi, cfl.ProxSGD(lr=0.1))
    assert_equal(solve(lasso_problem, phi, VRLSGD(**one)).params, moved.params)


@pytest.mark.parametrize(
    "algorithm",
    [MimeLite(server_lr=1.5, **STEPS), STEM(gradient_weight=1.0, local_steps=1, local_lr=0.03)],
    ids=lambda a: type(a).__name__,
)
def test_these_are_fedavg(lasso_problem, algorithm):
    steps, server_lr = algorithm.local_steps, getattr(algorithm, "server_lr", 1.0)
    fedavg = cfl.FedAvg(local_steps=steps, local_lr=0.03, server_lr=server_lr)
    a, b = (solve(lasso_problem, None, method) for method in (algorithm, fedavg))
    assert_equal(a.params, b.params)


@pytest.mark.parametrize(
    ("algorithm", "pairs"),
    [(FedDyn(mu=0.7, **STEPS), "hq"), (FedDC(mu=0.2, **STEPS), "sshh")],
    ids=["FedDyn", "FedDC"],
)
def test_server_holds_the_means_of_the_clients(lasso_problem, algorithm, pairs):
    conditions = dict(participation=3, dropout=0.2)
    result = solve(lasso_problem, None, algorithm, batch_size=None, **conditions)
    for ours, theirs in zip(pairs[::2], pairs[1::2], strict=True):
        server = getattr(result.server, ours)
        assert np.abs(server).max() > 1e-3
        assert_equal(server, getattr(result.clients, theirs).mean(axis=0))


# Where they converge to -------------------------------------------------------------------------

FIVE = dict(local_steps=5, local_lr=0.05)


@pytest.fixture(scope="module")
def solution(lasso_problem):
    pairs = [(a.T @ a / len(b), a.T @ b / len(b)) for a, b in lasso_problem.clients]
    hessian, linear = (np.mean(part, axis=0) for part in zip(*pairs, strict=True))
    assert np.linalg.eigvalsh(hessian)[0] > 0.3
    return np.linalg.solve(hessian, linear)


@pytest.mark.parametrize(
    ("algorithm", "conditions"),
    [
        (FedPD(eta=1.0, **FIVE), {}),
        (FedPD(eta=1.0, **FIVE), {"stragglers": 0.4}),
        (FedDyn(mu=1.0, **FIVE), {}),
        (FedDyn(mu=1.0, **FIVE), {"participation": 3, "dropout": 0.2}),
        (FedDC(mu=0.1, **FIVE), {}),
        (FedDC(mu=0.1, **FIVE), {"participation": 3, "dropout": 0.2}),
        (FedSplit(eta=1.0, **FIVE), {}),
        (Scaffnew(**FIVE), {}),
        (VRLSGD(**FIVE), {}),
        (VRLSGD(**FIVE), {"stragglers": 0.4}),
        (Mime(**FIVE), {}),
        (Mime(optimizer="momentum", **FIVE), {}),
    ],
    ids=lambda v: type(v).__name__ if not isinstance(v, dict) else "-".join(v),
)
def test_reaches_the_solution(lasso_problem, solution, algorithm, conditions):
    options = dict(rounds=2500, batch_size=None) | conditions
    result = solve(lasso_problem, None, algorithm, **options)
    assert np.linalg.norm(lasso_problem.params - solution) > 0.5
    np.testing.assert_allclose(result.params, solution, atol=1e-10)


@pytest.mark.parametrize(
    "algorithm",
    [
        FedPD(eta=1.0, composite="server-prox", **FIVE),
        FedDyn(mu=1.0, composite="server-prox", **FIVE),
        FedDC(mu=0.5, composite="server-prox", **FIVE),
        FedSplit(eta=1.0, composite="server-prox", **FIVE),
    ],
    ids=lambda a: type(a).__name__,
)
def test_prox_on_the_server_reaches_the_lasso_solution(lasso_problem, algorithm):
    solution = centralised_solution(lasso_problem, 0.1)
    assert 0 < np.sum(solution == 0) < solution.size
    result = solve(lasso_problem, cfl.L1(0.1), algorithm, rounds=1500, batch_size=None)
    np.testing.assert_allclose(result.params, solution, atol=1e-10)
    assert np.array_equal(result.params == 0, solution == 0)


def final_error(problem, algorithm, solution, trials=1, **options):
    """Distance of the last model from the solution, mean over the trials."""
    result = solve(problem, None, algorithm, trials=trials, **options)
    return np.mean(np.linalg.norm(np.atleast_2d(result.params) - solution, axis=1))


def test_bias_of_fedprox_falls_with_eta(lasso_problem, solution):
    errors = []
    for eta in (0.02, 0.01, 0.005):
        algorithm = FedProx(eta=eta, accuracy=1e-6, local_steps=100, local_lr=1 / (4 + 1 / eta))
        result = solve(lasso_problem, None, algorithm, rounds=5000, batch_size=None)
        assert result.server.unsolved == 0
        errors.append(np.linalg.norm(result.params - solution))
    assert errors[0] > 1e-3
    np.testing.assert_allclose(np.array(errors[:-1]) / errors[1:], 2.0, rtol=0.1)


def test_bias_of_mimelite_falls_with_its_step(lasso_problem, solution):
    errors = [
        final_error(
            lasso_problem,
            MimeLite(local_steps=5, local_lr=lr),
            solution,
            rounds=4000,
            batch_size=None,
        )
        for lr in (0.02, 0.01)
    ]
    assert errors[0] > 1e-3
    np.testing.assert_allclose(errors[0] / errors[1], 2.0, rtol=0.1)


def test_bias_of_stem_falls_with_the_weight_of_new_gradients(lasso_problem, solution):
    errors = [
        final_error(
            lasso_problem,
            STEM(gradient_weight=a, local_steps=5, local_lr=0.02),
            solution,
            rounds=4000,
            batch_size=None,
        )
        for a in (0.04, 0.02)
    ]
    assert errors[0] > 5e-4
    np.testing.assert_allclose(errors[0] / errors[1], 2.0, rtol=0.1)


def test_error_of_fedpd_falls_with_skipping(lasso_problem, solution):
    errors = [
        final_error(
            lasso_problem,
            FedPD(eta=1.0, skip=skip, **FIVE),
            solution,
            trials=48,
            rounds=300,
            batch_size=None,
        )
        for skip in (0.4, 0.1, 0.02)
    ]
    assert errors[0] > 2 * errors[1] > 4 * errors[2] > 0


def test_error_of_fedmspp_falls_with_eta(lasso_problem, solution):
    errors = [
        final_error(
            lasso_problem,
            FedMSPP(eta=eta, local_steps=30, local_lr=1 / (8 + 1 / eta)),
            solution,
            trials=16,
            rounds=round(20 / eta),
            batch_size=5,
        )
        for eta in (0.4, 0.1, 0.025)
    ]
    assert errors[0] > 1.5 * errors[1] > 1.5**2 * errors[2]


# Accuracy of the local solves -------------------------------------------------------------------


def test_accuracy_of_fedprox_is_checked(lasso_problem):
    """One client: the model after a round is its local solution."""
    a, b = lasso_problem.clients[1]
    alone = cfl.Problem(lasso_problem.loss, lasso_problem.params, [(a, b)])
    x, eta, accuracy = lasso_problem.params, 0.5, 0.05
    options = dict(eta=eta, accuracy=accuracy, local_lr=0.1)

    def ratio(u):
        slope = a.T @ (a @ u - b) / len(b) + (u - x) / eta
        return np.linalg.norm(slope) / np.linalg.norm(a.T @ (a @ x - b) / len(b))

    result = solve(alone, None, FedProx(local_steps=1000, **options), rounds=1, batch_size=None)
    assert ratio(result.params) <= accuracy and result.server.unsolved == 0
    made = int(result.history.gradients.iloc[-1])
    assert 3 < made < 1000  # the last of them only checks
    cut = FedProx(local_steps=made - 2, **options)
    result = solve(alone, None, cut, rounds=1, batch_size=None)
    assert ratio(result.params) > accuracy and result.server.unsolved == 1


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
        u, exact = plain.exact_prox(c, d, low, 1.0, x, eta)
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
    exact = [plain.exact_prox(c, d, low, 1.0, problem.params, eta)[0] for c, d in problem.clients]
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
        exact.append(plain.exact_prox(c[rows], d[rows], low, 1.0, problem.params, eta)[0])
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


# Costs, random lengths, refusals ----------------------------------------------------------------

# vectors down and up, scalars down and up, gradients of a local step and of a visit
NINE = dict(local_steps=9, local_lr=0.1)
COSTS = {
    "fedprox": (FedProx(eta=1.0, **NINE), 1, 1, 0, 1, 1, 0),
    "fedmspp": (FedMSPP(eta=1.0, **NINE), 1, 1, 0, 1, 1, 0),
    "nonsmooth": (FedProxNonsmooth(local_steps=9, eta=1.0, accuracy=0.1), 1, 1, 0, 2, 1, 0),
    "fedpd": (FedPD(eta=1.0, **NINE), 1, 1, 0, 0, 1, 0),
    "feddyn": (FedDyn(mu=1.0, **NINE), 1, 1, 0, 0, 1, 0),
    "feddc": (FedDC(mu=1.0, **NINE), 2, 2, 0, 0, 1, 0),
    "fedsplit": (FedSplit(eta=1.0, **NINE), 1, 1, 0, 0, 1, 0),
    "scaffnew": (Scaffnew(**NINE), 1, 1, 0, 0, 1, 0),
    "mime-sgd": (Mime(**NINE), 2, 2, 0, 0, 2, 1),
    "mime-momentum": (Mime(optimizer="momentum", **NINE), 3, 2, 1, 0, 2, 1),
    "mime-adam": (Mime(optimizer="adam", **NINE), 4, 2, 1, 0, 2, 1),
    "mimelite-sgd": (MimeLite(**NINE), 1, 2, 0, 0, 1, 1),
    "mimelite-adam": (MimeLite(optimizer="adam", **NINE), 3, 2, 1, 0, 1, 1),
    "stem": (STEM(gradient_weight=0.1, **NINE), 2, 2, 1, 0, 2, 0),
    "vrl-sgd": (VRLSGD(**NINE), 1, 1, 0, 0, 1, 0),
}


@pytest.mark.parametrize("name", COSTS)
def test_costs_match_the_overview_table(name):
    algorithm, down, up, scalars_down, scalars_up, per_step, per_visit = COSTS[name]
    x0 = {"a": np.zeros((30, 4), np.float32), "b": np.zeros(7, np.float32)}
    vector = 127 * 4
    cost = round_cost(algorithm, x0)
    assert cost.bytes_down == down * vector + 4 * scalars_down
    assert cost.bytes_up == up * vector + 4 * scalars_up
    assert (cost.gradients_step, cost.gradients_visit, cost.steps) == (per_step, per_visit, 9)
    assert (cost.prox_client, cost.prox_server) == (0, 0)
    with_prox = round_cost(replace(algorithm, composite="server-prox"), x0)
    assert (with_prox.prox_step, with_prox.prox_server) == (0, 1)
    # The clients of these get the point before the prox and repeat it.
    assert with_prox.prox_visit == (name in ("vrl-sgd", "scaffnew", "stem"))


def test_round_lengths_are_geometric():
    keys = jax.random.split(jax.random.key(0), 40000)
    for p in (0.2, 0.7):
        draws = np.asarray(jax.vmap(geometric, in_axes=(0, None))(keys, p))
        for k in (1, 2, 5):
            share = p * (1 - p) ** (k - 1)
            assert abs(np.mean(draws == k) - share) < 5 * np.sqrt(share / 40000)
        assert draws.min() == 1
        assert abs(draws.mean() - 1 / p) < 5 * np.sqrt((1 - p) / 40000) / p
    assert np.all(np.asarray(jax.vmap(geometric, in_axes=(0, None))(keys, 1.0)) == 1)


@pytest.mark.parametrize(
    "algorithm",
    [
        FedPD(eta=1.0, **STEPS),
        FedSplit(eta=1.0, **STEPS),
        Scaffnew(**STEPS),
        VRLSGD(**STEPS),
        STEM(gradient_weight=0.1, **STEPS),
    ],
    ids=lambda a: type(a).__name__,
)
def test_needs_all_clients(lasso_problem, algorithm):
    for options in ({"participation": 3}, {"dropout": 0.1}, {"replacement": True}):
        with pytest.raises(CompositeFLError, match="needs all clients in every round"):
            solve(lasso_problem, None, algorithm, **options)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FedProx(eta=0.0, **STEPS), "eta=0.0 must be > 0"),
        (lambda: FedProx(eta=1.0, accuracy=1.0, **STEPS), r"accuracy=1.0 must be in \[0, 1\)"),
        (
            lambda: FedProx(eta=float("inf"), composite="server-prox", **STEPS).check(),
            "eta=inf .* use FedAvg",
        ),
        (lambda: FedPD(eta=1.0, skip=1.0, **STEPS), r"skip=1.0 must be a probability in \[0, 1\)"),
        (lambda: FedDC(mu=0.0, **STEPS), "mu=0.0 must be a finite number > 0"),
        (lambda: STEM(gradient_weight=1.5, **STEPS), "gradient_weight=1.5 must be in"),
        (lambda: Mime(optimizer="admm", **STEPS).check(), "unknown optimizer 'admm'.*adam"),
        (
            lambda: FedProxNonsmooth(
                local_steps=5, eta=0.5, accuracy=0.1, weak_convexity=2.0
            ).check(),
            "eta=0.5 must be below 1/nu = 0.5",
        ),
        (lambda: replace(VRLSGD(**STEPS), regularizer=cfl.L1(0.1)).check(), "without a regul"),
        (
            lambda: FedDyn(
                mu=0.2, composite="server-prox", regularizer=cfl.MCP(0.1, 3.0), **STEPS
            ).check(),
            "1/mu=5.0 must be in",
        ),
    ],
)
def test_refusals(make, message):
    with pytest.raises(CompositeFLError, match=message):
        make()
