"""Errors carry the parameter and its value, for whoever words them anew."""

import pickle

import numpy as np
import pytest

import compositefl as cfl
from compositefl.solve.options import Options

CASES = [
    (lambda: cfl.FedNMap(local_steps=0, local_lr=0.1), "local_steps", 0),
    (lambda: cfl.FedNMap(local_steps=1, local_lr="fast"), "local_lr", "fast"),
    (lambda: cfl.PGD(lr=-1.0), "lr", -1.0),
    (lambda: cfl.L1(-0.5), "weight", -0.5),
    (lambda: Options(rounds=2.5), "rounds", 2.5),
    (lambda: Options(rounds=1, weights="equal"), "weights", "equal"),
    (lambda: Options(rounds=1, dtype=None), "dtype", None),
    (lambda: Options(rounds=1, dropout=1.0), "dropout", 1.0),
    (lambda: Options(rounds=1, participation=1.5).client_count(3), "participation", 1.5),
    (lambda: cfl.data.load("minst"), "dataset", "minst"),
]


@pytest.mark.parametrize("call, parameter, value", CASES, ids=[c[1] for c in CASES])
def test_fields(call, parameter, value):
    with pytest.raises(cfl.CompositeFLError) as error:
        call()
    assert (error.value.parameter, error.value.value) == (parameter, value)
    again = pickle.loads(pickle.dumps(error.value))  # errors cross processes
    assert str(again) == str(error.value) and again.parameter == parameter


def test_an_error_about_no_single_parameter_has_no_fields():
    with pytest.raises(cfl.CompositeFLError) as error:
        cfl.Problem(lambda w, b: b @ w, np.zeros(2), [])
    assert error.value.parameter is None and error.value.value is None
