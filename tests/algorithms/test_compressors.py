"""What a compressor keeps, what it costs, and how it is written as text."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms import (
    EControlDA,
    Identity,
    RandomK,
    TopK,
)
from compositefl.algorithms.compressors import parse
from compositefl.core.vector import Vector


@pytest.mark.parametrize("compressor", [TopK(5), TopK(0.2), RandomK(5), RandomK(0.2)], ids=repr)
def test_compressors_keep_k_entries_and_contract(compressor):
    rng = np.random.default_rng(0)
    tree = {"a": rng.normal(size=(4, 5)).astype(np.float32), "b": rng.normal(size=5) * 100}
    v = Vector({name: jnp.asarray(leaf, jnp.float32) for name, leaf in tree.items()})
    keys = jax.random.split(jax.random.key(0), 2000)
    out = jax.vmap(lambda key: compressor(v, key))(keys).tree
    flat = np.concatenate([np.asarray(out[n]).reshape(2000, -1) for n in "ab"], axis=1)
    whole = np.concatenate([np.asarray(v.tree[n]).ravel() for n in "ab"])
    assert (np.sum(flat != 0, axis=1) == 5).all()
    assert np.all((flat == 0) | (flat == whole))
    assert compressor.delta(25) == 0.2
    lost = np.sum((flat - whole) ** 2, axis=1) / np.sum(whole**2)
    if isinstance(compressor, TopK):
        assert lost.max() <= 0.8
        assert np.all(flat[:, 20:] == whole[20:])  # the five large ones, all in one leaf
    else:
        np.testing.assert_allclose(lost.mean(), 0.8, rtol=0.02)
        np.testing.assert_allclose((flat != 0).mean(axis=0), 0.2, atol=0.04)
    assert compressor.message_bytes(v) == 5 * (4 + 4)


def test_compressors_from_text():
    assert parse("top-k:0.1") == TopK(0.1) and parse("top-k:1.0") == TopK(1.0)
    assert parse("random-k:20") == RandomK(20) and parse("identity") == Identity()
    for text, message in {
        "topk:3": "did you mean 'top-k'",
        "top-k": "must be top-k:k with a number",
        "random-k:x": "must be random-k:k with a number",
        "identity:2": "without a number",
        "top-k:1.5": "must be a share",
        "top-k:0": "must be a share",
    }.items():
        with pytest.raises(cfl.CompositeFLError, match=message):
            EControlDA(lr=0.1, compressor=text)
