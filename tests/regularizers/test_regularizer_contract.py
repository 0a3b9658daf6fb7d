"""What every regulariser promises, asked of every row of the table in float64."""

import dataclasses

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compositefl.regularizers as R
from compositefl.core.errors import CompositeFLError
from tests.conftest import FULL
from tests.regularizers.regularizer_cases import CASES

pytestmark = pytest.mark.usefixtures("x64")
settings = hypothesis.settings.get_profile("regularizers")
every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
FIRST = {type(case.phi): case for case in reversed(CASES)}  # of each class

prox = jax.jit(lambda phi, z, t: phi.prox(z, t))
value = jax.jit(lambda phi, x: phi.value(x))
gradient = jax.jit(jax.grad(lambda phi, x: phi.value(x), argnums=1))


def sample(case, seed=0, scale=None):
    """A random array with zeros and a tie, for tests that need no more than one."""
    s = case.scale if scale is None else scale
    z = np.random.default_rng(seed).uniform(-s, s, case.shape)
    z.flat[0], z.flat[1] = 0.0, -z.flat[2]
    return z


@every
def test_prox_is_that_of_the_twin(case):
    @settings
    @given(case.arrays(), case.ts())
    def check(z, t):
        np.testing.assert_allclose(prox(case.phi, z, t), case.prox(z, t), rtol=0, atol=1e-10)

    check()


@every
def test_value_is_that_of_the_twin(case):
    @settings
    @given(case.arrays(), case.ts())
    def check(x, t):
        feasible = np.asarray(prox(case.phi, x, t))
        for point in (x, feasible):
            np.testing.assert_allclose(value(case.phi, point), case.value(point), atol=1e-12)

    check()


@every
def test_prox_minimises_with_the_growth_that_rho_allows(case):
    """phi(u) + ||u-z||^2/(2t) >= phi(p) + ||p-z||^2/(2t) + (1/t - rho)/2 ||u-p||^2 for every u."""
    rho = float(case.phi.rho)

    @settings
    @given(case.arrays(), case.arrays(), case.ts(), st.sampled_from([1.0, 1e-1, 1e-3]))
    def check(z, direction, t, distance):
        p = np.asarray(prox(case.phi, z, t))
        u = p + distance * (direction - p)
        if case.phi.indicator:
            u = case.prox(u, t)
            assert value(case.phi, p) == 0
        gain = (
            case.value(u) - case.value(p)
            + (np.sum((u - z) ** 2) - np.sum((p - z) ** 2)) / (2 * t)
            - (1 / t - rho) / 2 * np.sum((u - p) ** 2)
        )  # fmt: skip
        assert gain >= -1e-11 / t

    check()


@every
def test_prox_is_cocoercive_up_to_rho(case):
    """<w - v, p(w) - p(v)> >= (1 - t rho) ||p(w) - p(v)||^2."""
    rho = float(case.phi.rho)

    @settings
    @given(case.arrays(), case.arrays(), case.ts())
    def check(w, v, t):
        difference = np.asarray(prox(case.phi, w, t) - prox(case.phi, v, t))
        bound = (1 - t * rho) * np.sum(difference**2)
        assert np.sum((w - v) * difference) >= bound - 1e-11

    check()


@every
def test_normal_map_bounds_natural_residual(case):
    """(1 - t rho) ||F_nat(p(z))|| <= ||F_nor(z)|| with the gradient g of any smooth f."""
    rho = float(case.phi.rho)

    @settings
    @given(case.arrays(case.scale / 2), case.arrays(case.scale / 2), case.ts())
    def check(z, step, t):
        p = np.asarray(prox(case.phi, z, t))
        gradient = step / t
        natural = (p - np.asarray(prox(case.phi, p - t * gradient, t))) / t
        normal = gradient + (z - p) / t
        assert (1 - t * rho) * np.linalg.norm(natural) <= np.linalg.norm(normal) + 1e-10 / t

    check()


@every
def test_prox_with_t_zero_changes_nothing(case):
    for z in (sample(case), np.zeros(case.shape)):
        result = np.asarray(prox(case.phi, z, 0.0))
        expected = case.prox(z, 1.0) if case.phi.indicator else z
        tolerance = 1e-12 if case.phi.indicator else 0
        np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance)


@every
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_dtype_of_z_is_kept(case, dtype):
    z = jnp.asarray(sample(case), dtype)
    t = case.t_max / 2
    wide = jax.tree.map(lambda w: jnp.asarray(w, jnp.float64), case.phi)
    for phi in (case.phi, wide):
        for step in (t, np.float64(t), jnp.asarray(t, jnp.float64)):
            assert jax.eval_shape(phi.prox, z, step).dtype == dtype
            assert jax.eval_shape(lambda z, phi=phi, t=step: phi.prox(z, t), z).dtype == dtype
    if not case.phi.indicator:
        assert jax.eval_shape(case.phi.value, z).dtype == dtype


@every
def test_single_precision_is_accurate(case):
    z = sample(case).astype(np.float32)
    t = case.t_max / 2
    with jax.enable_x64(False):
        single = np.asarray(prox(case.phi, z, t))
        assert single.dtype == np.float32
        if case.phi.indicator:
            assert value(case.phi, single) == 0
    np.testing.assert_allclose(single, case.prox(z.astype(np.float64), t), rtol=0, atol=3e-6)


@every
def test_eager_jit_and_vmap_agree(case):
    z = np.stack([sample(case, seed) for seed in range(2)])
    t = case.t_max * np.array([0.2, 0.9])
    jitted = [prox(case.phi, row, step) for row, step in zip(z, t, strict=True)]
    values = [value(case.phi, row) for row in z]
    if FULL or case is FIRST[type(case.phi)]:  # eager: every operation is compiled on its own
        np.testing.assert_allclose(case.phi.prox(z[0], t[0]), jitted[0], rtol=0, atol=1e-14)
        np.testing.assert_allclose(case.phi.value(z[0]), values[0], rtol=1e-14)
    mapped, mapped_values = jax.jit(
        jax.vmap(lambda z, t: (case.phi.prox(z, t), case.phi.value(z)))
    )(z, t)
    np.testing.assert_allclose(mapped, np.stack(jitted), rtol=0, atol=1e-14)
    np.testing.assert_allclose(mapped_values, values, rtol=1e-14)


@pytest.mark.parametrize("case", [c for c in CASES if c.other], ids=lambda case: case.name)
def test_vmap_over_the_weights(case):
    both = jax.tree.map(lambda *w: jnp.stack([jnp.asarray(v, float) for v in w]),
                        case.phi, case.other)  # fmt: skip
    z, t = sample(case), case.t_max / 4
    mapped, values, rhos = jax.jit(
        jax.vmap(lambda phi: (phi.prox(z, t), phi.value(z), jnp.asarray(phi.rho)))
    )(both)
    plain = [prox(case.phi, z, t), prox(case.other, z, t)]
    np.testing.assert_allclose(mapped, np.stack(plain), rtol=0, atol=1e-14)
    assert np.abs(plain[0] - plain[1]).max() > 1e-3
    plain = [value(case.phi, z), value(case.other, z)]
    np.testing.assert_allclose(values, plain, rtol=1e-14)
    np.testing.assert_allclose(rhos, [case.phi.rho, case.other.rho], rtol=1e-14)


@every
def test_gradient_of_value_is_finite_at_zero(case):
    zero, one = np.zeros(case.shape), np.zeros(case.shape)
    one.flat[0] = 1.0
    for x in (zero, one):
        assert np.all(np.isfinite(gradient(case.phi, x)))


@every
def test_nan_is_not_hidden(case):
    z = sample(case)
    z.flat[3] = np.nan
    assert np.isnan(prox(case.phi, z, case.t_max / 2)).any()


@every
def test_pytrees_without_leaves(case):
    assert case.phi.value({}) == 0
    assert case.phi.prox({}, 1.0) == {}


COUPLED = {"linf", "l2-ball", "l1-ball", "simplex"}


@every
def test_pytrees(case):
    """Leaves are treated alone, but norms and sets of the whole model see all of them together."""
    z = {"a": sample(case, 1), "b": [sample(case, 2)]}
    t = case.t_max / 2
    result = prox(case.phi, z, t)
    assert jax.tree.structure(result) == jax.tree.structure(z)
    if case.name in COUPLED:
        joint = np.stack(jax.tree.leaves(z))
        expected, total = case.prox(joint, t), case.value(joint)
    else:
        expected = np.stack([case.prox(leaf, t) for leaf in jax.tree.leaves(z)])
        total = sum(case.value(leaf) for leaf in jax.tree.leaves(z))
    np.testing.assert_allclose(np.stack(jax.tree.leaves(result)), expected, rtol=0, atol=1e-10)
    np.testing.assert_allclose(value(case.phi, z), total, rtol=1e-12)


@every
def test_scalars(case):
    """A number is a leaf like any other, unless the regulariser needs axes."""
    t = case.t_max / 2
    try:
        case.phi.check_tree(0.4)
    except CompositeFLError:
        assert isinstance(case.phi, (R.GroupLasso, R.SparseGroupLasso, R.NuclearNorm, R.TwoFour))
        return
    result = prox(case.phi, 0.4, t)
    assert result.shape == ()
    twin = 0.4 if case.name == "total-variation" else case.prox(np.array([0.4]), t)[0]
    np.testing.assert_allclose(result, twin, atol=1e-12)


@every
def test_flags(case):
    phi = case.phi
    assert phi.convex == (phi.rho == 0)
    assert phi.max_prox == (np.inf if phi.convex else pytest.approx(1 / phi.rho))
    if phi.is_separable:
        z = sample(case)
        alone = [prox(phi, v, case.t_max / 2) for v in z.ravel()]
        np.testing.assert_allclose(prox(phi, z, case.t_max / 2).ravel(), alone, atol=1e-14)
    copy = dataclasses.replace(phi)
    assert copy == phi and jax.tree.structure(copy) == jax.tree.structure(phi)


@every
def test_check_prox(case):
    phi = case.phi
    phi.check_prox("gamma", 0.9 * min(phi.max_prox, 10.0))
    for bad in (0, -1.0, float("nan")):
        with pytest.raises(CompositeFLError, match="gamma="):
            phi.check_prox("gamma", bad)
    if not phi.convex:
        with pytest.raises(CompositeFLError, match=r"gamma=.* must be in \(0, 1/rho\) = \(0, "):
            phi.check_prox("gamma", phi.max_prox)


@jax.jit
def check_inside_jit(phi, t):
    phi.check_prox("gamma", t)
    phi.check_prox("gamma", 1e9)
    return t


def test_check_prox_lets_tracers_pass():
    assert check_inside_jit(R.MCP(1.0, 1.0), 5.0) == 5.0


def test_check_prox_of_a_sweep_is_that_of_its_strictest_member():
    sweep = R.MCP(jnp.ones(2), jnp.array([0.5, 2.0]))
    sweep.check_prox("gamma", 0.4)
    with pytest.raises(CompositeFLError, match=r"\(0, 0\.5\)"):
        sweep.check_prox("gamma", 1.0)


def test_support():
    support = R.L1(1.0).support({"a": jnp.array([0.0, -0.0, 1e-30, -2.0]), "b": 0})
    np.testing.assert_array_equal(support["a"], [False, False, True, True])
    assert not support["b"]


def test_whole_numbers_become_floats():
    np.testing.assert_allclose(R.L1(0.5).prox(jnp.array([2, 0, -1]), 1.0), [1.5, 0, -0.5])
    np.testing.assert_allclose(R.LInf(0.5).prox(jnp.array([2, 0, -1]), 1.0), [1.5, 0, -1])
