"""synthetic(alpha, beta): the distributions, sizes and labels it promises."""

import numpy as np
import pytest

import compositefl.data as data
from compositefl.core.errors import CompositeFLError
from compositefl.data.synthetic import generate


def client_means(**options):
    return np.array([part.x.mean(0) for part in generate(**options)])


def test_defaults_are_those_of_the_paper_and_deterministic():
    one, two = generate(), generate()
    assert len(one) == 30 and one[0].x.shape == (100, 60)
    assert one[0].x.dtype == np.float32 and one[0].y.dtype == np.int32
    np.testing.assert_array_equal(one[7].x, two[7].x)
    assert not np.array_equal(one[7].x, generate(seed=1)[7].x)
    assert {int(label) for part in one for label in part.y} == set(range(10))


def test_covariance_is_j_to_the_minus_1_2():
    (part,) = generate(clients=1, samples=20000, features=8)
    np.testing.assert_allclose(part.x.var(0), np.arange(1, 9) ** -1.2, rtol=0.05)
    correlation = np.corrcoef(part.x.T) - np.eye(8)
    assert np.abs(correlation).max() < 0.05


def test_beta_is_the_spread_of_the_clients_inputs():
    shared = client_means(beta=50, clients=300, features=5)
    # B_k shifts all features alike, by a standard deviation of beta
    np.testing.assert_allclose(shared.mean(1).std(), 50, rtol=0.15)
    assert shared.std(1).max() < 5
    apart = client_means(beta=50, clients=300, features=5, shared_means=False)
    np.testing.assert_allclose(apart.std(0), 50, rtol=0.2)
    assert np.abs(np.corrcoef(apart.T) - np.eye(5)).max() < 0.25


def test_alpha_changes_labels_only_without_shared_means():
    def labels(alpha, shared_means):
        parts = generate(alpha, 1, clients=5, features=20, seed=3, shared_means=shared_means)
        return np.concatenate([part.y for part in parts])

    np.testing.assert_array_equal(labels(0, True), labels(50, True))
    assert np.mean(labels(0, False) != labels(50, False)) > 0.2


def test_labels_come_from_a_linear_map_of_the_features():
    from sklearn.linear_model import LogisticRegression

    (part,) = generate(0, 0, clients=1, samples=2000, features=5, classes=2, seed=2)
    assert 0.05 < part.y.mean() < 0.95
    assert LogisticRegression(C=1e6, max_iter=1000).fit(part.x, part.y).score(part.x, part.y) > 0.99


def test_lognormal_sizes():
    sizes = np.array(
        [len(part.y) for part in generate(clients=200, samples="lognormal", features=2)]
    )
    assert sizes.min() >= 50
    assert 90 < np.median(sizes) < 120  # 50 + exp(4) = 104.6
    assert sizes.max() > 1000


def test_normalize_gives_unit_norms_and_keeps_the_labels():
    plain = generate(50, 50, clients=4, features=20, classes=2)
    unit = generate(50, 50, clients=4, features=20, classes=2, normalize=True)
    for a, b in zip(plain, unit, strict=True):
        norms = np.linalg.norm(a.x, axis=1, keepdims=True)
        np.testing.assert_allclose(b.x, a.x / norms, rtol=1e-5)
        np.testing.assert_array_equal(a.y, b.y)


def test_load_concatenates_the_clients():
    loaded = data.load("synthetic", clients=3, samples=7, features=4, classes=2, seed=5)
    parts = generate(clients=3, samples=7, features=4, classes=2, seed=5)
    np.testing.assert_array_equal(loaded.train.x, np.concatenate([part.x for part in parts]))
    np.testing.assert_array_equal(loaded.train.y, np.concatenate([part.y for part in parts]))
    assert loaded.test is None and loaded.classes == 2
    assert "no test set" in repr(loaded)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1}, "alpha=-1"),
        ({"beta": float("nan")}, "beta=nan"),
        ({"clients": 0}, "clients=0"),
        ({"samples": 0}, "samples=0"),
        ({"samples": "many"}, "'lognormal'"),
        ({"features": 1.5}, "features=1.5"),
        ({"classes": 1}, "classes=1"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(CompositeFLError, match=message):
        generate(**options)
