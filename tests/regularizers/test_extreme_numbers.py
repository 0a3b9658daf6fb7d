"""Projections and group penalties of numbers whose squares or sums leave float32."""

import numpy as np
import pytest

import compositefl.regularizers as R

SIZES = [1e-25, 1e10, 1e19, 1e25, 3e38]


def single(*numbers):
    return np.array(numbers, np.float32)


def share(phi, z, size):
    """prox_1(z) / size, flat, divided in float64."""
    return np.asarray(phi.prox(z, 1.0), float).ravel() / size


def project_exactly(z, radius):
    """The projection on the l1 ball by a sort, in float64."""
    u = np.sort(np.abs(z.astype(float)))[::-1]
    level = (np.cumsum(u) - radius) / np.arange(1, len(u) + 1)
    h = max(0.0, level[np.flatnonzero(u > level)[-1]])
    return np.sign(z) * np.maximum(np.abs(z.astype(float)) - h, 0)


def test_one_huge_entry_takes_the_whole_budget():
    z = single(1e30, 1, -1)
    np.testing.assert_array_equal(R.L1Ball(1.7).prox(z, 1.0), single(1.7, 0, 0))
    np.testing.assert_array_equal(R.Simplex(1.7).prox(z, 1.0), single(1.7, 0, 0))
    np.testing.assert_array_equal(R.LInf(1.7).prox(z, 1.0), z)
    assert not np.signbit(R.L1Ball(1.7).prox(z, 1.0)).any()


@pytest.mark.parametrize("radius", [1.7, 100.0, 1e4])
def test_large_numbers_keep_the_digits_of_the_projection(radius):
    z = (np.random.default_rng(0).normal(size=2000) * 1e4).astype(np.float32)
    exact = project_exactly(z, radius)
    np.testing.assert_allclose(R.L1Ball(radius).prox(z, 1.0), exact, rtol=0, atol=1e-6 * radius)
    simplex = project_exactly(np.maximum(z, 0), radius)
    np.testing.assert_allclose(R.Simplex(radius).prox(z, 1.0), simplex, rtol=0, atol=1e-6 * radius)
    np.testing.assert_allclose(R.LInf(radius).prox(z, 1.0), z - exact, rtol=2e-7, atol=0)


@pytest.mark.parametrize("size", SIZES)
def test_norms_do_not_overflow_or_vanish(size):
    z = single(0.8 * size, -0.6 * size, 0)  # of norm size
    unit = single(0.8, -0.6, 0)
    close = dict(rtol=1e-5)
    np.testing.assert_allclose(share(R.L2Ball(size / 4), z, size), unit / 4, **close)
    np.testing.assert_array_equal(R.L2Ball(size * 1.1).prox(z, 1.0), z)
    if size > 1:
        np.testing.assert_allclose(R.L2Ball(1.0).prox(z, 1.0), unit, **close)
        assert R.L2Ball(1.0).value(z) == np.inf
    for phi in (R.GroupLasso(size / 4), R.GroupLasso(size / 4, "channels")):
        matrix = z[None] if phi.groups == "rows" else z[:, None]
        np.testing.assert_allclose(share(phi, matrix, size), 0.75 * unit, **close)
    ids = R.GroupLasso(size / 4, [0, 0, 1])
    np.testing.assert_allclose(share(ids, z, size), 0.75 * unit, **close)
    np.testing.assert_allclose(R.GroupLasso(1.0, [0, 0, 1]).value(z), size, **close)
    sparse = R.SparseGroupLasso(0.0, size / 4)
    np.testing.assert_allclose(share(sparse, z[None], size), 0.75 * unit, **close)
    if size < 1e38:
        assert not np.any(R.GroupLasso(1.1 * size).prox(z[None], 1.0))


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize(
    "phi",
    [R.MCP(0.4, 2.0), R.SCAD(0.4), R.LogSum(0.4, 0.9), R.TransformedL1(0.4, 0.9)],
    ids=lambda phi: type(phi).__name__,
)
def test_folded_concave_penalties_leave_huge_entries(phi, size):
    z = single(size, -size, 0)
    np.testing.assert_array_equal(phi.prox(z, 0.1), z)


@pytest.mark.parametrize("size", SIZES)
def test_sums_do_not_overflow(size):
    many = np.full(100, size, np.float32)
    if size > 1:
        np.testing.assert_allclose(R.L1Ball(2.0).prox(many, 1.0), 0.02, rtol=1e-5)
        np.testing.assert_array_equal(R.LInf(1.0).prox(many, 1.0), many)
    np.testing.assert_allclose(R.Simplex(2.0).prox(many, 1.0), 0.02, rtol=1e-5)
    ends = R.Simplex(2.0).prox(single(size, -size, -size), 1.0)
    if size > 1:
        np.testing.assert_array_equal(ends, single(2, 0, 0))
    assert np.isfinite(ends).all()


def test_two_four_compares_groups_whose_products_overflow():
    z = single(1e38, -1e38, 1, 0.5, 3e38, 0, 0, 1)
    pairs = single(1e38, -1e38, 0, 0, 3e38, 0, 0, 1)  # a third entry costs 1e74
    np.testing.assert_array_equal(R.TwoFour(0.1).prox(z, 0.1), pairs)
    np.testing.assert_array_equal(R.TwoFour(1e30).prox(z, 1e8), pairs)
    np.testing.assert_array_equal(R.TwoFour(0.1).prox(z, 0.0), z)
