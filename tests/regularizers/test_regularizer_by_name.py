"""Different regularisers for different leaves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import compositefl.regularizers as R
from compositefl.core.errors import CompositeFLError
from compositefl.core.vector import Vector

pytestmark = pytest.mark.usefixtures("x64")


def model(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "layers": [
            {
                "kernel": jnp.asarray(rng.normal(size=(4, 3))),
                "bias": jnp.asarray(rng.normal(size=3)),
            }
            for _ in range(2)
        ],
        "scale": jnp.asarray(0.5),
    }


def test_first_match_wins_and_the_order_is_the_users():
    # Sorted, "*" would come first and take everything.
    phi = R.ByName({"layers/0/*": R.L1(0.1), "*bias": R.Zero(), "*": R.SquaredL2(1.0)})
    x = model()
    result = jax.jit(lambda phi, x: phi.prox(x, 1.0))(phi, x)
    (first, second), scale = x["layers"], x["scale"]
    expected = {
        "layers": [
            R.L1(0.1).prox(first, 1.0),
            {"kernel": second["kernel"] / 3, "bias": second["bias"]},
        ],
        "scale": scale / 3,
    }
    jax.tree.map(np.testing.assert_allclose, result, expected)
    value = 0.1 * sum(np.abs(v).sum() for v in first.values())
    value += (second["kernel"] ** 2).sum() + scale**2
    np.testing.assert_allclose(phi.value(x), value)


def test_a_regulariser_sees_its_leaves_jointly():
    phi = R.ByName({"*kernel": R.L2Ball(1.0), "*": R.Zero()})
    x = model()
    result = phi.prox(x, 1.0)
    kernels = np.stack([layer["kernel"] for layer in result["layers"]])
    assert np.linalg.norm(kernels) == pytest.approx(1.0)
    assert phi.value(result) == 0 and phi.value(x) == np.inf
    np.testing.assert_array_equal(result["layers"][1]["bias"], x["layers"][1]["bias"])


def test_vmap_over_models_and_over_weights():
    phi = R.ByName({"*bias": R.Zero(), "*kernel": R.GroupLasso(0.5), "*": R.TotalVariation1D(1.0)})
    models = jax.tree.map(lambda *v: jnp.stack(v), model(0), model(1))
    mapped = jax.vmap(lambda x: phi.prox(x, 0.7))(models)
    for i in range(2):
        alone = phi.prox(model(i), 0.7)
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b), mapped, alone)

    weights = jnp.array([0.1, 1.0])
    sweep = jax.vmap(lambda w: R.ByName({"*bias": R.Zero(), "*": R.L1(w)}).value(model()))(weights)
    plain = [R.ByName({"*bias": R.Zero(), "*": R.L1(w)}).value(model()) for w in (0.1, 1.0)]
    np.testing.assert_allclose(sweep, plain)
    assert len(jax.tree.leaves(phi)) == 2


def test_rho_and_flags_are_those_of_the_worst_part():
    phi = R.ByName({"*kernel": R.MCP(1.0, 0.5), "*": R.L1(1.0)})
    assert phi.rho == 2.0 and phi.max_prox == 0.5
    assert not phi.convex and phi.is_separable and not phi.indicator
    with pytest.raises(CompositeFLError, match=r"gamma=0.6 must be in \(0, 1/rho\) = \(0, 0.5\)"):
        phi.check_prox("gamma", 0.6)
    sweep = jax.vmap(lambda theta: R.ByName({"a": R.MCP(1.0, theta), "*": R.SCAD(1.0)}).rho)
    np.testing.assert_allclose(sweep(jnp.array([0.5, 100.0])), [2.0, 1 / 2.7])
    assert R.ByName({"*": R.NonNegative()}).indicator


def test_nesting_vectors_missing_parts_and_single_arrays():
    x = model()
    inner = R.ByName({"*bias": R.Zero(), "*": R.L1(0.2)})
    nested = R.ByName({"layers/*": inner, "nothing/*": R.Simplex(), "*": R.Zero()})
    flat = R.ByName({"layers/*/kernel": R.L1(0.2), "*": R.Zero()})
    jax.tree.map(np.testing.assert_allclose, nested.prox(x, 1.0), flat.prox(x, 1.0))
    np.testing.assert_allclose(nested.value(x), flat.value(x))

    wrapped = flat.prox(Vector(x), 1.0)  # the names are those of the tree inside
    assert isinstance(wrapped, Vector)
    jax.tree.map(np.testing.assert_array_equal, wrapped.tree, flat.prox(x, 1.0))
    np.testing.assert_allclose(R.ByName({"*": R.L1(1.0)}).prox(jnp.array([2.0]), 0.5), [1.5])


def test_unmatched_leaf():
    phi = R.ByName({"*kernel": R.L1(1.0), "*bias": R.Zero()})
    for call in (phi.check_tree, phi.value, lambda x: phi.prox(x, 1.0)):
        with pytest.raises(CompositeFLError) as error:
            call(model())
        assert str(error.value) == (
            "ByName: leaf 'scale' matches none of *kernel, *bias; "
            'add a "*" pattern for the rest, for example "*": Zero()'
        )


def test_shape_errors_name_the_leaf():
    phi = R.ByName({"*kernel": R.NuclearNorm(1.0), "*": R.GroupLasso(1.0)})
    with pytest.raises(CompositeFLError, match=r"GroupLasso: leaf 'layers/0/bias' of shape \(3,\)"):
        phi.check_tree(model())


@pytest.mark.parametrize("rules", [{}, [R.Zero()], {"a": 3}, {1: R.Zero()}, None])
def test_wrong_rules(rules):
    with pytest.raises(CompositeFLError, match="ByName"):
        R.ByName(rules)
