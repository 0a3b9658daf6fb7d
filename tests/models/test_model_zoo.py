"""Ready models: sizes, losses against their formulas, derivatives, equality, command-line names."""

import pickle
import types

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from compositefl import models
from compositefl.core.errors import CompositeFLError
from compositefl.data import Samples
from compositefl.models import base

SMALL = {
    "linear": lambda: models.linear_regression(6, intercept=True),
    "logistic": lambda: models.logistic_regression(6, intercept=True),
    "multinomial": lambda: models.multinomial(6, 3),
    "mlp": lambda: models.mlp((6, 5, 3), "gelu"),
    "cnn-zhang": models.cnn_zhang,
    "cnn-fedcanon": lambda: models.cnn_fedcanon(3),
}
SHAPES = {"cnn-zhang": (28, 28, 1), "cnn-fedcanon": (32, 32, 3)}


def batch_for(name, count=4, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, *SHAPES.get(name, (6,)))).astype(np.float32)
    classes = {"linear": 5, "logistic": 2, "multinomial": 3, "mlp": 3}.get(name, 10)
    return Samples(x, rng.integers(0, classes, count).astype(np.int32))


def random_params(model, seed=0):
    """Not the start: regressions start at zero, where formulas are too easy."""
    rng = np.random.default_rng(seed)
    start = jax.eval_shape(model.init, jax.random.key(0))
    return jax.tree.map(lambda a: 0.3 * rng.normal(size=a.shape).astype(np.float32), start)


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (models.linear_regression(20), 20),
        (models.linear_regression(20, intercept=True), 21),
        (models.logistic_regression(20), 20),
        (models.multinomial(784, 10), 7850),
        (models.multinomial(123, 2), 248),
        (models.multinomial(3072, 10), 30730),
        (models.mlp(), 25450),
        (models.mlp((784, 128, 64, 10), "relu"), 109386),
        (models.mlp((123, 128, 64, 2), "relu"), 24258),
        (models.mlp((3072, 128, 64, 10), "relu"), 402250),
        (models.cnn_zhang(), 112394),
        (models.cnn_fedcanon(1), 268362),
        (models.cnn_fedcanon(3), 268650),
    ],
)
def test_parameter_counts_of_the_papers(model, count):
    assert model.parameter_count() == count
    assert f"{count:,} parameters" in repr(model)


def test_linear_regression_is_half_the_squared_error():
    model, (x, y) = SMALL["linear"](), batch_for("linear")
    params = random_params(model)
    out = x @ params["dense0"]["kernel"][:, 0] + params["dense0"]["bias"]
    np.testing.assert_allclose(model.apply(params, x), out, rtol=1e-5)
    np.testing.assert_allclose(model.loss(params, (x, y)), np.mean((out - y) ** 2) / 2, rtol=1e-5)
    assert model.accuracy is None


def test_logistic_regression_is_the_papers_loss():
    model, (x, y) = SMALL["logistic"](), batch_for("logistic", 50)
    params = random_params(model)
    z = np.asarray(model.apply(params, x), np.float64)
    expected = np.mean(np.log1p(np.exp(-(2 * y - 1) * z)))
    np.testing.assert_allclose(model.loss(params, (x, y)), expected, rtol=1e-5)
    np.testing.assert_allclose(model.accuracy(params, (x, y)), np.mean((z > 0) == y), rtol=1e-6)
    same = [model.loss(params, (x, y.astype(kind))) for kind in (np.uint8, bool, np.float32)]
    np.testing.assert_allclose(same, expected, rtol=1e-5)


def test_logistic_regression_is_finite_far_out():
    model = models.logistic_regression(1)
    params = {"dense0": {"kernel": jnp.array([[1.0]])}}
    for z, y, expected in ((1e4, 1, 0), (1e4, 0, 1e4), (-1e4, 1, 1e4), (-1e4, 0, 0)):
        batch = (np.array([[z]], np.float32), np.array([y]))
        value, slope = jax.value_and_grad(model.loss)(params, batch)
        assert float(value) == expected
        assert np.isfinite(slope["dense0"]["kernel"]).all()


@pytest.mark.parametrize("name", ["multinomial", "mlp", "cnn-zhang"])
def test_cross_entropy_and_accuracy(name):
    model, (x, y) = SMALL[name](), batch_for(name)
    params = random_params(model)
    logits = np.asarray(jax.jit(model.apply)(params, x), np.float64)
    logits -= logits.max(1, keepdims=True)
    chances = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = -np.log(chances[np.arange(len(y)), y]).mean()
    np.testing.assert_allclose(jax.jit(model.loss)(params, (x, y)), expected, rtol=1e-4)
    right, accuracy = np.argmax(logits, axis=1), jax.jit(model.accuracy)
    assert float(accuracy(params, (x, right))) == 1
    assert float(accuracy(params, (x, (right + 1) % logits.shape[1]))) == 0


def test_mlp_with_squared_error():
    model = models.mlp((3, 4, 5), loss="squared")
    params = model.init(jax.random.key(1))
    x, y = np.random.default_rng(0).normal(size=(6, 3)), np.array([0, 1, 2, 3, 4, 0])
    outputs = 1 / (1 + np.exp(-np.asarray(model.apply(params, x))))
    expected = np.mean(np.sum((outputs - np.eye(5)[y]) ** 2, axis=1)) / 2
    np.testing.assert_allclose(model.loss(params, (x, y)), expected, rtol=1e-6)
    assert model != models.mlp((3, 4, 5))
    with pytest.raises(CompositeFLError, match="unknown loss 'hinge'"):
        models.mlp((3, 4, 5), loss="hinge")


def test_mlp_is_what_it_says():
    model = models.mlp((6, 5, 4, 3), "tanh")
    params = random_params(model)
    x, _ = batch_for("mlp")
    out = x
    for name in ("dense0", "dense1"):
        out = np.tanh(out @ params[name]["kernel"] + params[name]["bias"])
    out = out @ params["dense2"]["kernel"] + params["dense2"]["bias"]
    np.testing.assert_allclose(model.apply(params, x), out, rtol=1e-4, atol=1e-5)


def test_mlp_flattens_images():
    model = models.mlp((784, 8, 10))
    params = model.init(jax.random.key(0))
    x, y = batch_for("cnn-zhang")
    np.testing.assert_array_equal(model.apply(params, x), model.apply(params, x.reshape(4, 784)))
    one = model.loss(params, (x[:1], y[:1]))
    np.testing.assert_allclose(model.loss(params, (x[0], y[0])), one, rtol=1e-6)


def test_cnn_zhang_against_native_operations():
    model, (x, y) = models.cnn_zhang(), batch_for("cnn-zhang", 3)
    params = model.init(jax.random.key(3))

    def native(params, x):
        for name in ("conv0", "conv1"):
            x = jax.lax.conv_general_dilated(
                x,
                params[name]["kernel"],
                (1, 1),
                "SAME",
                dimension_numbers=("NHWC", "HWIO", "NHWC"),
            )
            x = jax.nn.relu(x + params[name]["bias"])
            window = (1, 2, 2, 1)
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
        x = x.reshape(len(x), -1)
        for name in ("dense0", "dense1"):
            x = jax.nn.relu(x @ params[name]["kernel"] + params[name]["bias"])
        return x @ params["dense2"]["kernel"] + params["dense2"]["bias"]

    def native_loss(params):
        logits = native(params, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(), logits

    theirs, logits = jax.jit(jax.grad(native_loss, has_aux=True))(params)
    np.testing.assert_allclose(jax.jit(model.apply)(params, x), logits, atol=1e-4)
    ours = jax.jit(jax.grad(model.loss))(params, (x, y))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_cnn_fedcanon_pads_small_images():
    model = models.cnn_fedcanon(1)
    params = model.init(jax.random.key(0))
    assert params["dense0"]["kernel"].shape == (2048, 128)
    assert jax.eval_shape(model.apply, params, batch_for("cnn-zhang").x).shape == (4, 10)


@pytest.mark.parametrize("name", [name for name in SMALL if name != "cnn-fedcanon"])
def test_loss_is_vmappable_over_params_and_samples(name):
    model, (x, y) = SMALL[name](), batch_for(name, 3)
    each = [random_params(model, seed) for seed in range(2)]
    many = jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)
    slope = jax.value_and_grad(model.loss)
    losses = jax.jit(jax.vmap(model.loss, (0, None)))(many, Samples(x, y))
    gradients = jax.jit(jax.vmap(jax.grad(model.loss), (None, 0)))(each[0], Samples(x, y))
    (first, whole), (second, _) = (jax.jit(slope)(params, Samples(x, y)) for params in each)
    np.testing.assert_allclose(losses, [first, second], rtol=1e-4)
    mean = jax.tree.map(lambda leaf: leaf.mean(0), gradients)
    for a, b in zip(jax.tree.leaves(mean), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("name", SMALL)
def test_same_arguments_same_model(name):
    one, two = SMALL[name](), SMALL[name]()
    assert one == two and hash(one) == hash(two)
    assert one.loss == two.loss and hash(one.loss) == hash(two.loss)


def test_equality_is_by_value_and_survives_pickling():
    model = models.mlp((6, 5, 3), "relu")
    assert models.mlp([6, 5, 3], activation="relu") == model
    assert models.mlp((6, 5, 3), "tanh").loss != model.loss
    assert models.logistic_regression(6).loss != models.linear_regression(6).loss
    copy = pickle.loads(pickle.dumps(model))
    assert copy.loss == model.loss and hash(copy.loss) == hash(model.loss)
    traces = []

    def value(loss, params, batch):
        traces.append(1)
        return loss(params, batch)

    compiled = jax.jit(value, static_argnums=0)
    params, batch = model.init(jax.random.key(0)), batch_for("mlp")
    assert float(compiled(model.loss, params, batch)) == float(compiled(copy.loss, params, batch))
    assert len(traces) == 1


def test_start():
    model = models.mlp((400, 300, 10), "relu")
    params = model.init(jax.random.key(0))
    assert float(params["dense0"]["kernel"].var()) == pytest.approx(2 / 400, rel=0.05)
    assert float(params["dense1"]["kernel"].var()) == pytest.approx(2 / 310, rel=0.1)
    assert not np.any(params["dense0"]["bias"])
    again, other = model.init(jax.random.key(0)), model.init(jax.random.key(1))
    np.testing.assert_array_equal(params["dense0"]["kernel"], again["dense0"]["kernel"])
    assert not np.array_equal(params["dense0"]["kernel"], other["dense0"]["kernel"])
    assert not np.any(models.multinomial(6, 3).init(jax.random.key(0))["dense0"]["kernel"])


def test_batches_may_be_pairs_samples_or_mappings():
    model, (x, y) = SMALL["mlp"](), batch_for("mlp")
    params = model.init(jax.random.key(0))
    losses = {float(model.loss(params, b)) for b in ((x, y), Samples(x, y), {"y": y, "x": x})}
    assert len(losses) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.mlp((6, 5, 3), "sigmoidal"), "did you mean 'sigmoid'"),
        (lambda: models.mlp((6,)), "at least the inputs and the classes"),
        (lambda: models.mlp((6, 0, 3)), "widths=0"),
        (lambda: models.mlp((6, 5, 1)), r"widths=\(6, 5, 1\) ends in one output; .* at least 2;"),
        (lambda: models.mlp((6, 1), loss="squared"), "for numbers to predict: linear_regression"),
        (lambda: models.linear_regression(0), "features=0"),
        (lambda: models.multinomial(5, 1), "classes=1"),
        (lambda: models.cnn_fedcanon(2), "channels=2 must be 1"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(CompositeFLError, match=message):
        call()


def test_a_batch_of_the_wrong_shape_is_refused():
    model = models.mlp((6, 5, 3))
    params = model.init(jax.random.key(0))
    with pytest.raises(CompositeFLError, match=r"x has shape \(4, 5\) for 4 samples"):
        jax.jit(model.loss)(params, (np.zeros((4, 5)), np.zeros(4, int)))


BUILT = {
    "linear": ((6,), 2),
    "logistic": ((6,), 2),
    "multinomial": ((4, 4, 1), 3),
    "mlp": ((4, 4, 1), 3),
    "cnn-zhang": ((28, 28, 1), 10),
    "cnn-fedcanon": ((32, 32, 3), 10),
    "mobilenet-v3-small": ((32, 32, 3), 4),
    "resnet18": ((28, 28, 1), 4),
}


@pytest.mark.parametrize("name", models.MODELS)
def test_build_by_name(name):
    shape, classes = BUILT[name]
    model = models.build(name, input_shape=shape, classes=classes)
    x = np.zeros((2, *shape), np.float32)
    params = jax.eval_shape(model.init, jax.random.key(0))
    assert jax.eval_shape(model.loss, params, (x, np.array([0, 1]))).shape == ()


def test_build_passes_widths_and_activation():
    built = models.build(
        "mlp", input_shape=[28, 28, 1], classes=10, hidden=[64, 16], activation="relu"
    )
    assert built == models.mlp((784, 64, 16, 10), "relu")
    assert models.build("mlp", input_shape=(784,), classes=10) == models.mlp()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "cnn-zang"}, "did you mean 'cnn-zhang'"),
        ({"name": "logistic", "classes": 3}, "use 'multinomial'"),
        ({"name": "cnn-zhang"}, r"takes 28x28x1 inputs and 10 classes, the data has shape \(6,\)"),
        ({"name": "cnn-fedcanon", "input_shape": (28, 28, 1), "classes": 2}, "and 2 classes"),
        ({"name": "multinomial", "hidden": (3,)}, "for the model 'mlp', not for 'multinomial'"),
        ({"name": "linear", "activation": "relu"}, "for the model 'mlp', not for 'linear'"),
    ],
)
def test_build_refuses(options, message):
    with pytest.raises(CompositeFLError, match=message):
        models.build(**{"input_shape": (6,), "classes": 10, **options})


@pytest.fixture
def problem_calls(monkeypatch):
    """A stand-in for Problem that records what it is given."""
    calls = []

    def record(*args, **options):
        calls.append((args, options))
        return types.SimpleNamespace(calls=calls)

    monkeypatch.setattr("compositefl.models.base.Problem", record)
    return calls


def test_problem_gets_loss_start_clients_and_accuracy(problem_calls):
    model, clients, test = SMALL["mlp"](), [batch_for("mlp")], batch_for("mlp", 2)
    made = model.problem(clients, test=test, seed=5, weights="size")
    assert made.calls is problem_calls
    ((args, options),) = problem_calls
    assert args[0] == model.loss and args[2] == clients
    np.testing.assert_array_equal(
        args[1]["dense0"]["kernel"], model.init(jax.random.key(5))["dense0"]["kernel"]
    )
    assert options == {"test": test, "accuracy": model.accuracy, "weights": "size"}


def test_problem_refuses_labels_the_model_does_not_know(problem_calls):
    x = np.zeros((2, 6), np.float32)
    good = (x, np.array([0, 1]))
    for wrong in ([-1, 1], [0, 2], [0.5, 1.0]):
        with pytest.raises(CompositeFLError, match=r"client 1 has labels from .* 0 to 1"):
            SMALL["logistic"]().problem([good, (x, np.array(wrong))])
    with pytest.raises(CompositeFLError, match="the test set has labels from 0 to 3"):
        SMALL["mlp"]().problem([good], test=(x, np.array([0, 3])))
    SMALL["linear"]().problem([(x, np.array([-7.5, 2.0]))])
    assert len(problem_calls) == 1


@pytest.mark.parametrize(
    ("name", "y", "message"),
    [
        ("linear", np.ones((2, 1)), r"y has shape \(2, 1\); linear-.* one number .* y.ravel\(\)"),
        ("linear", np.ones((2, 2)), r"y has shape \(2, 2\); linear-.* one number .* y\[:, 0\]"),
        ("logistic", np.ones((2, 1), int), r"y has shape \(2, 1\); logistic.* y.ravel\(\)"),
        (
            "multinomial",
            np.eye(2, 3),
            r"y has shape \(2, 3\); multinomial takes one label .*argmax",
        ),
        ("mlp", np.array([0.5, 7.1]), r"labels from 0.5 to 7.1; .* 0 to 2 as its classes; for num"),
    ],
)
def test_problem_refuses_targets_that_are_not_one_a_sample(problem_calls, name, y, message):
    with pytest.raises(CompositeFLError, match=f"^client 1:? .*{message}"):
        x = np.zeros((2, 6), np.float32)
        SMALL[name]().problem([(x, np.array([0, 1])), (x, y)])
    assert not problem_calls


def test_own_functions_make_a_model(problem_calls):
    model = base.Model(
        "ridge",
        init=lambda key: jnp.ones(3),
        apply=lambda w, x: x @ w,
        loss=lambda w, batch: jnp.mean((batch[0] @ w - batch[1]) ** 2),
    )
    assert model.parameter_count() == 3
    model.problem([(np.ones((2, 3)), np.zeros(2))])
    assert problem_calls[0][1]["accuracy"] is None
