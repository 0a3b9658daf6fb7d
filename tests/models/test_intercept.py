"""The intercept of the linear models: by name, from the command line, in a federation."""

import jax
import numpy as np
import pytest

import compositefl as cfl
from compositefl.cli.app import main
from compositefl.core.errors import CompositeFLError
from compositefl.core.trees import named_leaves
from compositefl.deployment import Federation
from compositefl.linear_model import LogisticRegression

DEFAULTS = {"linear": False, "logistic": False, "multinomial": True}
FEDERATION = """
name = "test"
sites = ["a", "b"]
rounds = 3
dtype = "float64"
regularizer = "l1:0.05"
unpenalized = ["*bias"]
[model]
name = "linear"
input_shape = [4]
classes = 2
intercept = {intercept}
[algorithm]
name = "prox-newton"
"""


def leaves(model):
    return [name for name, _ in named_leaves(jax.eval_shape(model.init, jax.random.key(0)))]


@pytest.mark.parametrize("name", DEFAULTS)
def test_by_name(name):
    for given in (None, False, True):
        wanted = DEFAULTS[name] if given is None else given
        model = cfl.models.build(name, input_shape=(4,), classes=2, intercept=given)
        assert leaves(model) == (["dense0/bias"] if wanted else []) + ["dense0/kernel"]
    assert cfl.models.build(name, input_shape=(4,), classes=2) is cfl.models.build(
        name, input_shape=(4,), classes=2, intercept=DEFAULTS[name]
    )


def test_refused():
    with pytest.raises(
        CompositeFLError, match="is for the models 'linear', 'logistic', 'multinomial', not"
    ):
        cfl.models.build("mlp", input_shape=(4,), classes=2, intercept=True)
    with pytest.raises(CompositeFLError, match="intercept='yes' must be true or false"):
        cfl.models.build("linear", input_shape=(4,), classes=2, intercept="yes")


def test_in_a_federation():
    federation = Federation.parse(FEDERATION.format(intercept="true"))
    assert leaves(federation.make_model()) == ["dense0/bias", "dense0/kernel"]
    assert leaves(Federation.parse(FEDERATION.format(intercept="false")).make_model()) == [
        "dense0/kernel"
    ]
    with pytest.raises(CompositeFLError, match="intercept=1 must be true or false"):
        Federation.parse(FEDERATION.format(intercept=1)).check()


def test_left_out_of_the_penalty():
    """With a penalty that forces all coefficients to zero the intercept is the mean of y."""
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(n, 4)), 3 + rng.normal(size=n)) for n in (9, 14)]
    problem = cfl.models.linear_regression(4, intercept=True).problem(clients)
    phi = cfl.ByName({"*bias": cfl.Zero(), "*": cfl.L1(100.0)})
    options = dict(rounds=2, weights="size", dtype="float64", progress=False)
    result = cfl.minimize(problem, phi, cfl.ProxNewton(), **options)
    assert not np.any(result.params["dense0"]["kernel"])
    mean = np.mean(np.concatenate([y for _, y in clients]))
    np.testing.assert_allclose(result.params["dense0"]["bias"], mean, rtol=1e-9)


def test_equals_the_estimator_of_tables():
    """minimize with an intercept and `linear_model` solve one problem in two ways."""
    rng = np.random.default_rng(1)
    clients = [(rng.normal(size=(n, 4)) + n / 10, rng.integers(0, 2, n)) for n in (9, 14)]
    problem = cfl.models.logistic_regression(4, intercept=True).problem(clients)
    phi = cfl.ByName({"*/bias": cfl.Zero(), "*": cfl.L1(0.05)})
    options = dict(rounds=12, weights="size", dtype="float64", progress=False)
    found = cfl.minimize(problem, phi, cfl.ProxNewton(), **options).params["dense0"]
    X, y = (np.concatenate(part) for part in zip(*clients, strict=True))
    model = LogisticRegression(0.05, standardize=False).fit(X, y, sites=np.repeat([0, 1], [9, 14]))
    np.testing.assert_allclose(np.ravel(found["kernel"]), model.coef_[0], atol=1e-7)
    np.testing.assert_allclose(np.ravel(found["bias"]), model.intercept_, atol=1e-7)
    assert np.any(model.coef_)


def test_on_the_command_line(tmp_path, capsys):
    words = "run --dataset synthetic --data-option classes=2 --alpha 0 --beta 0 --clients 3 --quiet"
    words += " --algorithm prox-newton --regularizer l1:0.01 --unpenalized */bias --rounds 2"
    out = tmp_path / "out"
    given = [*words.split(), "--out", str(out), "--model", "logistic"]
    assert main([*given, "--intercept"]) == 0, capsys.readouterr().err
    assert b"dense0/bias" in (out / "model.safetensors").read_bytes()
    assert main([*given, "--out", str(tmp_path / "other")]) != 0
    assert "--unpenalized */bias matches no parameter" in capsys.readouterr().err
