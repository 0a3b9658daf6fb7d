"""Layers as frozen dataclasses: `init(key, shape)` makes parameters, `apply(params, x)` uses them.

Convolutions are matrix products on shifted slices and pooling is a reshape: under vmap over clients
a native convolution becomes a grouped one, which is slow on CPUs. x always has one leading axis,
the samples. Two networks with equal layers are equal and hash alike.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Protocol, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.core.types import Array, Params

Shape: TypeAlias = tuple[int, ...]

ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "sigmoid": jax.nn.sigmoid,
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "softplus": jax.nn.softplus,
    "elu": jax.nn.elu,
}


def check_activation(name: str) -> str:
    """The name, if it is known."""
    if name not in ACTIVATIONS:
        raise unknown_name("activation", name, ACTIVATIONS)
    return name


def initial_scale(activation: str | None) -> str:
    """He's scale before a rectifier, Glorot's before a saturating function and at the output."""
    return "glorot" if activation in (None, "sigmoid", "tanh") else "he"


def normal_kernel(key: jax.Array, shape: Shape, scale: str) -> jax.Array:
    """A kernel (..., in, out): normals of variance 2/(fan in + fan out) (glorot) or 2/fan in (he).

    "zeros" ignores the key: the usual start of a convex model.
    """
    if scale == "zeros":
        return jnp.zeros(shape)
    window = math.prod(shape[:-2])
    fan_in, fan_out = window * shape[-2], window * shape[-1]
    fan = fan_in if scale == "he" else fan_in + fan_out
    return jax.random.normal(key, shape) * math.sqrt(2 / fan)


class Layer(Protocol):
    """What a network is made of; params are None where a layer has none."""

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]: ...

    def apply(self, params: Params, x: jax.Array) -> jax.Array: ...


@dataclasses.dataclass(frozen=True)
class Dense:
    """x @ kernel + bias."""

    units: int
    scale: str = "glorot"
    bias: bool = True
    kind = "dense"

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        (inputs,) = shape
        params = {"kernel": normal_kernel(key, (inputs, self.units), self.scale)}
        if self.bias:
            params["bias"] = jnp.zeros(self.units)
        return params, (self.units,)

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        out = x @ params["kernel"]
        return out + params["bias"] if self.bias else out


@jax.custom_vjp
def patch_product(patches: jax.Array, kernel: jax.Array) -> jax.Array:
    """patches @ kernel, whose gradient in the kernel transposes the narrower of its two factors.

    XLA copies that factor. JAX would always transpose the gradient of the result: for images of
    one channel an array three times as large as their patches.
    """
    return patches @ kernel


def _patch_product_forward(
    patches: jax.Array, kernel: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return patches @ kernel, (patches, kernel)


def _patch_product_backward(
    kept: tuple[jax.Array, jax.Array], gradient: jax.Array
) -> tuple[jax.Array, jax.Array]:
    patches, kernel = kept
    axes = tuple(range(patches.ndim - 1))
    if patches.shape[-1] < gradient.shape[-1]:
        in_kernel = jnp.tensordot(patches, gradient, (axes, axes))
    else:
        in_kernel = jnp.tensordot(gradient, patches, (axes, axes)).T
    return gradient @ kernel.T, in_kernel


patch_product.defvjp(_patch_product_forward, _patch_product_backward)


@dataclasses.dataclass(frozen=True)
class Conv3x3:
    """A 3x3 convolution that keeps height and width; kernel (3, 3, channels in, channels out)."""

    channels: int
    scale: str = "he"
    kind = "conv"

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        kernel = normal_kernel(key, (3, 3, shape[-1], self.channels), self.scale)
        params = {"kernel": kernel, "bias": jnp.zeros(self.channels)}
        return params, (*shape[:-1], self.channels)

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        _, height, width, channels = x.shape
        padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
        shifts = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
        patches = jnp.concatenate(shifts, axis=-1)
        return patch_product(patches, params["kernel"].reshape(9 * channels, -1)) + params["bias"]


@dataclasses.dataclass(frozen=True)
class MaxPool2x2:
    """The maximum of each 2x2 block."""

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        height, width, channels = shape
        return None, (height // 2, width // 2, channels)

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        samples, height, width, channels = x.shape
        blocks = x.reshape(samples, height // 2, 2, width // 2, 2, channels)
        return blocks.max(axis=(2, 4))


@dataclasses.dataclass(frozen=True)
class Pad:
    """A border of zeros around an image."""

    border: int

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        height, width, channels = shape
        return None, (height + 2 * self.border, width + 2 * self.border, channels)

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        border = (self.border, self.border)
        return jnp.pad(x, ((0, 0), border, border, (0, 0)))


@dataclasses.dataclass(frozen=True)
class Flatten:
    """All axes of a sample into one."""

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        return None, (math.prod(shape),)

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        return x.reshape(x.shape[0], -1)


@dataclasses.dataclass(frozen=True)
class Activation:
    """A function of each entry, by its name in `ACTIVATIONS`."""

    name: str

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        return None, shape

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        return ACTIVATIONS[self.name](x)


@dataclasses.dataclass(frozen=True)
class Select:
    """Some of the inputs, in this order."""

    indices: tuple[int, ...]

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        return None, (len(self.indices),)

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        return x[:, np.array(self.indices)]


@dataclasses.dataclass(frozen=True)
class Network:
    """Layers one after the other. Parameters are named dense0, dense1, conv0, ...

    squeeze: drop the last axis, for networks with one output.
    """

    input_shape: Shape
    layers: tuple[Layer, ...]
    squeeze: bool = False

    @functools.partial(jax.jit, static_argnums=0)
    def init(self, key: jax.Array) -> Params:
        """Parameters drawn from the key; one compiled program, and the same numbers everywhere."""
        params, shape = {}, self.input_shape
        keys = jax.random.split(key, len(self.layers))
        for name, layer, layer_key in zip(self.names(), self.layers, keys, strict=True):
            made, shape = layer.init(layer_key, shape)
            if name:
                params[name] = made
        return params

    def apply(self, params: Params, x: Array) -> jax.Array:
        """Outputs for x of shape (..., *input_shape), or (samples, ...) of as many entries."""
        shape, rank = np.shape(x), len(self.input_shape)
        leading = shape[:-rank] if shape[-rank:] == self.input_shape else shape[:1]
        return self.apply_to(params, x, leading)

    def apply_to(self, params: Params, x: Array, leading: Shape) -> jax.Array:
        """Outputs for samples whose leading axes are known, in whatever shape each sample comes."""
        if np.size(x) != math.prod(leading) * math.prod(self.input_shape):
            raise CompositeFLError(
                f"the model takes samples of shape {self.input_shape}; "
                f"x has shape {np.shape(x)} for {math.prod(leading)} samples"
            )
        # An array of JAX: float64 data become float32 here, without a warning, not in the loss.
        out = jnp.reshape(jnp.asarray(x), (-1, *self.input_shape))
        for name, layer in zip(self.names(), self.layers, strict=True):
            out = layer.apply(params[name] if name else None, out)
        return out.reshape(leading if self.squeeze else (*leading, out.shape[-1]))

    def names(self) -> list[str | None]:
        """Of each layer the name of its parameters, None where it has none."""
        names: list[str | None] = []
        for at, layer in enumerate(self.layers):
            kind = getattr(layer, "kind", None)
            before = sum(getattr(other, "kind", None) == kind for other in self.layers[:at])
            names.append(f"{kind}{before}" if kind else None)
        return names
