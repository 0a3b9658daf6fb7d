"""A smaller network with the same outputs: units whose weights are zero go.

Between two layers with kernels W (in, units) and V (units, out), unit j goes
- if row j of V is zero: nobody reads it;
- if column j of W is zero: it is the constant c = activation(bias_j), and c V_j goes into the next
  bias. A channel that a convolution reads goes only if c = 0, because the border is padded with 0.
Inputs whose row of the first dense kernel is zero are not read. Repeated until nothing changes.
"""

import dataclasses
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.trees import named_leaves
from compositefl.core.types import Array, Params
from compositefl.export.measure import Measured, measure, table
from compositefl.models import Model
from compositefl.models.base import NetworkLoss, from_network, squared
from compositefl.models.layers import (
    ACTIVATIONS,
    Activation,
    Conv3x3,
    Dense,
    Flatten,
    Layer,
    MaxPool2x2,
    Network,
    Pad,
    Select,
)
from compositefl.problem.losses import uncoupled
from compositefl.solve.result import Result

if TYPE_CHECKING:
    from rich.table import Table
KNOWN = (Dense, Conv3x3, Activation, MaxPool2x2, Pad, Flatten, Select)


@dataclass(frozen=True)
class Compressed:
    """A smaller model with the outputs of the original one."""

    model: Model
    params: Params
    inputs: tuple[int, ...] | None  # that the model reads, None for all
    original: Model
    original_params: Params

    def __repr__(self) -> str:
        return f"Compressed({self.summary()})"

    def summary(self) -> str:
        """One sentence on what is left."""
        before, after = (_count(p) for p in (self.original_params, self.params))
        read = "" if self.inputs is None else f", reads {len(self.inputs)} inputs"
        return f"{after:,} of {before:,} parameters are left{read}"

    def measure(self, x: Array, repeats: int = 20) -> list[Measured]:
        """Bytes, and seconds for the batch x, before and after."""
        return [
            measure("as trained", self.original.apply, self.original_params, x, repeats),
            measure("compressed", self.model.apply, self.params, x, repeats),
        ]

    def table(self, x: Array) -> "Table":
        """What `measure` found, to be printed with `rich.print`."""
        return table(self.measure(x))


def compress(
    result: Result | Params, model: Model | None = None, *, trial: int | None = None
) -> Compressed:
    """Remove what is zero from a network of dense and 3x3 convolutional layers.

    result: of `minimize`, or parameters. model: theirs; a result of this session knows it.
    trial: which one, where the result has several.
    """
    params, loss, model = network_of(result, model, trial, "compress")
    network = loss.network
    layers, params = list(network.layers), jax.tree.map(np.asarray, params)
    for layer in layers:
        if not isinstance(layer, KNOWN):
            names = ", ".join(kind.__name__ for kind in KNOWN)
            raise CompositeFLError(
                f"compress: {model.name} has a layer {type(layer).__name__}; it knows {names}"
            )
    weights = [dict(params[name]) if name else None for name in network.names()]
    inputs, layers = _shrink(layers, weights, network.input_shape)
    made = Network(network.input_shape, tuple(layers), network.squeeze)
    kept = [w for w in weights if w is not None]
    small = dict(zip((name for name in made.names() if name), kept, strict=True))
    # The Hessian that a linear model's loss knows is in all inputs.
    kind: Any = type(loss) if inputs is None else NetworkLoss
    smaller = from_network(
        f"{model.name}, compressed",
        made,
        loss.function,
        model.classes,
        model.coupled,
        kind,
    )
    return Compressed(smaller, jax.tree.map(jnp.asarray, small), inputs, model, params)


def network_of(
    result: Result | Params, model: Model | None, trial: int | None, who: str
) -> tuple[Params, NetworkLoss, Model]:
    """Parameters, loss and model of a result or of parameters. who: asks, for errors."""
    params, loss = result, None if model is None else model.loss
    if isinstance(result, Result):
        params, trials = result.params, result.config.get("trials", 1)
        if trials > 1:
            if trial is None or not 0 <= trial < trials:
                raise CompositeFLError(
                    f"trial={trial}: the result has trials 0 to {trials - 1}",
                    parameter="trial",
                    value=trial,
                )
            params = jax.tree.map(lambda a: a[trial], params)
        loss = result.loss if loss is None else loss
    loss = uncoupled(loss)
    if loss is None:
        raise CompositeFLError(f"{who} needs model=, the model of these parameters")
    if not isinstance(loss, NetworkLoss):
        raise CompositeFLError(f"{who} knows the models of compositefl.models, not your own loss")
    if model is None:
        kind: Any = type(loss)
        model = from_network("model", loss.network, loss.function, _classes(loss), kind=kind)
    return params, loss, model


def _classes(loss: NetworkLoss) -> int | None:
    if loss.function is squared:
        return None
    last = loss.network.layers[-1]
    return 2 if loss.network.squeeze else getattr(last, "units", None)


def _count(params: Params) -> int:
    return sum(np.size(leaf) for _, leaf in named_leaves(params))


@dataclass
class _Unit:
    """A layer with weights, and what lies between it and the next one."""

    at: int  # its place in the network
    weights: dict[str, np.ndarray]
    between: list[Layer]

    @property
    def convolves(self) -> bool:
        return self.weights["kernel"].ndim == 4

    def constants(self) -> np.ndarray:
        """Of each unit the number it shows where its column is zero."""
        out = jnp.asarray(self.weights.get("bias", np.zeros(self.weights["kernel"].shape[-1])))
        for layer in self.between:
            if isinstance(layer, Activation):
                out = ACTIVATIONS[layer.name](out)
        return np.asarray(out)

    def pads(self) -> bool:
        return any(isinstance(layer, Pad) for layer in self.between)


def _shrink(
    layers: list[Layer], weights: list[dict[str, np.ndarray] | None], shape: tuple[int, ...]
) -> tuple[tuple[int, ...] | None, list[Layer]]:
    """Remove units in place until nothing changes; (inputs that are read, layers)."""
    units = [_Unit(i, w, []) for i, w in enumerate(weights) if w is not None]
    for unit, end in zip(units, [*(u.at for u in units[1:]), len(layers)], strict=True):
        unit.between = layers[unit.at + 1 : end]
    changed = True
    while changed:
        changed = any([_between(a, b) for a, b in itertools.pairwise(units)])
    for unit in units:
        width = unit.weights["kernel"].shape[-1]
        layer = layers[unit.at]
        if isinstance(layer, Dense):
            bias = "bias" in unit.weights
            layers[unit.at] = dataclasses.replace(layer, units=width, bias=bias)
        elif isinstance(layer, Conv3x3):
            layers[unit.at] = dataclasses.replace(layer, channels=width)
    return _inputs(layers, units[0], shape)


def _inputs(
    layers: list[Layer], first: _Unit, shape: tuple[int, ...]
) -> tuple[tuple[int, ...] | None, list[Layer]]:
    """Leave out inputs of a dense first layer that it does not read."""
    kernel = first.weights["kernel"]
    if first.convolves or len(shape) != 1 or first.at != 0:
        return None, layers
    read = np.flatnonzero(np.any(kernel != 0, axis=1))
    if len(read) in (0, len(kernel)):
        return None, layers
    first.weights["kernel"] = kernel[read]
    inputs = tuple(int(i) for i in read)
    return inputs, [Select(inputs), *layers]


def _between(one: _Unit, other: _Unit) -> bool:
    """Remove units between two layers; whether any went."""
    kernel, after = one.weights["kernel"], other.weights["kernel"]
    count = kernel.shape[-1]
    # The next kernel as (positions, units, outputs): behind a Flatten every pixel has its rows.
    rows = after.reshape(-1, count, after.shape[-1])
    unread = ~np.any(rows != 0, axis=(0, 2))
    fixed = ~np.any(kernel != 0, axis=tuple(range(kernel.ndim - 1)))
    constants = one.constants()
    zero_only = other.convolves or one.pads()
    fixed &= (constants == 0) if zero_only else np.isfinite(constants)
    goes = unread | fixed
    if not np.any(goes):
        return False
    if np.all(goes):
        goes[int(np.argmax(goes))] = False  # a layer keeps one unit
        if not np.any(goes):
            return False
    if not zero_only and np.any(constants[goes & ~unread]):
        folded = np.einsum("pjo,j->o", rows[:, goes], constants[goes].astype(rows.dtype))
        other.weights["bias"] = other.weights.get("bias", np.zeros_like(folded)) + folded
    keep = ~goes
    one.weights["kernel"] = kernel[..., keep]
    if "bias" in one.weights:
        one.weights["bias"] = one.weights["bias"][keep]
    left = rows[:, keep]
    shape = (*after.shape[:2], -1, after.shape[-1]) if other.convolves else (-1, after.shape[-1])
    other.weights["kernel"] = left.reshape(shape)
    return True
