"""Which clients take part: uniform over all subsets, at a cost that knows only who takes part."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chisquare

from compositefl.engine.sampling import FEW, participants, permuted

LEAST = 1e-4  # a p-value below this is no accident


@pytest.fixture(scope="module")
def keys():
    return jax.random.split(jax.random.key(3), 20_000)


@pytest.mark.parametrize("clients, count", [(5, 2), (7, 3), (9, 4)])
@pytest.mark.parametrize("draw", ["participants", "permuted"])
def test_every_subset_is_as_likely(keys, draw, clients, count):
    def who(key):
        if draw == "participants":
            return participants(key, clients, count, False)[0]
        return permuted(key, clients, jnp.arange(count))

    drawn = np.sort(np.asarray(jax.jit(jax.vmap(who))(keys)), axis=1)
    number = {subset: i for i, subset in enumerate(itertools.combinations(range(clients), count))}
    counts = np.bincount([number[tuple(row)] for row in drawn.tolist()], minlength=len(number))
    assert chisquare(counts).pvalue > LEAST


def test_clients_and_pairs_of_many_are_as_likely(keys):
    clients, count = FEW + 6, 12
    drawn = np.asarray(jax.jit(jax.vmap(lambda k: participants(k, clients, count, False)[0]))(keys))
    assert drawn.min() == 0 and drawn.max() == clients - 1
    mask = np.zeros((len(drawn), clients))
    np.put_along_axis(mask, drawn, 1, axis=1)
    assert (mask.sum(axis=1) == count).all()  # no client twice
    # Clients of one draw exclude each other, which makes the statistic smaller by this factor.
    exclusion = 1 - (count - 1) / (clients - 1)
    assert chisquare(mask.sum(axis=0)).pvalue > LEAST
    both = (mask.T @ mask)[np.triu_indices(clients, 1)]
    assert 0.8 * exclusion < np.var(both) / np.mean(both) < 1.2


@pytest.mark.parametrize("size", [2, 65, 100, 1000])
def test_a_permutation(size):
    places = permuted(jax.random.key(5), size, jnp.arange(size))
    np.testing.assert_array_equal(np.sort(places), np.arange(size))


def test_drawn_again_counts_at_its_first_place():
    who, times = participants(jax.random.key(1), 6, 9, True)
    who, times = np.asarray(who), np.asarray(times)
    assert times.sum() == 9 and times.max() > 1
    again = jax.random.randint(jax.random.key(1), (9,), 0, 6, jnp.int32)
    np.testing.assert_array_equal(
        np.bincount(who, times, minlength=6), np.bincount(again, minlength=6)
    )
    assert len(set(who[times > 0])) == np.sum(times > 0)
