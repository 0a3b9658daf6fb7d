"""MobileNetV3-Small and ResNet-18, layer by layer as in torchvision.

Both have batch normalisation, with the statistics of the batch at hand and without running
averages (see `convolutions`), so their losses are no means over samples: problems made of them
evaluate whole batches. The scale and bias of a normalisation are parameters under names like
"block3/expand/norm/scale"; `ByName({"*/norm/*": Zero(), "*": L1(1e-4)})` leaves them unpenalised.
"""

from collections.abc import Sequence
from functools import partial

from compositefl.core.errors import require_integer, wrong_value
from compositefl.models.base import Model, cross_entropy, from_network
from compositefl.models.convolutions import (
    ConvNorm,
    Function,
    GlobalMean,
    Linear,
    MaxPool3x3,
    Residual,
    SqueezeExcite,
)
from compositefl.models.layers import Layer, Network

# channels in, window, expanded channels, channels out, squeeze-excitation, function, stride
MOBILENET_V3_SMALL = (
    (16, 3, 16, 16, True, "relu", 2),
    (16, 3, 72, 24, False, "relu", 2),
    (24, 3, 88, 24, False, "relu", 1),
    (24, 5, 96, 40, True, "hardswish", 2),
    (40, 5, 240, 40, True, "hardswish", 1),
    (40, 5, 240, 40, True, "hardswish", 1),
    (40, 5, 120, 48, True, "hardswish", 1),
    (48, 5, 144, 48, True, "hardswish", 1),
    (48, 5, 288, 96, True, "hardswish", 2),
    (96, 5, 576, 96, True, "hardswish", 1),
    (96, 5, 576, 96, True, "hardswish", 1),
)
RESNET_18 = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1))


def mobilenet_v3_small(classes: int = 10) -> Model:
    """MobileNetV3-Small (Howard et al. 2019) for 32x32x3 inputs: 1,528,106 parameters.

    As in torchvision, without its dropout: the loss is a function of parameters and batch alone.
    """
    return mobilenet("mobilenet-v3-small", MOBILENET_V3_SMALL, classes)


def mobilenet(
    name: str, blocks: Sequence[tuple[int, int, int, int, bool, str, int]], classes: int
) -> Model:
    """A network of these blocks, rows as in `MOBILENET_V3_SMALL`, for 32x32x3 inputs."""
    require_integer(2, classes=classes)
    *_, (_, _, _, last, _, _, _) = blocks
    layers: tuple[Layer, ...] = (
        thin(16, 3, 2, function="hardswish"),
        *(_inverted_residual(*row) for row in blocks),
        thin(6 * last, function="hardswish"),
        GlobalMean(),
        Linear(1024),
        Function("hardswish"),
        Linear(int(classes)),
    )
    network = Network((32, 32, 3), layers)
    return from_network(name, network, cross_entropy, int(classes), coupled=True)


thin = partial(ConvNorm, epsilon=1e-3)


def _inverted_residual(
    inputs: int, window: int, expanded: int, outputs: int, squeeze: bool, function: str, stride: int
) -> Residual:
    """Expand by a 1x1 convolution, a depthwise one, squeeze-excitation, project by a 1x1 one."""
    parts: list[tuple[str, Layer]] = []
    if expanded != inputs:
        parts.append(("expand", thin(expanded, function=function)))
    parts.append(("depthwise", thin(expanded, window, stride, True, function)))
    if squeeze:
        parts.append(("excitation", SqueezeExcite(_multiple_of_8(expanded // 4))))
    parts.append(("project", thin(outputs)))
    return Residual(tuple(parts), skip=stride == 1 and inputs == outputs)


def _multiple_of_8(value: int) -> int:
    """The nearest multiple of 8, at least 8 and at least 0.9 times the value."""
    near = max(8, (value + 4) // 8 * 8)
    return near + 8 if near < 0.9 * value else near


def resnet18(classes: int = 10, channels: int = 1) -> Model:
    """ResNet-18 (He et al. 2016) with the 7x7 stem: 11,175,370 parameters for 28x28x1 inputs.

    With channels=3 the inputs are 32x32 and the parameters 11,181,642.
    """
    require_integer(2, classes=classes)
    if channels not in (1, 3):
        raise wrong_value("channels", channels, "1 (28x28 inputs) or 3 (32x32 inputs)")
    side = 28 if channels == 1 else 32
    inputs = [64, *(outputs for outputs, _ in RESNET_18)]
    network = Network(
        (side, side, int(channels)),
        (
            ConvNorm(64, 7, 2, function="relu"),
            MaxPool3x3(),
            *(_basic_block(i, *row) for i, row in zip(inputs, RESNET_18, strict=False)),
            GlobalMean(),
            Linear(int(classes), deviation=(3 * 512) ** -0.5),
        ),
    )
    return from_network("resnet-18", network, cross_entropy, int(classes), coupled=True)


def _basic_block(inputs: int, outputs: int, stride: int) -> Residual:
    """Two 3x3 convolutions; where the shape changes, a 1x1 convolution of the input is added."""
    parts = (
        ("first", ConvNorm(outputs, 3, stride, function="relu")),
        ("second", ConvNorm(outputs, 3)),
    )
    same = stride == 1 and inputs == outputs
    return Residual(parts, skip=same or ConvNorm(outputs, 1, stride), after="relu")
