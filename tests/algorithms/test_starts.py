"""Methods that start before a prox can be given the model to start at."""

import jax
import numpy as np
import pytest

import compositefl as cfl
from compositefl.algorithms import STEM, VRLSGD, NormSGD
from compositefl.core.component import replace
from compositefl.core.vector import Vector

STEPS = dict(local_steps=3, local_lr=0.2)
METHODS = (
    cfl.FedNMap(gamma=1.7, **STEPS),
    cfl.ZA1(**STEPS),
    cfl.FedCanon(**STEPS),
    cfl.FedDA(**STEPS),
    VRLSGD(composite="server-prox", **STEPS),
    STEM(composite="server-prox", gradient_weight=0.5, **STEPS),
    NormSGD(lr=0.5, gamma=0.9),
)
PENALTIES = (cfl.L1(0.3), cfl.ElasticNet(0.3, 0.1), cfl.SquaredL2(0.2), cfl.MCP(0.3, 4.0))


@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: type(p).__name__)
def test_the_first_model_is_the_one_asked_for(penalty):
    x0 = {"a": np.array([0.8, -0.05, 0.0, -2.0]), "b": np.array([[1.5, 0.0]])}  # zeros stay zeros
    for method in METHODS:
        if isinstance(method, cfl.FedDA) and not penalty.convex:
            continue
        here = replace(method, regularizer=penalty)
        first = here.model(here.init_server(here.start_at(Vector(x0)))).tree
        for made, wanted in zip(jax.tree.leaves(first), jax.tree.leaves(x0), strict=True):
            np.testing.assert_allclose(made, wanted, atol=3e-7, err_msg=repr(here))
            np.testing.assert_array_equal(np.asarray(made) == 0, wanted == 0)
