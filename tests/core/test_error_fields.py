"""Errors carry the parameter and its value, for whoever words them anew."""

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest

import compositefl as cfl
from compositefl.core.errors import REMEDIES, UnknownName
from compositefl.linear_model import ElasticNetCV, LogisticRegression
from compositefl.solve.options import Options
from tests.problems import lasso

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
    (lambda: cfl.FedPD(local_steps=1, local_lr=0.1, eta=0.1, skip=2.0), "skip", 2.0),
    (lambda: cfl.FedAvg(composite="both").check(), "composite", "both"),
    (lambda: cfl.MCP(0.1, 2.0).check_prox("gamma", 3.0), "gamma", 3.0),
    (lambda: cfl.configure(exchange="fast"), "exchange", "fast"),
    (lambda: cfl.theory.Constants(L=1.0, clients=2, subgradient=-1.0), "subgradient", -1.0),
    (lambda: cfl.models.mlp((3,)), "widths", (3,)),
    (lambda: cfl.models.cnn_fedcanon(channels=2), "channels", 2),
    (lambda: cfl.partition.synthetic(clients=2, samples_per_client="many"), "samples", "many"),
    (lambda: ElasticNetCV(cv=100).fit(np.eye(9), np.arange(9.0)), "cv", 100),
    (lambda: LogisticRegression().fit(np.eye(9), np.ones(9)), "y", None),
    (lambda: cfl.Box(2.0, 1.0), "lower", 2.0),
    (lambda: cfl.L1(0.1).check_prox("local_steps*local_lr", 0.0), "local_steps*local_lr", 0.0),
]


@pytest.mark.parametrize("call, parameter, value", CASES, ids=[c[1] for c in CASES])
def test_fields(call, parameter, value):
    with pytest.raises(cfl.CompositeFLError) as error:
        call()
    assert (error.value.parameter, error.value.value) == (parameter, value)
    again = pickle.loads(pickle.dumps(error.value))  # errors cross processes
    assert str(again) == str(error.value) and again.parameter == parameter


def refusal(call):
    with pytest.raises(cfl.CompositeFLError) as error:
        call()
    return error.value


ABSENT = [  # options, what the message begins with, parameter, value, also
    ({"dropout": 0.1}, "dropout=0.1: FedCanonII", "dropout", 0.1, {}),
    (
        {"participation": 0.5, "replacement": True},
        "participation=0.5, replacement=True: FedCanonII",
        *("participation", 0.5, {"replacement": True}),
    ),
]


@pytest.mark.parametrize("options, text, parameter, value, also", ABSENT)
def test_an_error_about_several_parameters(options, text, parameter, value, also):
    method = cfl.FedCanonII(local_steps=1, local_lr=0.1)
    error = refusal(lambda: Options(rounds=1, **options).check(lasso(), method))
    assert str(error).startswith(text)
    assert (error.parameter, error.value, error.also) == (parameter, value, also)


def test_what_helps_ends_the_message():
    steps = {"local_steps": 2, "local_lr": 0.1}
    for call, remedy in [
        (cfl.Scaffnew(composite="server-prox", **steps).check, "fixed steps"),
        (cfl.FedAvg(regularizer=cfl.L1(1.0), **steps).check, "composite"),
        (lambda: cfl.FedNMap(local_lr="theory"), "steps for theory"),
        (lambda: cfl.GroupLasso(1.0).check_tree({"a": np.zeros(2)}), "leaf"),
    ]:
        error = refusal(call)
        assert error.remedy == remedy and str(error).endswith(REMEDIES[remedy])
        again = pickle.loads(pickle.dumps(error))
        assert str(again) == str(error) and again.remedy == remedy


def test_an_array_alone_has_no_leaves_to_leave_out():
    error = refusal(lambda: cfl.GroupLasso(1.0).check_tree(np.zeros(2)))
    assert error.remedy is None and str(error).endswith("they need a matrix")


def test_an_unknown_name_is_told_apart():
    error = refusal(lambda: cfl.data.load("minst"))
    assert isinstance(error, UnknownName)
    assert isinstance(pickle.loads(pickle.dumps(error)), UnknownName)


def test_an_error_about_no_single_parameter_has_no_fields():
    with pytest.raises(cfl.CompositeFLError) as error:
        cfl.Problem(lambda w, b: b @ w, np.zeros(2), [])
    assert error.value.parameter is None and error.value.value is None


def test_a_message_that_begins_with_a_parameter_has_it_as_a_field():
    """The command line words such errors from their fields alone."""
    for path in sorted(Path(cfl.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) != "CompositeFLError":
                continue
            text = ast.unparse(node.args[0]).lstrip("f\"'") if node.args else ""
            name, equals, _ = text.partition("=")
            if equals and name.isidentifier():
                fields = {keyword.arg for keyword in node.keywords}
                assert "parameter" in fields, f"{path.name}:{node.lineno}: {text[:60]}"
