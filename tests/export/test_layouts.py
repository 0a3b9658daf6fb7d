"""CSR, 2:4 and ONNX hold the model they were made from."""

import numpy as np
import pytest
import scipy.sparse
import torch
from torch.sparse import _semi_structured_conversions as conversions

import compositefl as cfl
from compositefl.export import pack_two_four, to_csr, to_onnx
from compositefl.models.base import cross_entropy, from_network
from compositefl.models.layers import Activation, Conv3x3, Dense, Flatten, MaxPool2x2, Network, Pad
from tests.export.test_compress import random_params

onnxruntime = pytest.importorskip("onnxruntime")


def test_sparse_matrices_become_csr():
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=(3, 3, 2, 4)) * (rng.random((3, 3, 2, 4)) < 0.2)
    full = rng.normal(size=(5, 2))
    made = to_csr({"conv": {"kernel": kernel, "bias": np.zeros(4)}, "dense": full})
    assert isinstance(made["conv/kernel"], scipy.sparse.csr_array)
    assert np.array_equal(made["conv/kernel"].toarray(), kernel.reshape(18, 4))
    assert made["dense"] is not None and np.array_equal(made["dense"], full)
    assert made["conv/bias"].shape == (4,)


@pytest.mark.parametrize("shape", [(32, 32), (64, 96), (96, 64)])
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_torch_reads_the_packed_two_four_matrix(shape, share):
    rng = np.random.default_rng(0)
    dense = rng.integers(1, 99, size=shape).astype(np.float32) * (rng.random(shape) < share)
    groups = dense.reshape(-1, 4)
    out = rng.permuted(np.tile(np.arange(4), (len(groups), 1)), axis=1)[:, :2]
    np.put_along_axis(groups, out, 0, axis=1)
    packed = pack_two_four(dense)
    back = conversions.sparse_semi_structured_to_dense_cutlass(
        torch.from_numpy(packed.values), torch.from_numpy(packed.metadata)
    )
    assert np.array_equal(back.float().numpy(), dense)
    assert packed.values.nbytes + packed.metadata.nbytes == dense.size * 2 * 9 // 16


def test_what_is_not_two_four_is_refused():
    with pytest.raises(cfl.CompositeFLError, match="row 0, columns 0 to 3"):
        pack_two_four(np.ones((32, 32)))
    with pytest.raises(cfl.CompositeFLError, match="multiple of 32"):
        pack_two_four(np.zeros((4, 32)))


def outputs(path, x):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize("activation", sorted(cfl.models.ACTIVATIONS))
def test_onnxruntime_has_the_outputs_of_a_dense_network(activation, tmp_path):
    model = cfl.models.mlp((6, 5, 3), activation=activation)
    params = random_params(model)
    params["dense0"]["kernel"][2] = 0
    x = np.random.default_rng(1).normal(size=(7, 6)).astype(np.float32)
    wanted = np.asarray(model.apply(params, x))
    to_onnx(params, tmp_path / "whole.onnx", model)
    to_onnx(cfl.compress(params, model), tmp_path / "small.onnx")
    np.testing.assert_allclose(outputs(tmp_path / "whole.onnx", x), wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs(tmp_path / "small.onnx", x), wanted, rtol=1e-4, atol=1e-5)


def test_onnxruntime_has_the_outputs_of_convolutions(tmp_path):
    layers = (Pad(1), Conv3x3(4), Activation("relu"), MaxPool2x2(), Flatten(), Dense(5))
    model = from_network("images", Network((6, 4, 2), layers), cross_entropy, 5)
    params = random_params(model)
    x = np.random.default_rng(1).normal(size=(3, 6, 4, 2)).astype(np.float32)
    to_onnx(params, tmp_path / "m.onnx", model)
    wanted = np.asarray(model.apply(params, x))
    np.testing.assert_allclose(outputs(tmp_path / "m.onnx", x), wanted, rtol=1e-4, atol=1e-4)


def test_a_linear_model_has_one_output(tmp_path):
    model = cfl.models.logistic_regression(4, intercept=True)
    params = random_params(model)
    x = np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)
    to_onnx(params, tmp_path / "m.onnx", model)
    wanted = np.asarray(model.apply(params, x))
    assert wanted.shape == (3,)
    np.testing.assert_allclose(outputs(tmp_path / "m.onnx", x), wanted, rtol=1e-5)
