"""Ready models. Biases start at zero, kernels as normals (He before rectifiers, else Glorot).

Linear, logistic and multinomial regression are convex and start at zero. Their intercept is the
parameter "dense0/bias"; `ByName({"*bias": Zero(), "*": L1(0.01)})` leaves it unpenalised. The same
arguments return the same model.
"""

import math
from collections.abc import Sequence
from typing import Any

from compositefl.core.errors import CompositeFLError, require_integer, unknown_name
from compositefl.models.base import (
    Model,
    cross_entropy,
    from_network,
    logistic,
    sigmoid_squared,
    squared,
)
from compositefl.models.layers import (
    Activation,
    Conv3x3,
    Dense,
    Flatten,
    MaxPool2x2,
    Network,
    Pad,
    check_activation,
    initial_scale,
)
from compositefl.models.linear import LinearLoss


def linear_regression(features: int, intercept: bool = False) -> Model:
    """f = mean (x.w - y)^2 / 2."""
    require_integer(features=features)
    network = Network((int(features),), (Dense(1, "zeros", bool(intercept)),), squeeze=True)
    return from_network("linear-regression", network, squared, None, kind=LinearLoss)


def logistic_regression(features: int, intercept: bool = False) -> Model:
    """f = mean ln(1 + exp(-b x.w)) with b = 2 y - 1, labels y in {0, 1}."""
    require_integer(features=features)
    network = Network((int(features),), (Dense(1, "zeros", bool(intercept)),), squeeze=True)
    return from_network("logistic-regression", network, logistic, 2, kind=LinearLoss)


def multinomial(features: int, classes: int, intercept: bool = True) -> Model:
    """Multinomial logistic regression: the cross-entropy of a linear map. Inputs are flattened."""
    require_integer(features=features)
    require_integer(2, classes=classes)
    network = Network((int(features),), (Dense(int(classes), "zeros", bool(intercept)),))
    return from_network("multinomial", network, cross_entropy, int(classes), kind=LinearLoss)


LOSSES = {"cross-entropy": cross_entropy, "squared": sigmoid_squared}


def mlp(
    widths: Sequence[int] = (784, 32, 10), activation: str = "sigmoid", loss: str = "cross-entropy"
) -> Model:
    """Dense layers of these widths, inputs first and classes last.

    loss: "cross-entropy", or "squared" for half the squared error of sigmoid outputs.
    """
    check_activation(activation)
    if loss not in LOSSES:
        raise unknown_name("loss", loss, LOSSES)
    if len(widths) < 2:
        raise CompositeFLError(f"widths={tuple(widths)} needs at least the inputs and the classes")
    for width in widths:
        require_integer(widths=width)
    inputs, *hidden, classes = (int(width) for width in widths)
    layers: list[Any] = []
    for width in hidden:
        layers += [Dense(width, initial_scale(activation)), Activation(activation)]
    network = Network((inputs,), (*layers, Dense(classes)))
    name = f"mlp {'-'.join(map(str, (inputs, *hidden, classes)))} {activation}"
    if loss != "cross-entropy":
        name += f" {loss}"
    return from_network(name, network, LOSSES[loss], classes)


def cnn_zhang() -> Model:
    """The MNIST network of Zhang, Hu and Johansson: 28x28x1 inputs, 112,394 parameters.

    Two 3x3 convolutions of 32 channels, each with 2x2 max-pooling, then 64, 32 and 10 units.
    """
    layers = (*_conv(32), *_conv(32), Flatten(), *_dense(64), *_dense(32), Dense(10))
    return from_network("cnn-zhang", Network((28, 28, 1), layers), cross_entropy, 10)


def cnn_fedcanon(channels: int = 1) -> Model:
    """The network of FedCanon: 268,362 parameters for 28x28x1 inputs, 268,650 for 32x32x3.

    Two 3x3 convolutions of 16 and 32 channels, each with 2x2 max-pooling, then 128 and 10 units.
    28x28 inputs are padded to 32x32, which the parameter count asks for.
    """
    if channels not in (1, 3):
        raise CompositeFLError(f"channels={channels} must be 1 (28x28 inputs) or 3 (32x32 inputs)")
    layers = (*_conv(16), *_conv(32), Flatten(), *_dense(128), Dense(10))
    if channels == 1:
        network = Network((28, 28, 1), (Pad(2), *layers))
    else:
        network = Network((32, 32, 3), layers)
    return from_network("cnn-fedcanon", network, cross_entropy, 10)


def _conv(channels: int) -> tuple[Any, ...]:
    return Conv3x3(channels), Activation("relu"), MaxPool2x2()


def _dense(units: int) -> tuple[Any, ...]:
    return Dense(units, initial_scale("relu")), Activation("relu")


MODELS = {
    "linear": "linear regression, squared loss; intercept= true or false",
    "logistic": "binary logistic regression; intercept= true or false",
    "multinomial": "multinomial logistic regression, a linear map with cross-entropy",
    "mlp": "dense network; hidden= widths, activation= function",
    "cnn-zhang": "convolutional network for 28x28 images, 112,394 parameters",
    "cnn-fedcanon": "convolutional network for 28x28 or 32x32x3 images, 268,362 or more parameters",
}
LINEAR = ("linear", "logistic", "multinomial")


def build(
    name: str,
    *,
    input_shape: Sequence[int],
    classes: int,
    hidden: Sequence[int] | None = None,
    activation: str | None = None,
    intercept: bool | None = None,
) -> Model:
    """A model of `MODELS` for samples of `input_shape`. By default mlp has 32 sigmoid units.

    intercept: of a linear model; by default multinomial has one, linear and logistic have none.
    """
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    if intercept is not None and name not in LINEAR:
        raise CompositeFLError(f"intercept is for {', '.join(LINEAR)}, not for '{name}'")
    if not isinstance(intercept, bool | None):
        raise CompositeFLError(f"intercept={intercept!r} must be true or false")
    if name != "mlp" and (hidden is not None or activation is not None):
        raise CompositeFLError(f"hidden and activation are for the model 'mlp', not for '{name}'")
    shape = tuple(int(size) for size in input_shape)
    features = math.prod(shape)
    if name == "linear":
        return linear_regression(features, bool(intercept))
    if name == "logistic":
        if classes != 2:
            raise CompositeFLError(
                f"model 'logistic' has 2 classes, the data {classes}; use 'multinomial'"
            )
        return logistic_regression(features, bool(intercept))
    if name == "multinomial":
        return multinomial(features, classes, intercept is not False)
    if name == "mlp":
        widths = (features, *((32,) if hidden is None else hidden), classes)
        return mlp(widths, activation or "sigmoid")
    allowed = {"cnn-zhang": {(28, 28, 1)}, "cnn-fedcanon": {(28, 28, 1), (32, 32, 3)}}[name]
    if shape not in allowed or classes != 10:
        shapes = " or ".join("x".join(map(str, s)) for s in sorted(allowed))
        raise CompositeFLError(
            f"model '{name}' takes {shapes} inputs and 10 classes, the data has shape {shape} "
            f"and {classes} classes"
        )
    return cnn_zhang() if name == "cnn-zhang" else cnn_fedcanon(shape[-1])
