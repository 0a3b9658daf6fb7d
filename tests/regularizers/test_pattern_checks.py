"""ByName refuses patterns that do nothing, and sets the numbers of its parts by name."""

import numpy as np
import pytest

import compositefl as cfl
import compositefl.regularizers as R
from compositefl.core.errors import CompositeFLError

PARAMS = {"kernel": np.zeros((2, 3)), "bias": np.zeros(3)}


def test_a_pattern_that_matches_nothing_is_refused(network_problem):
    phi = R.ByName({"*intercept": R.Zero(), "*": R.L1(0.1)})
    message = r"pattern '\*intercept' matches no parameter; there are 'bias', 'kernel'"
    with pytest.raises(CompositeFLError, match=message):
        phi.check_tree(PARAMS)
    algorithm = cfl.FedNMap(gamma=0.5, local_steps=3, local_lr=0.05)
    grid = {"local_lr": [0.1]}
    for call in (
        lambda: cfl.minimize(network_problem, phi, algorithm, rounds=1),
        lambda: cfl.sweep(network_problem, phi, algorithm, grid, rounds=1),
        lambda: cfl.path(network_problem, phi, algorithm, 3, rounds=1),
        lambda: cfl.theory.estimate(network_problem, phi),
    ):
        with pytest.raises(CompositeFLError, match=r"'\*intercept' matches no .* 'hidden/bias'"):
            call()


def test_a_catch_all_may_remain_without_parameters():
    R.ByName({"bias": R.Zero(), "kernel": R.L1(0.1), "*": R.L1(1.0)}).check_tree(PARAMS)


def test_a_pattern_behind_one_that_takes_all_its_leaves_is_refused():
    with pytest.raises(CompositeFLError, match=r"'\*bias' matches was taken by '\*' before it"):
        R.ByName({"*": R.L1(0.1), "*bias": R.Zero()}).check_tree(PARAMS)
    R.ByName({"b*": R.Zero(), "*bias": R.Zero(), "*": R.L1(0.1)}).check_tree(PARAMS)  # no matter


def test_fields_of_parts():
    phi = R.ByName({"bias": R.Zero(), "a.b*": R.MCP(0.1, 2.0), "*": R.L1(0.3)})
    every = phi.with_fields({"weight": 0.5})
    assert list(every.rules) == list(phi.rules)
    assert every.rules["a.b*"] == R.MCP(0.5, 2.0) and every.rules["*"] == R.L1(0.5)
    one = phi.with_fields({"a.b*.weight": 0.5, "*.weight": 0.7, "theta": 3.0})
    assert one.rules["a.b*"] == R.MCP(0.5, 3.0) and one.rules["*"] == R.L1(0.7)
    nested = R.ByName({"x": phi, "*": R.Zero()}).with_fields({"x.*.weight": 0.9})
    assert nested.rules["x"].rules["*"] == R.L1(0.9)
    for name in ("wieght", "kernel.weight", "bias.weight"):
        with pytest.raises(CompositeFLError, match=r"has no|no part has the field"):
            phi.with_fields({name: 1.0})


def test_a_number_multiplies_weights_of_entries():
    phi = R.L1(np.array([1.0, 0.5, 0.0])).with_fields({"weight": 0.2})
    np.testing.assert_allclose(phi.weight, [0.2, 0.1, 0.0])
    tree = R.L1({"a": 1.0, "b": 0.0}).with_fields({"weight": 0.2})
    assert tree.weight == {"a": 0.2, "b": 0.0}
    np.testing.assert_array_equal(R.L1(0.3).with_fields({"weight": np.ones(2)}).weight, [1, 1])
