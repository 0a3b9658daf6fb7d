"""Facts about single regularisers: duality, exact zeros, tight moduli, certificates of optimality,
and mistakes that other implementations made."""

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st

import compositefl.regularizers as R
from tests.regularizers.regularizer_cases import BY_NAME, CASES

pytestmark = pytest.mark.usefixtures("x64")
settings = hypothesis.settings.get_profile("regularizers")

prox = jax.jit(lambda phi, z, t: phi.prox(z, t))


# Moreau: prox_t(z) + t prox of the conjugate = z. For a norm the second term is the projection on
# t times the dual ball.


def clip_rows(z, radius):
    return np.stack([row * min(1.0, radius / max(np.linalg.norm(row), 1e-300)) for row in z])


def clip_singular_values(z, radius):
    u, s, vt = np.linalg.svd(z, full_matrices=False)
    return u @ np.diag(np.minimum(s, radius)) @ vt


def moreau(name, dual):
    return pytest.param(BY_NAME[name], dual, id=name)


@pytest.mark.parametrize(
    ("case", "dual"),
    [
        moreau("zero", lambda z, t: np.zeros_like(z)),
        moreau("l1", lambda z, t: prox(R.Box(-0.7 * t, 0.7 * t), z, 1.0)),
        moreau("squared-l2", lambda z, t: z * (1.2 * t) / (1 + 1.2 * t)),
        moreau("group-lasso rows", lambda z, t: clip_rows(z, 0.7 * t)),
        moreau("nuclear-norm", lambda z, t: clip_singular_values(z, 0.9 * t)),
        moreau("linf", lambda z, t: prox(R.L1Ball(2.0 * t), z, 1.0)),
        moreau("box", lambda z, t: np.where(z > 2, z - 2, np.where(z < -0.5, z + 0.5, 0))),
        moreau("nonnegative", lambda z, t: np.minimum(z, 0)),
        moreau("l2-ball", lambda z, t: prox(R.GroupLasso(2.0), z[None], 1.0)[0]),
        moreau("l1-ball", lambda z, t: prox(R.LInf(2.0), z, 1.0)),
    ],
)
def test_moreau_identity(case, dual):
    @settings
    @given(case.arrays(), case.ts())
    def check(z, t):
        np.testing.assert_allclose(prox(case.phi, z, t) + dual(z, t), z, rtol=0, atol=1e-12)

    check()


@pytest.mark.parametrize(
    ("phi", "projection"),
    [
        (R.L2Ball(1.5), optax.projections.projection_l2_ball),
        (R.L1Ball(1.5), optax.projections.projection_l1_ball),
        (R.Simplex(1.5), optax.projections.projection_simplex),
    ],
    ids=["l2-ball", "l1-ball", "simplex"],
)
def test_projections_and_their_derivatives_are_those_of_optax(phi, projection):
    def with_derivative(function):
        return jax.jit(lambda z: (function(z), jax.jacrev(function)(z)))

    ours = with_derivative(lambda z: phi.prox(z, 1.0))
    theirs = with_derivative(lambda z: projection(z, 1.5))
    for scale in (0.05, 1.0, 10.0):
        z = scale * np.random.default_rng(3).normal(size=9)
        for a, b in zip(ours(z), theirs(z), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)


# Weak convexity: phi((x+y)/2) <= (phi(x) + phi(y))/2 + rho/8 ||x - y||^2, and no smaller rho does.


def excess(phi, x, y, rho):
    """Positive where the inequality above fails."""
    middle, ends = phi.value((x + y) / 2), (phi.value(x) + phi.value(y)) / 2
    return float(middle - ends - rho / 8 * jnp.sum((x - y) ** 2))


@pytest.mark.parametrize(
    "case", [case for case in CASES if not case.phi.convex], ids=lambda case: case.name
)
def test_rho_is_large_enough(case):
    @settings
    @given(case.arrays(), case.arrays(), st.sampled_from([1.0, 0.1, 0.01]))
    def check(x, y, closeness):
        y = x + closeness * (y - x)
        assert excess(case.phi, x, y, case.phi.rho) <= 1e-12

    check()


@pytest.mark.parametrize(
    ("name", "point", "direction"),
    [
        ("mcp", [0.5], [1.0]),
        ("scad", [1.0], [1.0]),
        ("log-sum", [0.0], [1.0]),
        ("transformed-l1", [0.0], [1.0]),
        # At the corner (R, R, R, 0) of the box, along the eigenvector of the Hessian for 1-sqrt(13)
        ("two-four", [2.0, 2.0, 2.0, 0.0], [(1 - 13**0.5) / 6] * 3 + [1.0]),
    ],
)
def test_rho_is_no_larger_than_needed(name, point, direction):
    phi = BY_NAME[name].phi
    x = jnp.asarray(point)
    y = x + 0.01 * jnp.asarray(direction)
    assert excess(phi, x, y, phi.rho) <= 1e-14
    assert excess(phi, x, y, 0.95 * phi.rho) > 1e-7


@pytest.mark.parametrize("name", ["mcp", "scad", "log-sum", "transformed-l1"])
def test_prox_against_a_grid_search(name):
    """On the definition itself, without any formula for the prox."""
    case = BY_NAME[name]
    zs = np.linspace(-case.scale, case.scale, 25)
    for t in np.array([0.3, 0.6, 1.0]) * case.t_max:
        ours = np.asarray(prox(case.phi, zs, t))
        for z, p in zip(zs, ours, strict=True):
            grid = np.linspace(-4, 4, 8001)
            cost = [case.value(np.array([u])) + (u - z) ** 2 / (2 * t) for u in grid[::8]]
            near = grid[::8][np.argmin(cost)] + np.linspace(-0.01, 0.01, 401)
            cost = [case.value(np.array([u])) + (u - z) ** 2 / (2 * t) for u in near]
            assert abs(near[np.argmin(cost)] - p) <= 5e-5
            assert case.value(np.array([p])) + (p - z) ** 2 / (2 * t) <= min(cost) + 1e-14


@pytest.mark.parametrize("name", ["mcp", "scad", "log-sum", "transformed-l1"])
def test_t_beyond_one_over_rho_is_nan(name):
    """Inside jit no check sees t, so the result itself must be loud."""
    phi = BY_NAME[name].phi
    assert np.isfinite(prox(phi, np.ones(3), 0.999 * phi.max_prox)).all()
    for t in (1.001 * phi.max_prox, 10 * phi.max_prox):
        assert np.isnan(prox(phi, np.array([0.1, 1.0, 100.0]), t)).all()


# Exact zeros and exact structure


def test_zeros_are_exact():
    z = np.array([[1e-3, -1e-3, 2.0, -3.0], [0.1, 0.2, -0.1, 0.0]])
    for phi in (R.L1(0.01), R.ElasticNet(0.01, 1), R.MCP(0.01, 9.0), R.SCAD(0.01),
                R.LogSum(0.01, 1.0), R.TransformedL1(0.01, 1.0)):  # fmt: skip
        zero = np.asarray(prox(phi, z, 1.0)) == 0
        np.testing.assert_array_equal(zero, [[1, 1, 0, 0], [0, 0, 0, 1]])
    assert np.all(np.asarray(R.GroupLasso(0.3).prox(z, 1.0))[1] == 0)
    np.testing.assert_array_equal(R.GroupLasso(0.5).prox(np.array([[0.3, 0.4]]), 1.0), [[0, 0]])
    assert np.all(np.asarray(R.NuclearNorm(9.0).prox(z, 1.0)) == 0)
    assert np.all(np.asarray(R.LInf(9.0).prox(z, 1.0)) == 0)


def test_large_entries_keep_their_value_under_mcp_and_scad():
    z = np.array([5.0, -7.3, 1e6])
    np.testing.assert_array_equal(R.MCP(0.5, 2.0).prox(z, 1.0), z)
    np.testing.assert_array_equal(R.SCAD(0.5).prox(z, 1.0), z)


def test_nuclear_norm_prox_has_low_rank_and_takes_kernels():
    z = np.random.default_rng(0).normal(size=(2, 3, 5))
    s = np.linalg.svd(z.reshape(6, 5), compute_uv=False)
    phi = R.NuclearNorm((s[1] + s[2]) / 2)
    p = np.asarray(phi.prox(z, 1.0))
    assert p.shape == z.shape
    left = np.linalg.svd(p.reshape(6, 5), compute_uv=False)
    np.testing.assert_allclose(left, np.maximum(s - phi.weight, 0), atol=1e-13)
    np.testing.assert_allclose(phi.value(z), phi.weight * s.sum())


def test_constraints_hold_in_single_precision_on_large_models():
    rng = np.random.default_rng(0)
    with jax.enable_x64(False):
        for offset in (0.0, 100.0):  # an offset costs digits: the level is large, the result small
            z = jnp.asarray(offset + rng.normal(size=20000), jnp.float32)
            ball, simplex = prox(R.L1Ball(1.0), z, 1.0), prox(R.Simplex(), z, 1.0)
            assert np.abs(np.asarray(ball, np.float64)).sum() <= 1 + 1e-6
            assert abs(np.asarray(simplex, np.float64).sum() - 1) <= 1e-6
            assert np.min(simplex) >= 0
            norm = np.linalg.norm(np.asarray(prox(R.L2Ball(1.0), z, 1.0), np.float64))
            assert abs(norm - 1) <= 1e-6
        np.testing.assert_allclose(R.Simplex().prox(jnp.full(4, 1e9), 1.0), 0.25)


def test_values_of_constraints_forgive_rounding_and_nothing_more():
    for phi, on, off in [
        (R.Box(0.1, 0.3), [0.1 - 1e-16, 0.3], [0.1 - 1e-9, 0.3]),
        (R.Box(-np.inf, 0.3), [-1e300, 0.3], [0.0, 0.3 + 1e-9]),
        (R.NonNegative(), [0.0, 1.0], [-1e-300, 1.0]),
        (R.L2Ball(5.0), [3.0, 4.0 + 1e-14], [3.0, 4.0 + 1e-9]),
        (R.L1Ball(0.3), [0.1, -0.2], [0.1, -0.2 - 1e-9]),
        (R.Simplex(0.3), [0.1, 0.2], [0.1, 0.2 + 1e-9]),
        (R.Simplex(0.3), [0.3, 0.0], [0.4, -0.1]),
    ]:
        assert phi.value(np.array(on)) == 0
        assert phi.value(np.array(off)) == np.inf
        assert phi.value(np.array([np.nan, 0.1])) == np.inf


# Total variation


@pytest.mark.parametrize("kind", ["noise", "walk", "steps", "ramp", "constant", "zigzag"])
@pytest.mark.parametrize("t", [1e-3, 1.0, 20.0, 1e4])
def test_total_variation_prox_has_a_dual_certificate(kind, t):
    """With u = cumsum(z - p): |u_k| <= bound, u_k = -bound * sign(jump) at jumps, u_last = 0."""
    rng = np.random.default_rng(5)
    z = {
        "noise": rng.normal(size=500),
        "walk": np.cumsum(rng.normal(size=500)),
        "steps": np.repeat(rng.integers(-3, 3, 50), 10) * 1.0,
        "ramp": np.linspace(0, 50, 500),
        "constant": np.full(500, 1.25),
        "zigzag": np.arange(500) % 2 * 1.0,
    }[kind]
    p = np.asarray(prox(R.TotalVariation1D(0.6), z, t))
    bound, u, jump = 0.6 * t, np.cumsum(z - p), np.diff(p)
    jump[np.abs(jump) < 1e-11] = 0
    tolerance = 1e-10 * max(1.0, bound)
    assert np.abs(u[:-1]).max() <= bound + tolerance
    assert abs(u[-1]) <= tolerance
    at_jumps = u[:-1][jump != 0]
    np.testing.assert_allclose(at_jumps, -bound * np.sign(jump[jump != 0]), atol=tolerance)
    if t == 1e4:
        np.testing.assert_allclose(p, z.mean(), atol=1e-10)


@pytest.mark.parametrize("seed", range(20))
def test_total_variation_prox_of_ties(seed):
    """Equal values put knots where the walk ends: every kernel must take the same decision."""
    z = np.repeat(np.random.default_rng(seed).integers(-3, 3, 50), 10) * 1.0
    for t in (1.0, 5.0, 20.0):
        u = np.cumsum(z - np.asarray(prox(R.TotalVariation1D(0.6), z, t)))
        assert np.abs(u).max() <= 0.6 * t * (1 + 1e-10)


@pytest.mark.parametrize("z", [[2.5], [1.0, 1.0], [3.0, -1.0], [0.0, 0.0, 0.0], [1.0, 2.0, 1.0]])
def test_total_variation_of_short_sequences(z):
    z = np.array(z)
    for t in (0.0, 0.1, 1.0, 5.0):
        expected = BY_NAME["total-variation"].prox(z, t) if t > 0 and z.size > 1 else z
        np.testing.assert_allclose(prox(R.TotalVariation1D(0.6), z, t), expected, atol=1e-12)
    assert R.TotalVariation1D(0.6).value(z) == pytest.approx(0.6 * np.abs(np.diff(z)).sum())


def test_total_variation_takes_time_linear_in_the_length():
    """A loop that copies its arrays every turn takes minutes here."""
    z = np.cumsum(np.random.default_rng(0).normal(size=200_000))
    p = np.asarray(prox(R.TotalVariation1D(1.0), z, 1.0))
    np.testing.assert_allclose(p.sum(), z.sum(), rtol=1e-9)


def test_total_variation_under_two_vmaps():
    phi = R.TotalVariation1D(0.6)
    z = np.random.default_rng(0).normal(size=(2, 3, 6))
    t = np.array([0.5, 2.0])
    mapped = jax.jit(jax.vmap(jax.vmap(phi.prox, in_axes=(0, None))))(z, t)
    plain = [[prox(phi, z[i, j], t[i]) for j in range(3)] for i in range(2)]
    np.testing.assert_allclose(mapped, np.array(plain), atol=1e-14)


# 2:4 sparsity


@pytest.mark.parametrize("share", [0.5, 1.5, 2.5, 2.8, 10.0, 100.0])
def test_two_four_prox_is_a_global_minimiser_for_every_t(share):
    """No descent from many random starts ends lower, below and far above 1/rho.

    Half of the groups have nearly equal entries: a descent from 0 misses their minimiser.
    """
    phi = R.TwoFour(0.5, 2.0)
    t = share * phi.max_prox
    rng = np.random.default_rng(1)
    z = rng.uniform(-2, 2, (40, 4))
    z[:20] = np.sign(z[:20]) * rng.uniform(1.96, 2.0, (20, 4))
    p = np.asarray(prox(phi, z, t))

    def cost(w):
        triples = [np.prod(np.delete(w, j, -1), -1) for j in range(4)]
        return 0.5 * t * sum(triples) + ((w - np.abs(z)) ** 2).sum(-1) / 2

    w = rng.uniform(0, 2, (100, 40, 4))
    w *= rng.random((100, 40, 4)) < 0.7
    for _ in range(300):
        for j in rng.permutation(4):
            a, b, c = (w[..., k] for k in range(4) if k != j)
            w[..., j] = np.maximum(np.abs(z)[:, j] - 0.5 * t * (a * b + a * c + b * c), 0)
    assert np.all(cost(np.abs(p)) <= cost(w).min(0) + 1e-9)
    assert np.all(p * z >= 0)


def test_two_four_in_single_precision_keeps_small_entries():
    """The costs of a small third entry and of none differ by less than float32 can tell."""
    rng = np.random.default_rng(0)
    z = np.sort(rng.uniform(0.5, 1.0, (300, 4)))[:, ::-1].copy()
    z[:, 2] = 0.15 * z[:, 0] * z[:, 1] + rng.uniform(1e-5, 3e-4, 300)
    z[:, 3] = 0.0
    expected = BY_NAME["two-four"].prox(z, 0.3)
    assert np.all(expected[:, 2] > 5e-6)
    with jax.enable_x64(False):
        single = prox(R.TwoFour(0.5), z.astype(np.float32), 0.3)
    np.testing.assert_allclose(single, expected, rtol=0, atol=1e-6)


def test_two_four_with_a_large_weight_keeps_the_two_largest():
    z = np.array([0.1, -3.0, 2.0, 0.2, 1.0, 1.0, 1.0, 1.0])
    result = np.asarray(prox(R.TwoFour(1e4), z, 1.0))
    np.testing.assert_array_equal(result[:4], [0, -3, 2, 0])
    assert np.count_nonzero(result[4:]) == 2
    assert R.TwoFour(1.0).value(result) == 0


# Mistakes seen in other implementations


def test_weight_of_the_group_norm_does_not_cancel():
    """Each group's norm falls by exactly t * weight."""
    z = np.array([[3.0, 4.0]])
    for weight in (0.5, 1.0, 2.0):
        for t in (0.1, 1.0):
            norm = np.linalg.norm(R.GroupLasso(weight).prox(z, t))
            assert norm == pytest.approx(5.0 - t * weight, abs=1e-14)


def test_linf_prox_sorts_magnitudes_not_signed_values():
    np.testing.assert_allclose(R.LInf(1.0).prox(np.array([-5.0, 1.0, 2.0]), 1.0), [-4, 1, 2])
    np.testing.assert_allclose(R.LInf(2.0).prox(np.array([-5.0, 4.5, 2.0]), 1.0), [-3.75, 3.75, 2])
    np.testing.assert_allclose(R.L1Ball(1.0).prox(np.array([-5.0, 1.0, 2.0]), 1.0), [-1, 0, 0])


def test_squared_norm_has_the_prox_of_the_squared_norm():
    """It scales every vector by the same factor; the prox of the norm would zero short ones."""
    short, long = np.array([0.03, 0.04]), np.array([30.0, 40.0])
    for z in (short, long):
        np.testing.assert_allclose(R.SquaredL2(0.5).prox(z, 1.0), z / 2)
        assert R.SquaredL2(0.5).value(z) == pytest.approx(0.5 * (z @ z))


def test_total_variation_with_a_bound_lost_in_rounding():
    """No entry moves by more than 2 t weight; both ends of a step are then the same number."""
    z = np.random.default_rng(0).normal(size=(20, 16)).astype(np.float32)
    for t in (1e-12, 1e-7, 1e-6, 1e-5):
        out = jax.jit(R.TotalVariation1D(0.1).prox)(z, np.float32(t))
        np.testing.assert_allclose(out, z, rtol=0, atol=0.2 * t + 1e-4)
