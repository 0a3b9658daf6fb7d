"""Layers of deep image networks: convolutions with batch normalisation, and blocks of them.

As in `layers`, convolutions are matrix products and pooling is a few maxima, fast under vmap over
clients. A depthwise convolution is a sum of shifted products. Kernels start as in torchvision, as
normals of variance 2/fan out.

Batch normalisation uses the mean and variance of the batch at hand, in training and in evaluation,
and keeps no running averages: nothing but parameters has to be sent or averaged, and the loss stays
a function of (parameters, batch). It is no longer a mean over samples: a model with it says so by
`coupled=True`.
"""

import dataclasses
import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from compositefl.core.types import Params
from compositefl.models.layers import Dense, Layer, Shape, patch_product

FUNCTIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
    "relu": jax.nn.relu,
    "hardswish": jax.nn.hard_swish,
    "none": lambda x: x,
}


def out_size(size: int, kernel: int, stride: int) -> int:
    """Entries along one axis after a convolution that pads with kernel // 2 zeros at both ends."""
    return (size + 2 * (kernel // 2) - kernel) // stride + 1


def reach(size: int, kernel: int, stride: int) -> range:
    """The positions of the window, along one axis, that ever meet the image and not only zeros.

    On an image of one pixel a 5x5 kernel is a 1x1 kernel.
    """
    pad, last = kernel // 2, stride * (out_size(size, kernel, stride) - 1)
    return range(max(0, pad - last), min(kernel, pad + size))


def windows(x: jax.Array, kernel: int, stride: int, fill: float = 0.0) -> list[jax.Array]:
    """The image as each position of the window in reach sees it, rows first."""
    _, height, width, _ = x.shape
    pad = kernel // 2
    padded = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=fill)
    tall = stride * (out_size(height, kernel, stride) - 1) + 1
    wide = stride * (out_size(width, kernel, stride) - 1) + 1
    return [
        padded[:, i : i + tall : stride, j : j + wide : stride]
        for i in reach(height, kernel, stride)
        for j in reach(width, kernel, stride)
    ]


def convolve(x: jax.Array, kernel: jax.Array, stride: int, depthwise: bool) -> jax.Array:
    """The convolution of images, with window // 2 zeros around them.

    kernel (window, window, channels in, channels out), or (window, window, 1, channels) for a
    depthwise one: each channel with its own kernel.
    """
    _, height, width, _ = x.shape
    window, channels = kernel.shape[0], kernel.shape[-1]
    rows, columns = (reach(n, window, stride) for n in (height, width))
    kernel = kernel[rows.start : rows.stop, columns.start : columns.stop]
    seen = windows(x, window, stride)
    if depthwise:
        weights = kernel.reshape(len(seen), channels)
        return functools.reduce(jnp.add, [a * w for a, w in zip(seen, weights, strict=True)])
    patches = seen[0] if len(seen) == 1 else jnp.concatenate(seen, axis=-1)
    return patch_product(patches, kernel.reshape(-1, channels))


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _normalised(x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float) -> jax.Array:
    """scale * (x - mean) / sqrt(variance + epsilon) + bias, whose gradient takes two sums over x.

    Differentiated step by step it takes four, and sums over the samples are slow on CPUs.
    """
    return _normalised_forward(x, scale, bias, epsilon)[0]


def _normalised_forward(
    x: jax.Array, scale: jax.Array, bias: jax.Array, epsilon: float
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    # E x^2 - (E x)^2 is faster than E (x - E x)^2, both sums in one pass (docs/decisions.md);
    # epsilon is far above its rounding error for the means that convolutions give.
    mean, square = jnp.mean(x, axis=(0, 1, 2)), jnp.mean(jnp.square(x), axis=(0, 1, 2))
    variance = jnp.maximum(square - jnp.square(mean), 0)
    inverse = jax.lax.rsqrt(variance + epsilon)
    factor = scale * inverse
    return x * factor + (bias - mean * factor), (x, scale, mean, inverse)


def _normalised_backward(
    epsilon: float, kept: tuple[jax.Array, ...], gradient: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    x, scale, mean, inverse = kept
    entries = x.size // x.shape[-1]
    in_bias = jnp.sum(gradient, axis=(0, 1, 2))
    in_scale = (jnp.sum(gradient * x, axis=(0, 1, 2)) - mean * in_bias) * inverse
    factor = scale * inverse
    slope = factor * inverse * in_scale / entries
    # factor * (gradient - E gradient - normalised x * E (gradient * normalised x))
    in_x = factor * gradient - slope * x + (slope * mean - factor * in_bias / entries)
    return in_x, in_scale, in_bias


_normalised.defvjp(_normalised_forward, _normalised_backward)


@dataclasses.dataclass(frozen=True)
class BatchNorm:
    """scale * (x - mean) / sqrt(variance + epsilon) + bias, over samples, height and width."""

    epsilon: float

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        return {"scale": jnp.ones(shape[-1]), "bias": jnp.zeros(shape[-1])}, shape

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        return _normalised(x, params["scale"], params["bias"], self.epsilon)


@dataclasses.dataclass(frozen=True)
class ConvNorm:
    """A convolution without bias (`convolve`), batch normalisation, a function of each entry."""

    channels: int
    window: int = 1
    stride: int = 1
    depthwise: bool = False
    function: str = "none"
    epsilon: float = 1e-5
    kind = "conv"

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        height, width, inputs = shape
        size = (self.window, self.window, 1 if self.depthwise else inputs, self.channels)
        fan_out = self.window * self.window * self.channels  # in torch for depthwise ones too
        kernel = jax.random.normal(key, size) * math.sqrt(2 / fan_out)
        norm, _ = BatchNorm(self.epsilon).init(key, size)
        out = tuple(out_size(n, self.window, self.stride) for n in (height, width))
        return {"kernel": kernel, "norm": norm}, (*out, self.channels)

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        out = convolve(x, params["kernel"], self.stride, self.depthwise)
        return FUNCTIONS[self.function](BatchNorm(self.epsilon).apply(params["norm"], out))


@dataclasses.dataclass(frozen=True)
class Linear(Dense):
    """x @ kernel + bias; the kernel starts as normals of this standard deviation."""

    deviation: float = 0.01

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        kernel = jax.random.normal(key, (*shape, self.units)) * self.deviation
        return {"kernel": kernel, "bias": jnp.zeros(self.units)}, (self.units,)


@dataclasses.dataclass(frozen=True)
class SqueezeExcite:
    """x times a factor for each channel, computed from the channels' means by two dense layers."""

    units: int

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        squeeze, excite = self._layers(shape[-1])
        keys = jax.random.split(key)
        params, inner = squeeze.init(keys[0], shape[-1:])
        return {"squeeze": params, "excite": excite.init(keys[1], inner)[0]}, shape

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        squeeze, excite = self._layers(x.shape[-1])
        inner = jax.nn.relu(squeeze.apply(params["squeeze"], jnp.mean(x, axis=(1, 2))))
        factor = jax.nn.hard_sigmoid(excite.apply(params["excite"], inner))
        return x * factor[:, None, None]

    def _layers(self, channels: int) -> tuple[Linear, Linear]:
        squeeze = Linear(self.units, deviation=math.sqrt(2 / self.units))
        return squeeze, Linear(channels, deviation=math.sqrt(2 / channels))


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of each entry, by its name in `FUNCTIONS`."""

    name: str

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        return None, shape

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        return FUNCTIONS[self.name](x)


@dataclasses.dataclass(frozen=True)
class GlobalMean:
    """The mean of each channel over the image."""

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        return None, shape[-1:]

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        return jnp.mean(x, axis=(1, 2))


@dataclasses.dataclass(frozen=True)
class MaxPool3x3:
    """The maximum of each 3x3 window, in steps of 2; the border counts as minus infinity."""

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        height, width, channels = shape
        return None, (out_size(height, 3, 2), out_size(width, 3, 2), channels)

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        first, *others = windows(x, 3, 2, -jnp.inf)
        for other in others:
            first = jnp.maximum(first, other)
        return first


@dataclasses.dataclass(frozen=True)
class Residual:
    """Named layers one after the other; `skip` adds x to their result, or a layer applied to x.

    after: the function of the sum.
    """

    parts: tuple[tuple[str, Layer], ...]
    skip: bool | Layer  # True, False or a layer
    after: str = "none"
    kind = "block"

    def init(self, key: jax.Array, shape: Shape) -> tuple[Params, Shape]:
        params, start = {}, shape
        keys = jax.random.split(key, len(self.parts) + 1)
        for (name, layer), own in zip(self.parts, keys[:-1], strict=True):
            params[name], shape = layer.init(own, shape)
        if not isinstance(self.skip, bool):
            params["skip"], _ = self.skip.init(keys[-1], start)
        return params, shape

    def apply(self, params: Params, x: jax.Array) -> jax.Array:
        out = x
        for name, layer in self.parts:
            out = layer.apply(params[name], out)
        if self.skip is True:
            out = out + x
        elif self.skip:
            out = out + self.skip.apply(params["skip"], x)
        return FUNCTIONS[self.after](out)
