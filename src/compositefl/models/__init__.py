"""Ready models with their losses: `models.mlp((784, 32, 10)).problem(clients)`."""

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Array
from compositefl.models.base import Model
from compositefl.models.layers import ACTIVATIONS
from compositefl.models.vision import mobilenet_v3_small, resnet18
from compositefl.models.zoo import (
    MODELS,
    REGRESSION,
    build,
    cnn_fedcanon,
    cnn_zhang,
    linear_regression,
    logistic_regression,
    mlp,
    model_options,
    multinomial,
)

if TYPE_CHECKING:
    import torch

    from compositefl.models.pytorch import SampleFunction

__all__ = [
    "ACTIVATIONS",
    "MODELS",
    "REGRESSION",
    "Model",
    "build",
    "cnn_fedcanon",
    "cnn_zhang",
    "from_torch",
    "linear_regression",
    "logistic_regression",
    "mlp",
    "mobilenet_v3_small",
    "model_options",
    "multinomial",
    "resnet18",
    "to_torch",
]


def from_torch(
    module: "torch.nn.Module",
    loss: "SampleFunction | None" = None,
    accuracy: "SampleFunction | None" = None,
    classes: int | None = None,
) -> Model:
    """A PyTorch module as a model. Its parameters that require gradients are the start.

    loss(outputs, y) -> one number a sample, in PyTorch: cross-entropy by default, and then
    accuracy is the share of labels with the largest output. accuracy(outputs, y) -> one number a
    sample. classes: refuse labels that are not below it and, with the default loss, a module with
    another number of outputs.

    Parameters keep PyTorch's names, for regularisers by name and in saved files. Buffers stay as
    they are: batch normalisation in training mode normalises with the batch at hand, in eval mode
    with the averages that the module came with. Dropout is refused. Second derivatives are not
    there, so steps from theory need `constants`.
    """
    return _pytorch().model(module, loss, accuracy, classes)


def to_torch(params: Mapping[str, Array], module: "torch.nn.Module") -> "torch.nn.Module":
    """Give `module` the parameters of a result, such as `result.params`; returns the module."""
    return _pytorch().load(params, module)


def _pytorch() -> ModuleType:
    try:
        from compositefl.models import pytorch
    except ImportError:
        raise CompositeFLError("PyTorch models need pip install 'compositefl[torch]'") from None
    return pytorch
