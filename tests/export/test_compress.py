"""Smaller networks have the outputs of the ones they come from."""

import jax
import numpy as np
import pytest

import compositefl as cfl
from compositefl.export.measure import Measured, table
from compositefl.models.base import cross_entropy, from_network
from compositefl.models.layers import Activation, Conv3x3, Dense, Flatten, MaxPool2x2, Network, Pad


def random_params(model, seed=0):
    """Parameters of the model's shapes, none of them zero."""
    rng = np.random.default_rng(seed)
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    return jax.tree.map(lambda a: rng.normal(size=a.shape).astype(np.float32), shapes)


def same_outputs(small, x):
    before = small.original.apply(small.original_params, x)
    np.testing.assert_allclose(small.model.apply(small.params, x), before, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(1).normal(size=(7, 6)).astype(np.float32)


@pytest.mark.parametrize("activation", ["sigmoid", "relu", "gelu"])
def test_units_that_nobody_reads_and_constant_ones_go(activation, x):
    model = cfl.models.mlp((6, 5, 4, 3), activation=activation)
    params = random_params(model)
    params["dense0"]["kernel"][:, 1] = 0  # constant: activation(bias)
    params["dense1"]["kernel"][3] = 0  # not read
    params["dense0"]["kernel"][2] = 0  # an input that is not read
    small = cfl.compress(params, model)
    shapes = {name: layer["kernel"].shape for name, layer in small.params.items()}
    assert shapes == {"dense0": (5, 3), "dense1": (3, 4), "dense2": (4, 3)}
    assert small.inputs == (0, 1, 3, 4, 5)
    same_outputs(small, x)


def test_what_goes_lets_more_go(x):
    """Unit 0 of the last hidden layer is not read, and it alone read unit 2 of the one before."""
    model = cfl.models.mlp((6, 3, 2, 3), activation="tanh")
    params = random_params(model)
    params["dense2"]["kernel"][0] = 0
    params["dense1"]["kernel"][2, 1] = 0
    small = cfl.compress(params, model)
    assert small.params["dense0"]["kernel"].shape == (6, 2)
    assert small.params["dense1"]["kernel"].shape == (2, 1)
    assert small.summary() == "23 of 38 parameters are left"
    same_outputs(small, x)


def test_a_network_of_zeros_keeps_a_unit(x):
    model = cfl.models.mlp((6, 5, 3), activation="sigmoid")
    params = jax.tree.map(np.zeros_like, random_params(model))
    params["dense1"]["bias"] += 2
    small = cfl.compress(params, model)
    assert small.params["dense0"]["kernel"].shape == (6, 1)
    same_outputs(small, x)


def test_channels_go():
    layers = (
        *(Pad(1), Conv3x3(4), Activation("relu"), MaxPool2x2()),
        *(Conv3x3(3), Activation("relu"), MaxPool2x2(), Flatten(), Dense(5)),
    )
    model = from_network("small", Network((6, 6, 2), layers), cross_entropy, 5)
    params = random_params(model)
    params["conv1"]["kernel"][:, :, 2] = 0  # channel 2 of the first convolution is not read
    params["conv0"]["kernel"][..., 1] = 0  # a constant channel: of 0 it may go ...
    params["conv0"]["bias"][1] = -1
    params["conv0"]["kernel"][..., 3] = 0  # ... of 1 it may not: the border shows it
    params["conv0"]["bias"][3] = 1
    params["conv1"]["kernel"][..., 0] = 0  # a constant channel before a dense layer
    small = cfl.compress(params, model)
    shapes = {name: layer["kernel"].shape for name, layer in small.params.items()}
    assert shapes == {"conv0": (3, 3, 2, 2), "conv1": (3, 3, 2, 2), "dense0": (8, 5)}
    same_outputs(small, np.random.default_rng(2).normal(size=(3, 6, 6, 2)).astype(np.float32))


def test_a_result_of_this_session_knows_its_model():
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(9, 4)), rng.integers(0, 3, 9)) for _ in range(3)]
    problem = cfl.models.mlp((4, 6, 3)).problem(clients)
    algorithm = cfl.FedNMap(gamma=1.0, local_steps=3, local_lr=0.2)
    options = dict(rounds=4, trials=2, progress=False)
    phi = cfl.ByName({"*kernel": cfl.GroupLasso(0.2), "*": cfl.Zero()})
    result = cfl.minimize(problem, phi, algorithm, **options)
    with pytest.raises(cfl.CompositeFLError, match="trials 0 to 1"):
        cfl.compress(result)
    small = cfl.compress(result, trial=1)
    x = clients[0][0].astype(np.float32)
    same_outputs(small, x)
    rows = small.measure(x, repeats=1)
    assert rows[0].bytes == 4 * problem.parameter_count > rows[1].bytes


def test_what_cannot_be_compressed_says_so(lasso_problem):
    def own(params, batch):
        return (batch[0] @ params).mean()

    with pytest.raises(cfl.CompositeFLError, match="needs model="):
        cfl.compress({"w": np.ones(3)})
    own_model = cfl.models.Model("own", lambda key: np.ones(3), own, own)
    with pytest.raises(cfl.CompositeFLError, match="not your own loss"):
        cfl.compress(np.ones(3), own_model)
    vision = cfl.models.resnet18()
    with pytest.raises(cfl.CompositeFLError, match="has a layer"):
        cfl.compress({}, vision)


def test_the_table_has_ratios():
    from rich.console import Console

    console = Console(width=80)
    with console.capture() as captured:
        console.print(table([Measured("a", 4000, 0.002), Measured("b", 1000, 0.001)]))
    assert captured.get().splitlines()[-2].split() == ["b", "1", "25%", "1", "50%"]
