"""Partitions: every sample once, no client empty, and the shape each one promises."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compositefl import data, partition
from compositefl.core.errors import CompositeFLError


def make(count, classes=10, seed=0):
    y = np.random.default_rng(seed).integers(0, classes, count).astype(np.int32)
    return data.Samples(np.arange(count, dtype=np.float32)[:, None], y)


CALLS = {
    "iid": lambda d, n, a, s: partition.iid(d, n, s),
    "label": lambda d, n, a, s: partition.by_label(d, n),
    "dirichlet": lambda d, n, a, s: partition.dirichlet(d, n, a, s),
    "mixed": lambda d, n, a, s: partition.mixed(d, n, s),
    "quantity": lambda d, n, a, s: partition.quantity(d, n, a, s),
}


@pytest.mark.parametrize("name", CALLS)
@settings(max_examples=60, deadline=None)
@given(
    clients=st.integers(1, 40),
    extra=st.integers(0, 200),
    classes=st.integers(1, 12),
    alpha=st.floats(-12, 12).map(lambda power: 10.0**power),
    seed=st.integers(0, 2**32),
)
def test_every_sample_once_no_client_empty_and_reproducible(
    name, clients, extra, classes, alpha, seed
):
    samples = make(clients + extra, classes, seed)
    parts = CALLS[name](samples, clients, alpha, seed)
    assert len(parts) == clients and parts.sizes.min() >= 1
    together = np.concatenate([parts[i].x[:, 0] for i in range(clients)])
    np.testing.assert_array_equal(np.sort(together), samples.x[:, 0])
    for i in (0, clients - 1):
        np.testing.assert_array_equal(parts[i].y, samples.y[parts[i].x[:, 0].astype(int)])
    again = CALLS[name](samples, clients, alpha, seed)
    for one, two in zip(parts.indices, again.indices, strict=True):
        np.testing.assert_array_equal(one, two)


@settings(max_examples=60, deadline=None)
@given(clients=st.integers(1, 20), minimum=st.integers(1, 10), extra=st.integers(0, 50))
def test_dirichlet_keeps_the_minimum(clients, minimum, extra):
    parts = partition.dirichlet(make(clients * minimum + extra), clients, 1e-3, 1, minimum)
    assert parts.sizes.min() >= minimum and parts.sizes.sum() == clients * minimum + extra


@pytest.mark.parametrize("alpha", [1e-300, 1e-3, 1e300, 1.7e308])
def test_dirichlet_with_extreme_alpha_and_many_clients_is_fast(alpha):
    start = time.perf_counter()
    parts = partition.dirichlet(make(20000), 5000, alpha)
    assert time.perf_counter() - start < 5
    assert parts.sizes.min() >= 1 and parts.sizes.sum() == 20000


def test_dirichlet_repair_takes_from_the_largest_only():
    # one class and tiny alpha: one client has everything before the repair
    parts = partition.dirichlet(make(100, classes=1), 5, 1e-6, min_samples=3)
    assert sorted(parts.sizes) == [3, 3, 3, 3, 88]


def test_dirichlet_alpha_sets_the_heterogeneity():
    samples = make(10000)

    def largest_share(alpha):
        parts = partition.dirichlet(samples, 10, alpha, seed=4)
        return np.mean([np.bincount(p.y, minlength=10).max() / len(p.y) for p in parts])

    assert largest_share(1e6) < 0.13
    assert 0.2 < largest_share(1.0) < 0.6
    assert largest_share(0.01) > 0.7


def test_dirichlet_proportions_are_those_of_the_distribution():
    # the share of one client of two follows Beta(2, 2): mean 1/2, variance 1/20
    samples = make(2000, classes=1)
    shares = [partition.dirichlet(samples, 2, 2.0, seed).sizes[0] / 2000 for seed in range(400)]
    assert abs(np.mean(shares) - 0.5) < 0.05
    assert abs(np.var(shares) - 0.05) < 0.01


def test_iid_and_by_label_sizes_differ_by_at_most_one():
    for parts in (partition.iid(make(103), 10), partition.by_label(make(103), 10)):
        assert set(parts.sizes) == {10, 11}


def test_iid_depends_on_the_seed():
    samples = make(100)
    one, two = (np.concatenate(partition.iid(samples, 4, seed).indices) for seed in (0, 1))
    assert not np.array_equal(one, two) and not np.array_equal(one, np.arange(100))


def test_by_label_is_sorted_and_stable():
    samples = data.Samples(np.arange(6)[:, None], np.array([2, 0, 1, 0, 2, 1]))
    parts = partition.by_label(samples, 4)
    assert [part.tolist() for part in parts.indices] == [[1, 3], [2, 5], [0], [4]]


def test_mixed_is_half_even_half_by_label():
    y = np.repeat(np.arange(10), 100)
    parts = partition.mixed(data.Samples(np.zeros((1000, 1)), y), 10, seed=2)
    table = np.array([np.bincount(part.y, minlength=10) for part in parts])
    # an even share of 50, about 45 of it from other classes, and about 50 of the client's class
    foreign = table.sum(1) - np.diag(table)
    assert foreign.max() <= 50 and foreign.min() > 35
    assert np.diag(table).min() > 40


def test_mixed_numbers_classes_by_rank_modulo_clients():
    y = np.tile([-1, 1, 7], 200)
    parts = partition.mixed(data.Samples(np.zeros((600, 1)), y), 2)
    counts = [dict(zip(*np.unique(part.y, return_counts=True), strict=True)) for part in parts]
    # classes -1, 1, 7 are 0, 1, 2: the first and the third go to client 0
    assert counts[0][-1] > counts[1][-1] and counts[0][7] > counts[1][7]
    assert counts[1][1] > counts[0][1]


def test_quantity_has_unequal_sizes_and_alike_labels():
    parts = partition.quantity(make(20000), 10, 0.5, seed=1)
    assert parts.sizes.max() > 5 * parts.sizes.min()
    largest = parts[int(np.argmax(parts.sizes))]
    assert np.abs(np.bincount(largest.y) / len(largest.y) - 0.1).max() < 0.03


def test_synthetic_keeps_clients_apart():
    parts = partition.synthetic(
        1, 1, clients=4, samples_per_client=9, features=3, classes=2, seed=8
    )
    assert parts.sizes.tolist() == [9] * 4
    expected = data.load("synthetic", clients=4, samples=9, features=3, classes=2, seed=8).train
    np.testing.assert_array_equal(parts[2].x, expected.x[18:27])
    assert np.std(partition.synthetic(samples_per_client="lognormal").sizes) > 0


def test_labels_come_from_the_data_or_the_argument():
    x, y = np.zeros((6, 2)), np.array([1, 0, 1, 0, 1, 0])
    expected = [[1, 3, 5], [0, 2, 4]]
    for batch, labels in (
        ((x, y), None),
        ({"x": x, "y": y}, None),
        (data.Samples(x, y), None),
        ((x, y.astype(np.float32)), None),
        (x, y),
        (x, np.array(["b", "a"] * 3)),
    ):
        parts = partition.by_label(batch, 2, labels=labels)
        assert [part.tolist() for part in parts.indices] == expected


@pytest.mark.parametrize(
    "batch", [np.zeros((6, 2)), (np.zeros((6, 2)), np.full(6, 0.5)), (np.zeros(6),)]
)
def test_partitions_by_class_need_classes_and_others_do_not(batch):
    with pytest.raises(CompositeFLError, match="needs class labels"):
        partition.dirichlet(batch, 2, 1.0)
    parts = partition.iid(batch, 2)
    assert parts.labels is None and "y=" not in parts.summary()


def test_labels_of_the_wrong_length_are_refused():
    with pytest.raises(CompositeFLError, match=r"6 of them, got shape \(5,\)"):
        partition.by_label(np.zeros((6, 2)), 2, labels=np.zeros(5, int))


@pytest.mark.parametrize("name", CALLS)
def test_more_clients_than_samples(name):
    with pytest.raises(CompositeFLError, match="11 clients cannot share 10 samples"):
        CALLS[name](make(10), 11, 1.0, 0)


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("clients", [0, -1, 2.5, "3", None, True, float("nan"), np.float64(1.5)])
def test_clients_must_be_a_whole_number(name, clients):
    with pytest.raises(CompositeFLError, match=r"clients=.* must be a whole number >= 1"):
        CALLS[name](make(10), clients, 1.0, 0)


def test_clients_may_be_a_numpy_integer():
    assert len(partition.iid(make(10), np.int64(3))) == 3


@pytest.mark.parametrize("alpha", [0, -1.0, float("nan"), float("inf"), "1", None, np.float32(0)])
@pytest.mark.parametrize("function", [partition.dirichlet, partition.quantity])
def test_alpha_must_be_positive(function, alpha):
    with pytest.raises(CompositeFLError, match=r"alpha=.* must be a finite number > 0"):
        function(make(10), 2, alpha)


def test_min_samples_beyond_the_data():
    with pytest.raises(CompositeFLError, match="need 12 samples, the data has 10"):
        partition.dirichlet(make(10), 4, 1.0, min_samples=3)
    with pytest.raises(CompositeFLError, match="min_samples=0"):
        partition.dirichlet(make(10), 4, 1.0, min_samples=0)


def test_from_indices():
    parts = partition.from_indices(make(6), [[5, 0], [2]])
    assert parts[0].x[:, 0].tolist() == [5, 0] and parts.sizes.tolist() == [2, 1]
    assert parts[-1].x[:, 0].tolist() == [2]
    with pytest.raises(IndexError):
        parts[2]


@pytest.mark.parametrize(
    ("indices", "message"),
    [
        ([], "at least one client"),
        ([[0], []], "client 1 needs a non-empty list"),
        ([[0.5]], "client 0 needs a non-empty list"),
        ([[0], [6]], "client 1 has indices 6 to 6, outside the 6 samples"),
        ([[-1]], "outside the 6 samples"),
        ([[0, 1], [1]], "client 1 has a sample that is assigned already"),
        ([[2, 2]], "client 0 has a sample that is assigned already"),
    ],
)
def test_from_indices_refuses(indices, message):
    with pytest.raises(CompositeFLError, match=message):
        partition.from_indices(make(6), indices)


def test_from_lists():
    parts = partition.from_lists([make(3), make(5, seed=1)])
    assert parts.sizes.tolist() == [3, 5]
    np.testing.assert_array_equal(parts[1].y, make(5, seed=1).y)
    with pytest.raises(CompositeFLError, match="client 1 has structure"):
        partition.from_lists([make(3), {"x": np.zeros(3)}])
    with pytest.raises(CompositeFLError, match="client 1 needs a non-empty list"):
        partition.from_lists([make(3), make(0)])
    with pytest.raises(CompositeFLError, match="at least one client"):
        partition.from_lists([])


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ((np.zeros((2, 4)), np.zeros(2)), r"samples 0 of shape \(4,\), client 0 has \(3,\)"),
        ((np.zeros((2, 3)), np.zeros((2, 1))), r"samples 1 of shape \(1,\), client 0 has \(\)"),
        ((np.zeros((2, 3, 1)), np.zeros(2)), r"samples 0 of shape \(3, 1\), client 0 has \(3,\)"),
    ],
)
def test_clients_with_other_features_are_named(wrong, text):
    good = np.zeros((5, 3)), np.zeros(5)
    with pytest.raises(CompositeFLError, match=f"client 2 has {text}; all must have the same"):
        partition.from_lists([good, good, wrong])
    with pytest.raises(CompositeFLError, match="client 1 has samples x of shape"):
        partition.from_lists([data.Samples(*good), data.Samples(wrong[0][:, :2], wrong[1])])
    with pytest.raises(CompositeFLError, match=r"client 1 has samples of shape \(2,\), client 0"):
        partition.from_lists([np.zeros((5, 3)), np.zeros((5, 2))])


def test_slices_are_partitions_of_the_chosen_clients():
    parts = partition.iid(make(20), 5)
    some = parts[1:3]
    assert isinstance(some, partition.Partition) and len(some) == 2
    np.testing.assert_array_equal(some[1].x, parts[2].x)


def test_summary_is_a_compact_table():
    samples = data.Samples(np.zeros((6, 1)), np.array([0, 0, 0, 1, 1, 1]))
    assert repr(partition.by_label(samples, 2)) == (
        "Partition: 2 clients, 6 samples (3 to 3 a client)\n"
        "client  samples  y=0  y=1\n"
        "     0        3    3    0\n"
        "     1        3    0    3"
    )
    many = partition.iid(make(1000), 100).summary(rows=5).splitlines()
    assert [line.split()[0] for line in many[2:]] == ["0", "1", "2", "...", "98", "99"]
    wide = partition.iid(make(1000, classes=50), 2).summary().splitlines()
    assert wide[1].split() == ["client", "samples", "labels"]
    assert len(max(wide, key=len)) < 80


def test_the_table_of_names():
    assert set(partition.PARTITIONS) == {*CALLS, "synthetic"}
    samples = make(50)
    for name, (function, text) in partition.PARTITIONS.items():
        assert text
        if name != "synthetic":
            wanted = CALLS[name](samples, 5, 0.7, 0)
            given_alpha = (0.7,) if name in ("dirichlet", "quantity") else ()
            got = function(samples, 5, *given_alpha)
            np.testing.assert_array_equal(got.sizes, wanted.sizes)
