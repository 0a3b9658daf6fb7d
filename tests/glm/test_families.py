"""Derivatives of the losses against differences, and sums of sparse designs against dense ones."""

import numpy as np
import pytest
from scipy import sparse

from compositefl.glm import design
from compositefl.glm.families import FAMILIES, family
from compositefl.glm.survival import Times, partial_likelihood, risk_means

RNG = np.random.default_rng(40)
ETA = np.concatenate([RNG.standard_normal(30), [-40.0, 40.0, -3.0, 3.0]])


def response(name):
    n = len(ETA)
    if name in ("binomial", "multinomial"):
        return RNG.integers(2 if name == "binomial" else 3, size=n).astype(float)
    return RNG.gamma(2.0, size=n) if name == "gamma" else RNG.poisson(2.0, n).astype(float)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "cox"])
def test_derivatives(name):
    made, y = family(name), response(name)
    k = 3 if name == "multinomial" else 1
    eta = np.column_stack([np.roll(ETA, c) for c in range(k)]) if k > 1 else ETA[:, None]
    if name in ("poisson", "gamma"):
        eta = np.clip(eta, -5, 5)
    if made.has_scale:
        eta = np.column_stack([eta, np.full(len(eta), 1.3)])
    here, step = made.derivatives(eta, y), 1e-6
    second = here.second if here.second.ndim == 3 else here.second[:, :, None]
    np.testing.assert_allclose(made.losses(eta, y), here.loss, rtol=1e-14, atol=1e-300)
    for c in range(eta.shape[1]):
        up, down = eta.copy(), eta.copy()
        up[:, c] += step
        down[:, c] -= step
        up, down = made.derivatives(up, y), made.derivatives(down, y)
        size = 1 + np.abs(here.loss)
        assert (np.abs((up.loss - down.loss) / (2 * step) - here.first[:, c]) < 1e-8 * size).all()
        slope = (up.first - down.first) / (2 * step)
        np.testing.assert_allclose(slope, second[:, :, c], atol=1e-7 * (1 + np.abs(second).max()))


def test_derivatives_of_a_partial_likelihood():
    rng = np.random.default_rng(41)
    n = 25
    time = np.sort(rng.integers(1, 9, n)).astype(float)
    times = Times.of(time, rng.random(n) < 0.6)
    weight, eta, z = rng.integers(0, 3, n).astype(float), rng.standard_normal(n), np.eye(n)
    here = partial_likelihood(times, eta, weight)
    deaths, means = risk_means(times, here, z)
    hessian = np.diag(here.curvature) - means.T @ np.diag(deaths) @ means
    for i in range(n):
        up, down = eta + 1e-6 * z[i], eta - 1e-6 * z[i]
        up, down = partial_likelihood(times, up, weight), partial_likelihood(times, down, weight)
        assert (up.loss - down.loss) / 2e-6 == pytest.approx(here.first[i], abs=1e-7)
        np.testing.assert_allclose((up.first - down.first) / 2e-6, hessian[i], atol=1e-7)


@pytest.mark.parametrize("share", [0.02, 0.15])
@pytest.mark.parametrize("keep", [True, False])
def test_designs_agree(share, keep, monkeypatch):
    """Dense; sparse with the products of rows' entries kept; sparse without."""
    if not keep:
        monkeypatch.setattr(design, "PAIRS", 0)
    rng = np.random.default_rng(42)
    x = np.where(rng.random((150, 40)) < share, 1 + rng.standard_normal((150, 40)), 0.0)
    x[3] = 0.0  # a row without entries
    mean, scale = x.mean(axis=0), x.std(axis=0) * (np.arange(40) != 7)
    z = (x - mean) / np.where(scale > 0, scale, 1.0) * (scale > 0)
    weights, columns = rng.standard_normal((3, 150)), np.array([0, 4, 5, 7, 30, 39])
    chosen = np.column_stack([np.ones(150), z[:, columns]])
    b, r = rng.standard_normal((40, 2)), rng.standard_normal((150, 2))
    for form in (x, sparse.csr_matrix(x), sparse.csr_array(x)):
        made = design.standardised(form, mean, scale)
        np.testing.assert_allclose(made.dot(b), z @ b, atol=1e-12)
        np.testing.assert_allclose(made.transposed_dot(r), z.T @ r, atol=1e-12)
        np.testing.assert_allclose(made.columns(columns), z[:, columns], atol=1e-12)
        rows = np.array([1, 5, 99])
        np.testing.assert_allclose(made.take(rows).dot(b), z[rows] @ b, atol=1e-12)
        for gram, w in zip(made.grams(weights, columns), weights, strict=True):
            np.testing.assert_allclose(gram, chosen.T @ np.diag(w) @ chosen, atol=1e-10)
