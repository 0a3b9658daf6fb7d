"""Ready models. Biases start at zero, kernels as normals (He before rectifiers, else Glorot).

Linear, logistic and multinomial regression are convex and start at zero. Their intercept is the
parameter "dense0/bias"; `ByName({"*bias": Zero(), "*": L1(0.01)})` leaves it unpenalised. The same
arguments return the same model.
"""

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from compositefl.core.errors import CompositeFLError, require_integer, unknown_name, wrong_value
from compositefl.core.resolve import require_kind, resolve
from compositefl.models.base import (
    FOR_NUMBERS,
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
    Layer,
    MaxPool2x2,
    Network,
    Pad,
    Shape,
    check_activation,
    initial_scale,
)
from compositefl.models.linear import LinearLoss
from compositefl.models.vision import mobilenet_v3_small, resnet18


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
    """Dense layers of these widths, inputs first and classes last, at least two.

    loss: "cross-entropy", or "squared" for half the squared error of sigmoid outputs, compared with
    1 at the label and 0 elsewhere.
    """
    check_activation(activation)
    if loss not in LOSSES:
        raise unknown_name("loss", loss, LOSSES)
    if len(widths) < 2:
        raise CompositeFLError(
            f"widths={tuple(widths)} needs at least the inputs and the classes",
            parameter="widths",
            value=tuple(widths),
        )
    for width in widths:
        require_integer(widths=width)
    inputs, *hidden, classes = (int(width) for width in widths)
    if classes == 1:
        raise CompositeFLError(
            f"widths={tuple(widths)} ends in one output; mlp has an output for each class, and "
            f"at least 2; {FOR_NUMBERS}",
            parameter="widths",
            value=tuple(widths),
        )
    layers: list[Layer] = []
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
        raise wrong_value("channels", channels, "1 (28x28 inputs) or 3 (32x32 inputs)")
    layers = (*_conv(16), *_conv(32), Flatten(), *_dense(128), Dense(10))
    if channels == 1:
        network = Network((28, 28, 1), (Pad(2), *layers))
    else:
        network = Network((32, 32, 3), layers)
    return from_network("cnn-fedcanon", network, cross_entropy, 10)


def _conv(channels: int) -> tuple[Layer, ...]:
    return Conv3x3(channels), Activation("relu"), MaxPool2x2()


def _dense(units: int) -> tuple[Layer, ...]:
    return Dense(units, initial_scale("relu")), Activation("relu")


def _linear(shape: Shape, classes: int, *, intercept: bool = False) -> Model:
    return linear_regression(math.prod(shape), intercept)


def _logistic(shape: Shape, classes: int, *, intercept: bool = False) -> Model:
    if classes != 2:
        raise CompositeFLError(
            f"model 'logistic' has 2 classes, the data {classes}; use 'multinomial'"
        )
    return logistic_regression(math.prod(shape), intercept)


def _multinomial(shape: Shape, classes: int, *, intercept: bool = True) -> Model:
    return multinomial(math.prod(shape), classes, intercept)


def _mlp(
    shape: Shape,
    classes: int,
    *,
    hidden: Sequence[int] = (32,),
    activation: str = "sigmoid",
    loss: str = "cross-entropy",
) -> Model:
    return mlp((math.prod(shape), *hidden, classes), activation, loss)


def _cnn_zhang(shape: Shape, classes: int) -> Model:
    _require_images("cnn-zhang", shape, ((28, 28, 1),), classes, 10)
    return cnn_zhang()


def _cnn_fedcanon(shape: Shape, classes: int) -> Model:
    _require_images("cnn-fedcanon", shape, ((28, 28, 1), (32, 32, 3)), classes, 10)
    return cnn_fedcanon(shape[-1])


def _mobilenet_v3_small(shape: Shape, classes: int) -> Model:
    _require_images("mobilenet-v3-small", shape, ((32, 32, 3),))
    return mobilenet_v3_small(classes)


def _resnet18(shape: Shape, classes: int) -> Model:
    _require_images("resnet18", shape, ((28, 28, 1), (32, 32, 3)))
    return resnet18(classes, shape[-1])


def _require_images(
    name: str,
    shape: Shape,
    allowed: Sequence[Shape],
    classes: int | None = None,
    wanted: int | None = None,
) -> None:
    if shape in allowed and classes == wanted:
        return
    shapes = " or ".join("x".join(map(str, s)) for s in allowed)
    takes = f"{shapes} inputs" + (f" and {wanted} classes" if wanted else "")
    has = f"shape {shape}" + (f" and {classes} classes" if wanted else "")
    raise CompositeFLError(f"model '{name}' takes {takes}, the data has {has}")


# name: (how to make it for samples of a shape and a number of classes, what it is)
_BUILDERS: dict[str, tuple[Callable[..., Model], str]] = {
    "linear": (_linear, "linear regression, squared loss"),
    "logistic": (_logistic, "binary logistic regression"),
    "multinomial": (_multinomial, "multinomial logistic regression, a linear map"),
    "mlp": (_mlp, "dense network"),
    "cnn-zhang": (_cnn_zhang, "convolutions for 28x28 images, 112,394 parameters"),
    "cnn-fedcanon": (_cnn_fedcanon, "convolutions for 28x28 or 32x32x3 images, 268,362 or more"),
    "mobilenet-v3-small": (_mobilenet_v3_small, "for 32x32x3 images, 1,528,106 parameters"),
    "resnet18": (_resnet18, "for 28x28 or 32x32x3 images, 11,175,370 or more"),
}
MODELS = {name: text for name, (_, text) in _BUILDERS.items()}
REGRESSION = frozenset({"linear"})  # models of numbers; all others take classes


def _own(
    reference: str, shape: tuple[int, ...], classes: int | None, options: dict[str, Any]
) -> Model:
    """What a function of the user's returns: it is told what it asks for of the data."""
    make = resolve(reference, Model, factory=True)
    of_data = {"input_shape": shape, "features": math.prod(shape), "classes": classes}
    takes = inspect.signature(make).parameters
    values = {name: value for name, value in of_data.items() if name in takes} | options
    try:
        inspect.signature(make).bind(**values)
    except TypeError as error:
        raise CompositeFLError(f"{error}; it takes {', '.join(takes) or 'nothing'}") from error
    return require_kind(reference, make(**values), Model)


def model_options(name: str) -> dict[str, Any]:
    """The options of a model of `MODELS` with their defaults."""
    if name not in MODELS:
        raise unknown_name("model", name, MODELS)
    parameters = inspect.signature(_BUILDERS[name][0]).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def build(name: str, *, input_shape: Sequence[int], classes: int | None, **options: Any) -> Model:
    """A model of `MODELS` for samples of `input_shape`, with `model_options(name)`.

    By default mlp has 32 sigmoid units. An option that is None is left at its default.
    Or "module:name": what the function or class makes of the options and of those of input_shape,
    features (their number) and classes that it takes.
    """
    if ":" in name:
        return _own(name, tuple(input_shape), classes, options)
    known = model_options(name)
    for option in options:
        if option not in known and options[option] is not None:
            having = [f"'{other}'" for other in MODELS if option in model_options(other)]
            if not having:
                raise unknown_name(f"option of the model {name}:", option, known)
            models = f"model{'s' if len(having) > 1 else ''} {', '.join(having)}"
            raise CompositeFLError(f"{option} is for the {models}, not for '{name}'")
    given = {option: value for option, value in options.items() if value is not None}
    if not isinstance(given.get("intercept", True), bool):
        raise wrong_value(
            "intercept", given["intercept"], "true or false", shown=repr(given["intercept"])
        )
    return _BUILDERS[name][0](tuple(int(size) for size in input_shape), classes, **given)
