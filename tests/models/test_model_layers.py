"""Layers against the native operations of JAX, and the networks made of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from compositefl.core.errors import CompositeFLError
from compositefl.models import layers


def normals(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def native_conv(params, x):
    out = lax.conv_general_dilated(
        x, params["kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return out + params["bias"]


def native_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


@pytest.mark.parametrize(("size", "inputs", "outputs"), [((28, 28), 1, 4), ((6, 10), 3, 5)])
def test_conv_is_the_native_one(size, inputs, outputs):
    layer = layers.Conv3x3(outputs)
    params, shape = layer.init(jax.random.key(0), (*size, inputs))
    params["bias"] = normals(outputs)
    x = normals(2, *size, inputs)
    assert shape == (*size, outputs)

    def evaluate(function):
        def loss(p, x):
            out = function(p, x)
            return jnp.sum(jnp.sin(out)), out

        return jax.jit(jax.grad(loss, (0, 1), has_aux=True))(params, x)

    ours, out = evaluate(layer.apply)
    native, expected = evaluate(native_conv)
    np.testing.assert_allclose(out, expected, atol=1e-5)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(native), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-4)


def test_conv_under_vmap_over_parameters():
    layer = layers.Conv3x3(3)
    many = jax.vmap(lambda key: layer.init(key, (8, 8, 2))[0])(
        jax.random.split(jax.random.key(1), 4)
    )
    x = normals(4, 5, 8, 8, 2)
    out = jax.jit(jax.vmap(layer.apply))(many, x)
    for i in range(4):
        one = jax.tree.map(lambda leaf, i=i: leaf[i], many)
        np.testing.assert_allclose(out[i], native_conv(one, x[i]), atol=1e-5)


def test_max_pool_is_the_native_one():
    x = normals(3, 8, 6, 4)
    layer = layers.MaxPool2x2()
    np.testing.assert_array_equal(layer.apply(None, x), native_pool(x))
    ours = jax.grad(lambda x: jnp.sum(layer.apply(None, x) ** 2))(x)
    native = jax.grad(lambda x: jnp.sum(native_pool(x) ** 2))(x)
    np.testing.assert_allclose(ours, native, rtol=1e-6)
    assert layer.init(jax.random.key(0), (8, 6, 4))[1] == native_pool(x).shape[1:]


def plain_conv(params, x):
    _, height, width, channels = x.shape
    padded = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifts = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    patches = jnp.concatenate(shifts, axis=-1)
    return patches @ params["kernel"].reshape(9 * channels, -1) + params["bias"]


@pytest.mark.parametrize(("inputs", "outputs"), [(1, 16), (3, 5)])
def test_conv_has_the_gradients_of_the_plain_product(inputs, outputs):
    """With patches narrower and wider than the outputs, over two clients."""
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        kernel, bias = rng.normal(size=(2, 3, 3, inputs, outputs)), rng.normal(size=(2, outputs))
        params, x = {"kernel": kernel, "bias": bias}, rng.normal(size=(2, 4, 6, 8, inputs))

        def evaluate(conv):
            def loss(p, x):
                out = conv(p, x)
                return jnp.sum(jnp.sin(out)), out

            return jax.jit(jax.vmap(jax.grad(loss, (0, 1), has_aux=True)))(params, x)

        ours, plain = evaluate(layers.Conv3x3(outputs).apply), evaluate(plain_conv)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(plain), strict=True):
            assert a.dtype == np.float64
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_pad_and_flatten():
    x = normals(2, 3, 4, 1)
    padded = layers.Pad(2).apply(None, x)
    assert padded.shape[1:] == layers.Pad(2).init(jax.random.key(0), (3, 4, 1))[1] == (7, 8, 1)
    np.testing.assert_array_equal(padded[:, 2:-2, 2:-2], x)
    assert float(jnp.abs(padded).sum()) == pytest.approx(float(np.abs(x).sum()))
    np.testing.assert_array_equal(layers.Flatten().apply(None, x), x.reshape(2, 12))


@pytest.mark.parametrize(
    ("scale", "variance"), [("he", 2 / (9 * 40)), ("glorot", 2 / (9 * 90)), ("zeros", 0)]
)
def test_initial_variance(scale, variance):
    kernel = layers.normal_kernel(jax.random.key(0), (3, 3, 40, 50), scale)
    assert float(kernel.var()) == pytest.approx(variance, rel=0.05)
    assert abs(float(kernel.mean())) <= 0.002


def test_initial_scale_by_activation():
    assert layers.initial_scale("relu") == layers.initial_scale("gelu") == "he"
    assert layers.initial_scale("sigmoid") == layers.initial_scale(None) == "glorot"


def test_network_names_shapes_and_bias():
    network = layers.Network(
        (4, 4, 1),
        (
            layers.Conv3x3(2),
            layers.MaxPool2x2(),
            layers.Flatten(),
            layers.Dense(3),
            layers.Activation("tanh"),
            layers.Dense(2, bias=False),
        ),
    )
    shapes = jax.tree.map(jnp.shape, network.init(jax.random.key(0)))
    assert shapes == {
        "conv0": {"kernel": (3, 3, 1, 2), "bias": (2,)},
        "dense0": {"kernel": (8, 3), "bias": (3,)},
        "dense1": {"kernel": (3, 2)},
    }


def test_network_takes_any_number_of_leading_axes_and_flat_samples():
    network = layers.Network((4, 4, 1), (layers.Conv3x3(2), layers.Flatten(), layers.Dense(3)))
    params = network.init(jax.random.key(0))
    x = normals(6, 4, 4, 1)
    out = network.apply(params, x)
    assert out.shape == (6, 3)
    for same in (x.reshape(6, 16), x.reshape(6, 4, 4)):
        np.testing.assert_array_equal(network.apply(params, same), out)
    np.testing.assert_array_equal(
        network.apply(params, x.reshape(2, 3, 4, 4, 1)).reshape(6, 3), out
    )
    np.testing.assert_allclose(network.apply(params, x[0]), out[0], rtol=1e-5)
    with pytest.raises(
        CompositeFLError, match=r"samples of shape \(4, 4, 1\); x has shape \(6, 15\)"
    ):
        network.apply(params, x.reshape(6, 16)[:, :15])


def test_layers_draw_different_numbers():
    network = layers.Network((5,), (layers.Dense(5), layers.Dense(5)))
    params = network.init(jax.random.key(0))
    assert not np.allclose(params["dense0"]["kernel"], params["dense1"]["kernel"])
