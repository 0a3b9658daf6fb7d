"""Every regulariser with every composite method, one and two devices, all and some clients.

One model has a leaf for each regulariser, and ByName gives it to that leaf: a method's program
then holds them all, and the test compiles 34 programs of rounds instead of 646.
"""

import faulthandler

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms import ALGORITHMS
from compositefl.core.component import component
from compositefl.regularizers import REGULARIZERS

LIMIT = 120  # seconds for a test; then the stacks of all threads and the end of the process

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
}
CENTRALISED = {"pgd", "prox-sgd", "norm-sgd", "proxskip"}  # one step a round, as FedNMap with Q = 1

_prox = jax.jit(lambda phi, z, t: phi.prox(z, t))
_value = jax.jit(lambda phi, x: phi.value(x))


@component
class TracedOnce(cfl.Regularizer):
    """A regulariser whose functions are traced once for all programs."""

    inner: cfl.Regularizer

    @property
    def rho(self):
        return self.inner.rho

    def check_tree(self, x):
        self.inner.check_tree(x)

    def value(self, x):
        return _value(self.inner, x)

    def prox(self, z, t):
        return _prox(self.inner, z, t)


PHI = TracedOnce(cfl.ByName(PARTS))


def squared_distance(params, batch):
    """The same strongly convex f for every leaf: f = g(leaf 1) + g(leaf 2) + ..."""
    stacked = jnp.stack(jax.tree.leaves(params)).reshape(len(PARTS), -1)
    return 0.5 * jnp.mean(jnp.sum((stacked @ batch["a"].mT - batch["b"][:, None]) ** 2, (1, 2)))


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    clients = [
        {"a": 0.25 * rng.normal(size=(n, 6, 16)), "b": rng.normal(size=(n, 6))}
        for n in (3, 5, 4, 6, 3)
    ]
    start = rng.normal(size=(4, 4))
    return cfl.Problem(squared_distance, {name: start for name in PARTS}, clients)


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
def test_one_and_two_devices_agree(problem, name, share):
    algorithm = METHODS[name]
    given = dict(rounds=3, eval_every=3, dtype="float64", participation=share, progress=False)
    if share < 1 and algorithm.needs_everyone:
        with pytest.raises(cfl.CompositeFLError, match="needs all clients"):
            cfl.minimize(problem, PHI, algorithm, **given)
        return
    devices = (1, 2) if len(jax.devices()) > 1 else (1,)
    runs = [cfl.minimize(problem, PHI, algorithm, devices=d, **given) for d in devices]
    for part, phi in PARTS.items():
        models = [run.params[part] for run in runs]
        assert np.isfinite(models[0]).all(), part
        assert np.abs(models[0] - problem.params[part]).max() > 1e-3, part
        assert not phi.indicator or phi.value(models[0]) == 0, part
        np.testing.assert_allclose(models[-1], models[0], rtol=0, atol=1e-11, err_msg=part)
    columns = ["psi", "natural_residual_sq", "normal_map_sq"]
    np.testing.assert_allclose(runs[-1].history[columns], runs[0].history[columns], rtol=1e-9)
