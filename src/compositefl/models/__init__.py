"""Ready models with their losses: `models.mlp((784, 32, 10)).problem(clients)`."""

from compositefl.models.base import Model
from compositefl.models.layers import ACTIVATIONS
from compositefl.models.vision import mobilenet_v3_small, resnet18
from compositefl.models.zoo import (
    MODELS,
    build,
    cnn_fedcanon,
    cnn_zhang,
    linear_regression,
    logistic_regression,
    mlp,
    multinomial,
)

__all__ = [
    "ACTIVATIONS",
    "MODELS",
    "Model",
    "build",
    "cnn_fedcanon",
    "cnn_zhang",
    "linear_regression",
    "logistic_regression",
    "mlp",
    "mobilenet_v3_small",
    "multinomial",
    "resnet18",
]
