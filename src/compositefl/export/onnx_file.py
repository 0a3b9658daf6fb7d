"""Networks as ONNX files: x (samples, ...) in, outputs out, as `model.apply` has them."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Params
from compositefl.export.compression import Compressed, network_of
from compositefl.models import Model
from compositefl.models.layers import (
    Activation,
    Conv3x3,
    Dense,
    Flatten,
    Layer,
    MaxPool2x2,
    Pad,
    Select,
)
from compositefl.solve.result import Result

if TYPE_CHECKING:
    import onnx
OPSET = 20  # the first with Gelu
OPERATORS: dict[str, tuple[str, dict[str, Any]]] = {
    "sigmoid": ("Sigmoid", {}),
    "relu": ("Relu", {}),
    "tanh": ("Tanh", {}),
    "softplus": ("Softplus", {}),
    "elu": ("Elu", {"alpha": 1.0}),
    "gelu": ("Gelu", {"approximate": "tanh"}),
}


def to_onnx(
    result: Result | Compressed | Params,
    path: str | Path,
    model: Model | None = None,
    *,
    trial: int | None = None,
) -> None:
    """Write a network of dense and 3x3 convolutional layers into the ONNX file `path`.

    result: of `minimize`, of `compress`, or parameters. model: theirs, where the result does not
    know it. The file takes float32 samples of the model's input shape, as many as one likes.
    """
    try:
        import onnx
        from onnx import helper
    except ImportError:
        raise CompositeFLError("to_onnx needs pip install 'compositefl[onnx]'") from None
    if isinstance(result, Compressed):
        result, model = result.params, result.model
    params, loss, _ = network_of(result, model, trial, "to_onnx")
    network = loss.network
    graph = _Graph()
    for name, layer in zip(network.names(), network.layers, strict=True):
        graph.add(layer, params[name] if name else None)
    if network.squeeze:
        graph.node("Squeeze", graph.array(np.array([1], np.int64)))
    graph.node("Identity", output="outputs")
    number = onnx.TensorProto.FLOAT
    takes = helper.make_tensor_value_info("x", number, ["samples", *network.input_shape])
    units = [] if network.squeeze else [graph.width]
    gives = helper.make_tensor_value_info("outputs", number, ["samples", *units])
    made = helper.make_model(
        helper.make_graph(graph.nodes, "compositefl", [takes], [gives], graph.arrays),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=10,
        producer_name="compositefl",
    )
    onnx.checker.check_model(made)
    Path(path).write_bytes(made.SerializeToString())


class _Graph:
    """Nodes one after the other. Images are turned to channels first, as ONNX has them."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.arrays: list[onnx.TensorProto] = []
        self.last = "x"
        self.turned = False
        self.width = 0

    def add(self, layer: Layer, params: Params | None) -> None:
        """Append a layer."""
        adders: dict[type, Callable[[Any, Params], None]] = {
            Dense: self._dense,
            Conv3x3: self._convolution,
            Activation: self._activation,
            MaxPool2x2: self._pool,
            Pad: self._pad,
            Flatten: self._flatten,
            Select: self._select,
        }
        if type(layer) not in adders:
            names = ", ".join(kind.__name__ for kind in adders)
            raise CompositeFLError(f"to_onnx: layer {type(layer).__name__}; it knows {names}")
        adders[type(layer)](layer, params)

    def node(self, operator: str, *more: str, output: str = "", **attributes: Any) -> None:
        """An operator on the last output."""
        from onnx import helper

        name = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [self.last, *more], [name], **attributes))
        self.last = name

    def array(self, values: np.ndarray) -> str:
        """A constant; returns its name."""
        from onnx import numpy_helper

        name = f"c{len(self.arrays)}"
        self.arrays.append(numpy_helper.from_array(np.ascontiguousarray(values), name))
        return name

    def _turn(self, channels_first: bool) -> None:
        if channels_first != self.turned:
            self.node("Transpose", perm=[0, 3, 1, 2] if channels_first else [0, 2, 3, 1])
            self.turned = channels_first

    def _dense(self, layer: Dense, params: Params) -> None:
        kernel = np.asarray(params["kernel"], np.float32)
        self.node("MatMul", self.array(kernel))
        if "bias" in params:
            self.node("Add", self.array(np.asarray(params["bias"], np.float32)))
        self.width = kernel.shape[1]

    def _convolution(self, layer: Conv3x3, params: Params) -> None:
        self._turn(True)
        kernel = np.asarray(params["kernel"], np.float32).transpose(3, 2, 0, 1)
        bias = self.array(np.asarray(params["bias"], np.float32))
        self.node("Conv", self.array(kernel), bias, kernel_shape=[3, 3], pads=[1, 1, 1, 1])

    def _activation(self, layer: Activation, params: Params) -> None:
        if layer.name == "silu":
            before = self.last
            self.node("Sigmoid")
            self.node("Mul", before)
            return
        operator, attributes = OPERATORS[layer.name]
        self.node(operator, **attributes)

    def _pool(self, layer: MaxPool2x2, params: Params) -> None:
        self._turn(True)
        self.node("MaxPool", kernel_shape=[2, 2], strides=[2, 2])

    def _pad(self, layer: Pad, params: Params) -> None:
        self._turn(True)
        b = layer.border
        self.node("Pad", self.array(np.array([0, 0, b, b, 0, 0, b, b], np.int64)))

    def _flatten(self, layer: Flatten, params: Params) -> None:
        self._turn(False)
        self.node("Flatten", axis=1)

    def _select(self, layer: Select, params: Params) -> None:
        self.node("Gather", self.array(np.array(layer.indices, np.int64)), axis=1)
