"""A number for every entry: in an array like the leaf, or in a pytree like the parameters."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import compositefl as cfl
import compositefl.regularizers as R
from compositefl.core.errors import CompositeFLError

pytestmark = pytest.mark.usefixtures("x64")

W = np.array([[0.5, 0.0, 1.0], [0.2, 0.7, 0.3]])
MANY = [  # (class, its numbers, one for each entry)
    (R.L1, [W]),
    (R.SquaredL2, [W]),
    (R.ElasticNet, [W, W[::-1]]),
    (R.ElasticNet, [0.3, W]),
    (R.MCP, [W, 1.0 + W]),
    (R.SCAD, [W, 3.0 + W]),
    (R.LogSum, [W, 1.0 + W]),
    (R.TransformedL1, [W, 1.5 + W]),
    (R.Box, [-W, 2 * W]),
    (R.Box, [-W, 1.0]),
]
Z = np.random.default_rng(0).normal(size=(2, 3))
T = 0.4
names = [f"{c.__name__}-{''.join('an'[np.ndim(v) == 0] for v in vs)}" for c, vs in MANY]
prox = jax.jit(lambda phi, z: phi.prox(z, T))


def entry_by_entry(cls, values, index):
    return cls(*(float(np.broadcast_to(v, W.shape)[index]) for v in values))


@pytest.mark.parametrize(("cls", "values"), MANY, ids=names)
def test_every_entry_has_its_own_number(cls, values):
    phi = cls(*values)
    alone = {i: entry_by_entry(cls, values, i) for i in np.ndindex(W.shape)}
    expected = np.array([float(alone[i].prox(Z[i], T)) for i in alone]).reshape(W.shape)
    np.testing.assert_allclose(phi.prox(Z, T), expected, atol=1e-14)
    np.testing.assert_allclose(prox(phi, Z), expected, atol=1e-14)
    value = sum(float(alone[i].value(expected[i])) for i in alone)
    np.testing.assert_allclose(phi.value(expected), value, rtol=1e-13)
    assert phi.rho == pytest.approx(max(float(one.rho) for one in alone.values()))

    single = prox(phi, Z.astype(np.float32))
    assert single.dtype == np.float32
    assert phi.value(jnp.asarray(expected, jnp.float32)).dtype == np.float32


def test_vmap_over_arrays_of_weights_shares_one_program():
    both = jax.tree.map(lambda *w: jnp.stack(w), R.MCP(W, 1 + W), R.MCP(2 * W, 2 + W))
    mapped = jax.vmap(lambda phi: phi.prox(Z, T))(both)
    np.testing.assert_allclose(mapped[1], R.MCP(2 * W, 2 + W).prox(Z, T), atol=1e-14)
    compiled = jax.jit(lambda phi, z: phi.prox(z, T))
    compiled(R.L1(W), Z), compiled(R.L1(3 * W), Z)
    assert compiled._cache_size() == 1


PARAMS = {"kernel": Z, "bias": np.array([1.0, -2.0])}


def test_a_pytree_like_the_parameters():
    phi = R.L1({"kernel": W, "bias": 0.0})
    result = phi.prox(PARAMS, T)
    np.testing.assert_allclose(result["kernel"], R.L1(W).prox(Z, T))
    np.testing.assert_array_equal(result["bias"], PARAMS["bias"])
    np.testing.assert_allclose(phi.value(PARAMS), np.sum(W * np.abs(Z)))
    part = R.ByName({"bias": R.NonNegative(), "*": R.L1({"kernel": W, "bias": 5.0})})
    np.testing.assert_allclose(part.prox(PARAMS, T)["kernel"], result["kernel"])
    assert R.MCP({"kernel": W, "bias": 1.0}, {"kernel": 1 + W, "bias": 0.25}).rho == 4.0


@pytest.mark.parametrize(
    ("phi", "message"),
    [
        (R.L1(W), r"L1: weight of shape \(2, 3\) does not fit leaf 'bias' of shape \(2,\)"),
        (R.L1({"kernel": W}), "L1: weight has the structure .*; it must be a number, an array"),
        (R.L1({"kernel": W.T, "bias": 1.0}), r"of shape \(3, 2\) does not fit leaf 'kernel'"),
        (R.L1({"kernel": [1.0, 2.0], "bias": 1.0}), r"structure \[1.0, 2.0\] does not fit"),
    ],
)
def test_numbers_that_do_not_fit(phi, message):
    for call in (phi.check_tree, phi.value, lambda x: phi.prox(x, T)):
        with pytest.raises(CompositeFLError, match=message):
            call(PARAMS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: R.L1(np.array([1.0, -2.0])), r"weight\[1\]=-2.0 must be a finite number >= 0"),
        (lambda: R.L1({"a": np.nan}), "weight=nan must be a finite number >= 0"),
        (lambda: R.L1({}), "must be a number"),
        (lambda: R.MCP(1.0, W), r"theta\[0, 1\]=0.0 must be a finite number > 0"),
        (lambda: R.SCAD(1.0, 2.5 * W), "must be a finite number > 2"),
        (lambda: R.Box(W, W - 1), "lower must be <= upper in every entry"),
        (lambda: R.MCP(np.ones(3), np.ones(2)).rho and R.LogSum(np.ones(3), np.ones(2)).rho,
         "different shapes"),
        (lambda: R.GroupLasso(W), r"GroupLasso: weight of shape \(2, 3\) must be one number"),
        (lambda: R.NuclearNorm([0.1, 0.2]), "NuclearNorm: weight=.* must be one number"),
        (lambda: R.L1Ball(np.ones(2)), "L1Ball: radius of shape"),
    ],
)  # fmt: skip
def test_wrong_numbers(make, message):
    with pytest.raises(CompositeFLError, match=message) as error:
        make()
    assert "\n" not in str(error.value)


def test_repr_is_one_line_and_tells_arrays_apart():
    large = np.arange(5000.0)
    other = large.copy()
    other[2500] = 0.0  # NumPy would not print it
    texts = [repr(R.L1(v)) for v in (large, other)]
    assert texts[0] != texts[1] and all("\n" not in t and len(t) < 100 for t in texts)
    assert repr(R.L1(np.array([1.0, 0.0]))) == "L1(weight=array([1.0, 0.0]))"
    assert repr(R.L1(0.1)) == "L1(weight=0.1)"
    by_name = R.ByName({"b": R.Zero(), "*": R.L1({"a": large})})
    assert repr(by_name).startswith("ByName(rules={'b': Zero(), '*': L1(weight={'a': array((5000,)")


def test_group_ids_fit_every_leaf_of_that_many_entries():
    rng = np.random.default_rng(1)
    ids, kernel = rng.integers(0, 20, 123), rng.normal(size=(123, 1))
    for weights in ("one", "sqrt-size"):
        phi = R.GroupLasso(0.8, ids, weights)
        flat = phi.prox(kernel.ravel(), 1.0)
        np.testing.assert_array_equal(phi.prox(kernel, 1.0), flat[:, None])
        assert phi.value(kernel) == phi.value(kernel.ravel())
    both = R.SparseGroupLasso(0.1, 0.8, ids)
    np.testing.assert_array_equal(both.prox(kernel, 1.0)[:, 0], both.prox(kernel[:, 0], 1.0))
    with pytest.raises(CompositeFLError, match="does not fit 123 group ids"):
        R.GroupLasso(0.8, ids).check_tree(np.zeros((123, 2)))


def test_sparse_group_lasso_with_an_l1_for_every_entry():
    phi = R.SparseGroupLasso(W, 0.3)
    expected = R.GroupLasso(0.3).prox(R.L1(W).prox(Z, T), T)
    np.testing.assert_allclose(phi.prox(Z, T), expected, atol=1e-14)
    p, rng = np.asarray(phi.prox(Z, T)), np.random.default_rng(2)
    cost = lambda u: float(phi.value(u)) + np.sum((u - Z) ** 2) / (2 * T)  # noqa: E731
    assert all(cost(p) <= cost(p + 0.1 * rng.normal(size=p.shape)) for _ in range(50))


@pytest.mark.parametrize("devices", [1, 2])
def test_runs_with_a_weight_for_every_entry(lasso_problem, devices):
    """A run with weights (w, 0 last) is the run of ByName with the last entries unpenalised."""
    if devices > len(jax.devices()):
        pytest.skip("one device here")
    weight = np.full(8, 0.1)
    weight[-2:] = 0.0
    algorithm = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05)
    given = dict(rounds=5, dtype="float64", devices=devices, progress=False)
    one = cfl.minimize(lasso_problem, cfl.L1(weight), algorithm, **given)
    wide = cfl.Problem(
        lambda p, batch: lasso_problem.loss(jnp.concatenate([p["a"], p["b"]]), batch),
        {"a": lasso_problem.params[:6], "b": lasso_problem.params[6:]},
        lasso_problem.clients,
    )
    two = cfl.minimize(wide, cfl.ByName({"b": cfl.Zero(), "*": cfl.L1(0.1)}), algorithm, **given)
    both = np.concatenate([two.params["a"], two.params["b"]])
    np.testing.assert_allclose(one.params, both, atol=1e-12)
    np.testing.assert_allclose(one.history.psi, two.history.psi, rtol=1e-12)
    assert "\n" not in one.config["regularizer"]
