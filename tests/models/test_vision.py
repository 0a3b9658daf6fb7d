"""Image networks: sizes, names, and layers against the native operations of JAX."""

import fnmatch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import compositefl as cfl
from compositefl.core.errors import CompositeFLError
from compositefl.core.trees import named_leaves
from compositefl.models import convolutions, vision
from tests.conftest import FULL


def normals(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def native(x, kernel, stride, depthwise):
    pad = kernel.shape[0] // 2
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        ((pad, pad), (pad, pad)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1] if depthwise else 1,
    )


@pytest.mark.parametrize("depthwise", [False, True])
@pytest.mark.parametrize(
    ("window", "stride", "height", "width"),
    [
        (1, 1, 5, 4),
        (1, 2, 5, 4),
        (3, 1, 6, 5),
        (3, 2, 7, 8),
        (5, 2, 4, 4),
        (5, 1, 2, 2),
        (5, 2, 2, 2),
        (5, 1, 1, 1),
        (3, 1, 1, 1),
        (7, 2, 9, 10),
    ],
)
def test_convolution_is_the_native_one(window, stride, height, width, depthwise):
    channels = 3
    x = normals(2, height, width, channels)
    kernel = normals(window, window, 1 if depthwise else channels, channels if depthwise else 4)

    def evaluate(function):
        def loss(x, kernel):
            out = function(x, kernel, stride, depthwise)
            return jnp.sum(jnp.sin(out)), out

        return jax.jit(jax.grad(loss, (0, 1), has_aux=True))(x, kernel)

    ours, out = evaluate(convolutions.convolve)
    expected, expected_out = evaluate(native)
    np.testing.assert_allclose(out, expected_out, atol=1e-4)
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


def test_convolution_under_vmap_over_clients():
    layer = convolutions.ConvNorm(6, 3, 2, function="hardswish")
    many = jax.vmap(lambda key: layer.init(key, (8, 8, 2))[0])(
        jax.random.split(jax.random.key(1), 4)
    )
    x = normals(4, 5, 8, 8, 2)
    out = jax.jit(jax.vmap(layer.apply))(many, x)
    for i in range(4):
        alone = jax.jit(layer.apply)(jax.tree.map(lambda leaf, i=i: leaf[i], many), x[i])
        np.testing.assert_allclose(out[i], alone, atol=1e-5)


def test_batch_norm_is_its_formula():
    x = 3 + 2 * normals(6, 4, 4, 5)
    params = {"scale": normals(5, seed=1), "bias": normals(5, seed=2)}
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    expected = (x - mean) / np.sqrt(variance + 1e-3) * params["scale"] + params["bias"]
    np.testing.assert_allclose(convolutions.BatchNorm(1e-3).apply(params, x), expected, atol=1e-5)


def test_the_gradients_of_batch_norm_are_those_of_its_formula():
    """The first ones, and the second in a direction, as estimates of the curvature take them."""

    def formula(params, x):
        mean, variance = jnp.mean(x, (0, 1, 2)), jnp.var(x, (0, 1, 2))
        return (x - mean) * lax.rsqrt(variance + 1e-3) * params["scale"] + params["bias"]

    def gradient(apply):
        wanted = normals(6, 4, 4, 5, seed=3).astype(float)
        return jax.grad(lambda at: jnp.sum(jnp.sin(apply(*at) * wanted)))

    with jax.enable_x64(True):
        params = {"scale": jnp.asarray(normals(5, seed=1), float), "bias": jnp.ones(5)}
        at = (params, jnp.asarray(3 + 2 * normals(6, 4, 4, 5), float))
        ours, theirs = gradient(convolutions.BatchNorm(1e-3).apply), gradient(formula)
        pairs = (jax.tree.leaves(jax.jvp(g, (at,), (at,))) for g in (ours, theirs))
        for a, b in zip(*pairs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10)


def test_max_pool_is_the_native_one():
    layer = convolutions.MaxPool3x3()
    for height, width in ((14, 14), (7, 8), (1, 2)):
        x = normals(2, height, width, 3)
        expected = lax.reduce_window(
            x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0))
        )
        np.testing.assert_array_equal(layer.apply(None, x), expected)
        assert layer.init(jax.random.key(0), x.shape[1:])[1] == expected.shape[1:]


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (vision.mobilenet_v3_small(), 1_528_106),
        (vision.resnet18(channels=1), 11_175_370),
        (vision.resnet18(channels=3), 11_181_642),
        (vision.mobilenet_v3_small(100), 1_528_106 + 90 * 1025),
    ],
)
def test_parameter_counts_of_torchvision(model, count):
    assert model.parameter_count() == count
    assert model.coupled


def test_names_and_unpenalised_norms():
    shapes = jax.eval_shape(vision.mobilenet_v3_small().init, jax.random.key(0))
    names = dict(named_leaves(shapes))
    norms = fnmatch.filter(names, "*/norm/*")
    assert {name.rsplit("/", 1)[1] for name in norms} == {"scale", "bias"}
    assert sum(names[name].size for name in norms) == 12_112  # as in torchvision
    assert names["block3/depthwise/kernel"].shape == (5, 5, 1, 96)
    assert names["block10/excitation/squeeze/kernel"].shape == (576, 144)
    phi = cfl.ByName({"*/norm/*": cfl.Zero(), "*": cfl.L1(1.0)})
    ones = jax.tree.map(lambda a: np.ones(a.shape, np.float32), shapes)
    assert float(jax.jit(phi.value)(ones)) == 1_528_106 - 12_112


@pytest.mark.skipif(not FULL, reason="in make test-full; their convolutions are tested above")
@pytest.mark.parametrize(
    ("model", "shape"),
    [(vision.mobilenet_v3_small(), (32, 32, 3)), (vision.resnet18(channels=1), (28, 28, 1))],
)
def test_networks_against_native_convolutions(model, shape, monkeypatch):
    params = model.init(jax.random.key(0))
    # of 2 samples the last layers see two numbers for a channel: rounding becomes 1e-2 there
    x = normals(8, *shape)
    out = jax.jit(lambda p, x: model.apply(p, x))(params, x)
    assert out.shape == (8, 10)
    monkeypatch.setattr(convolutions, "convolve", native)
    expected = jax.jit(lambda p, x: model.apply(p, x))(params, x)
    np.testing.assert_allclose(out, expected, atol=2e-4 * float(jnp.abs(expected).max()))


def test_resnet_refuses_other_channels():
    with pytest.raises(CompositeFLError, match="channels=2 must be 1"):
        vision.resnet18(channels=2)
