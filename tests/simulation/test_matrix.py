"""Every regulariser with every composite method, compiled for two devices and in a Python loop.

The model is a stack of matrices, one for each regulariser: a method's program then holds them all,
36 programs of rounds instead of 684. `make test` leaves out all clients for methods that can do
with some, except FedNMap: what differs is the engine's, not theirs. `make test-full` has all, and
one device too.
"""

import faulthandler
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms import ALGORITHMS
from compositefl.core.component import component
from compositefl.regularizers import REGULARIZERS
from tests.conftest import FULL
from tests.problems import Outside

LIMIT = 300  # seconds for a test, then the stacks of all threads and the end: nothing may hang

PARTS = {  # 1/rho above 2, the largest prox parameter of the methods below
    "zero": cfl.Zero(),
    "l1": cfl.L1(0.1),
    "squared-l2": cfl.SquaredL2(0.3),
    "elastic-net": cfl.ElasticNet(0.1, 0.2),
    "mcp": cfl.MCP(0.2, 10.0),
    "scad": cfl.SCAD(0.1, 5.0),
    "log-sum": cfl.LogSum(0.1, 2.0),
    "transformed-l1": cfl.TransformedL1(0.1, 2.0),
    "group-lasso": cfl.GroupLasso(0.1, "columns"),
    "sparse-group-lasso": cfl.SparseGroupLasso(0.05, 0.1),
    "nuclear-norm": cfl.NuclearNorm(0.2),
    "linf": cfl.LInf(0.5),
    "box": cfl.Box(-0.3, 0.2),
    "nonnegative": cfl.NonNegative(),
    "l2-ball": cfl.L2Ball(0.7),
    "l1-ball": cfl.L1Ball(1.5),
    "simplex": cfl.Simplex(1.5),
    "total-variation": cfl.TotalVariation1D(0.1),
    "two-four": cfl.TwoFour(0.05, 2.0),
}
Q = {"local_steps": 2, "local_lr": 0.05}
METHODS = {
    "fednmap": cfl.FedNMap(gamma=0.5, **Q),
    "za1": cfl.ZA1(**Q),
    "fedcanon": cfl.FedCanon(**Q),
    "fedcanon2": cfl.FedCanonII(**Q),
    "fedmid": cfl.FedMiD(**Q),
    "fedda": cfl.FedDA(**Q),
    "fast-fedda": cfl.FastFedDA(local_steps=2, strong_convexity=1.0, proximity=4.0),
    "feddr": cfl.FedDR(eta=0.5, **Q),
    "fedadmm": cfl.FedADMM(eta=0.5, **Q),
    "econtrolda": cfl.EControlDA(lr=0.1),
    "prox-newton": cfl.ProxNewton(),
}
CENTRALISED = {"pgd", "prox-sgd", "norm-sgd", "proxskip"}  # one step a round, as FedNMap with Q = 1

_prox = jax.jit(lambda parts, z, t: jnp.stack([p.prox(z[i], t) for i, p in enumerate(parts)]))
_value = jax.jit(lambda parts, x: sum(p.value(x[i]) for i, p in enumerate(parts)))


@component
class Stack(cfl.Regularizer):
    """Each regulariser on its own matrix; jitted, so that all programs share one tracing."""

    parts: tuple

    @property
    def rho(self):
        return functools.reduce(jnp.maximum, [p.rho for p in self.parts])

    def check_tree(self, x):
        for i, part in enumerate(self.parts):
            part.check_tree(x[i])

    def value(self, x):
        return _value(self.parts, x)

    def prox(self, z, t):
        return _prox(self.parts, z, t)


PHI = Stack(tuple(PARTS.values()))


def squared_distance(x, batch):
    """The same strongly convex function of every matrix, summed."""
    miss = x.reshape(len(PARTS), -1) @ batch["a"].mT - batch["b"][:, None]
    return 0.5 * jnp.mean(jnp.sum(miss**2, (1, 2)))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    clients = [
        {"a": 0.25 * rng.normal(size=(n, 6, 16)), "b": rng.normal(size=(n, 6))}
        for n in (3, 5, 4, 6, 3)
    ]
    start = np.stack([rng.normal(size=(4, 4))] * len(PARTS))
    return cfl.Problem(squared_distance, start, clients)


@pytest.fixture(scope="module")
def outside(problem):
    return cfl.Problem(Outside(squared_distance), problem.params, problem.clients)


@pytest.fixture(autouse=True)
def time_limit():
    faulthandler.dump_traceback_later(LIMIT, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def test_the_table_is_complete():
    assert list(PARTS) == list(REGULARIZERS)
    smooth = {n for n, cls in ALGORITHMS.items() if "composite" in cls.__dataclass_fields__}
    assert set(METHODS) == set(ALGORITHMS) - smooth - CENTRALISED


@pytest.mark.parametrize("share", [1.0, 0.6], ids=["all", "sampled"])
@pytest.mark.parametrize("name", METHODS)
def test_engines_and_devices_agree(problem, outside, name, share):
    algorithm = METHODS[name]
    if share == 1 and not (FULL or name == "fednmap" or algorithm.needs_everyone):
        pytest.skip("in make test-full")
    given = dict(rounds=3, eval_every=3, dtype="float64", participation=share, progress=False)
    if share < 1 and algorithm.needs_everyone:
        with pytest.raises(cfl.CompositeFLError, match="needs all clients"):
            cfl.minimize(problem, PHI, algorithm, **given)
        return
    several = min(2, len(jax.devices()))
    looped = "hessian" not in algorithm.needs  # which a loss outside JAX does not have
    devices = {1, several} if FULL or not looped else {several}
    runs = [cfl.minimize(problem, PHI, algorithm, devices=d, **given) for d in sorted(devices)]
    if looped:
        runs.append(cfl.minimize(outside, PHI, algorithm, **given))
    for i, (part, phi) in enumerate(PARTS.items()):
        models = [run.params[i] for run in runs]
        assert np.isfinite(models[0]).all(), part
        assert np.abs(models[0] - problem.params[i]).max() > 1e-3, part
        assert not phi.indicator or phi.value(models[0]) == 0, part
        for other in models[1:]:
            np.testing.assert_allclose(other, models[0], rtol=0, atol=1e-11, err_msg=part)
    columns = ["psi", "natural_residual_sq", "normal_map_sq"]
    # atol: squares of what the models may differ by; prox-newton has solved the problem by then.
    for other in runs[1:]:
        first, last = (run.history[columns] for run in (runs[0], other))
        np.testing.assert_allclose(last, first, rtol=1e-9, atol=1e-22)
