"""What the datasets hold."""

import gzip
import hashlib
import io
import tarfile

import jax
import numpy as np
import pytest

import compositefl.data as data
from compositefl.core.errors import CompositeFLError
from compositefl.data import a9a, cifar10, files
from tests.conftest import FULL
from tests.data.data_helpers import sha256, write

CLOTHES = [6000] * 10
DIGITS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]


def test_digits():
    digits = data.load("digits")
    assert digits.train.x.shape == (1437, 64) and digits.test.x.shape == (360, 64)
    assert digits.train.x.dtype == np.float32 and digits.train.y.dtype == np.int32
    assert digits.train.x.min() == 0 and digits.train.x.max() == 1
    share = np.bincount(digits.test.y) / (np.bincount(digits.test.y) + np.bincount(digits.train.y))
    assert np.all(np.abs(share - 0.2) < 0.01)
    np.testing.assert_array_equal(digits.train.x, data.load("digits").train.x)
    assert repr(digits) == ("Dataset('digits': 1437 train, 360 test, x 64 float32, 10 classes)")


@pytest.mark.parametrize(("name", "counts"), [("mnist", DIGITS), ("fashion-mnist", CLOTHES)])
def test_mnist_family(real_folder, name, counts):
    loaded = data.load(name, real_folder)
    assert loaded.train.x.shape == (60000, 28, 28, 1) and loaded.test.x.shape == (10000, 28, 28, 1)
    assert np.bincount(loaded.train.y).tolist() == counts
    assert loaded.train.x.min() == 0 and loaded.train.x.max() == 1
    assert loaded.train.x.dtype == np.float32 and loaded.test.y.dtype == np.int32


def test_mnist_is_not_fashion_mnist(real_folder, tmp_path):
    write(tmp_path, {p.name: p.read_bytes() for p in (real_folder / "mnist").iterdir()})
    with pytest.raises(CompositeFLError, match="another dataset's file"):
        data.load("fashion-mnist", tmp_path)


def test_a9a(real_folder):
    loaded = data.load("a9a", real_folder)
    assert loaded.train.x.shape == (32561, 123) and loaded.test.x.shape == (16281, 123)
    assert np.bincount(loaded.train.y).tolist() == [24720, 7841]
    assert np.bincount(loaded.test.y).tolist() == [12435, 3846]
    assert set(np.unique(loaded.train.x)) == {0, 1}
    assert loaded.test.x[:, 122].sum() == 0 and loaded.train.x[:, 122].sum() > 0
    # the first line reads "-1 3:1 11:1 14:1 19:1 39:1 ..."
    assert (np.flatnonzero(loaded.train.x[0]) + 1).tolist()[:5] == [3, 11, 14, 19, 39]


def test_a9a_downloads_the_plain_text(monkeypatch, tmp_path, serve, isolated):
    texts = {"a9a": b"+1 1:1 123:1 \n-1 2:1 \n", "a9a.t": b"-1 5:1 \n"}
    table = tuple((name, len(text), sha256(text)) for name, text in texts.items())
    monkeypatch.setattr(a9a, "FILES", table)
    serve(write(tmp_path / "home", texts))
    loaded = data.load("a9a")
    assert loaded.train.y.tolist() == [1, 0] and loaded.test.y.tolist() == [0]
    assert loaded.train.x[0, 122] == 1 and loaded.test.x.shape == (1, 123)
    assert (isolated / "a9a" / "a9a.t").read_bytes() == texts["a9a.t"]
    packed = {f"{name}.gz": gzip.compress(text) for name, text in texts.items()}
    again = data.load("a9a", write(tmp_path / "packed", packed))
    np.testing.assert_array_equal(again.train.x, loaded.train.x)


@pytest.mark.skipif(not FULL, reason="in make test-full: 180 MB are unpacked and hashed")
def test_cifar10_npz_gives_back_the_published_records(real_folder):
    loaded = data.load("cifar10", real_folder)
    assert loaded.train.x.shape == (50000, 32, 32, 3) and loaded.test.x.shape == (10000, 32, 32, 3)
    assert loaded.train.x.dtype == np.float32 and loaded.train.x.max() == 1
    for samples, md5 in (
        (data.take(loaded.train, slice(10000, 20000)), "5ea93a67294ea407fff1d09f752e9692"),
        (loaded.test, "803d5f7f4d78ea53de84dbe85f74fb6d"),
    ):
        planes = np.rint(samples.x.transpose(0, 3, 1, 2) * 255).astype(np.uint8).reshape(-1, 3072)
        records = np.concatenate([samples.y[:, None].astype(np.uint8), planes], axis=1)
        assert hashlib.md5(records.tobytes()).hexdigest() == md5


@pytest.fixture
def mini_cifar(monkeypatch):
    """Six batches of two records, in place of the published ones."""
    rng = np.random.default_rng(1)
    batches = {name: rng.integers(0, 10, (2, 3073), np.uint8) for name in cifar10.BATCHES}
    hashes = {name: sha256(batch.tobytes()) for name, batch in batches.items()}
    monkeypatch.setattr(cifar10, "BATCH", 2)
    monkeypatch.setattr(cifar10, "BATCHES", hashes)
    return batches


def tar(batches):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name in ["readme.html", *reversed(batches)]:  # the order in the tar must not matter
            content = batches[name].tobytes() if name in batches else b"hello"
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def test_cifar10_from_the_published_tar(mini_cifar, monkeypatch, tmp_path, serve):
    packed = tar(mini_cifar)
    file = files.File(cifar10._FILE.names, cifar10._FILE.remote, sha256(packed))
    monkeypatch.setattr(cifar10, "_FILE", file)
    serve(write(tmp_path, {"cifar-10-binary.tar.gz": packed}))
    loaded = data.load("cifar10")
    assert loaded.train.x.shape == (10, 32, 32, 3) and loaded.test.x.shape == (2, 32, 32, 3)
    second = mini_cifar["data_batch_2.bin"]
    np.testing.assert_array_equal(loaded.train.y[2:4], second[:, 0])
    # record: label, then the red plane row by row, then green, then blue
    assert np.rint(loaded.train.x[3, 5, 7, 2] * 255) == second[1, 1 + 2 * 1024 + 5 * 32 + 7]
    np.testing.assert_array_equal(loaded.test.y, mini_cifar["test_batch.bin"][:, 0])


def test_cifar10_tar_with_a_changed_or_missing_batch(mini_cifar, tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    changed = dict(mini_cifar)
    changed["data_batch_3.bin"] = changed["data_batch_3.bin"] ^ 1
    path.write_bytes(tar(changed))
    with pytest.raises(CompositeFLError, match=r"in data_batch_3\.bin, expected"):
        data.load("cifar10", tmp_path)
    del changed["data_batch_3.bin"]
    path.write_bytes(tar(changed))
    with pytest.raises(CompositeFLError, match=r"lacks data_batch_3\.bin"):
        data.load("cifar10", tmp_path)
    path.write_bytes(tar(mini_cifar)[:-3000])
    with pytest.raises(CompositeFLError, match="cannot be read"):
        data.load("cifar10", tmp_path)


def test_cifar10_npz_with_a_wrong_hash(tmp_path):
    write(tmp_path, {"cifar10.npz": b"PK"})
    with pytest.raises(CompositeFLError, match=f"{sha256(b'PK')}, expected {cifar10.NPZ_SHA256}"):
        data.load("cifar10", tmp_path)


def test_unknown_names():
    with pytest.raises(CompositeFLError, match="did you mean 'fashion-mnist'"):
        data.load("fashion_mnist")
    with pytest.raises(CompositeFLError, match="'digits' has no option 'seed'; it takes none"):
        data.load("digits", seed=1)
    with pytest.raises(CompositeFLError, match="no option 'client'; it takes alpha, beta, clients"):
        data.load("synthetic", client=3)


@pytest.mark.parametrize("name", ["digits", "synthetic"])
def test_a_folder_where_there_are_no_files(name, tmp_path):
    with pytest.raises(CompositeFLError) as caught:
        data.load(name, tmp_path)
    expected = f"folder={tmp_path} does not go here: dataset '{name}' needs no files"
    assert str(caught.value) == expected


def test_every_listed_dataset_can_be_asked_for():
    for name in data.DATASETS:
        if name in ("digits", "synthetic"):
            assert data.load(name).name == name
        else:
            with pytest.raises(CompositeFLError, match=f"dataset '{name}' needs"):
                data.load(name)


def test_sample_count_and_take():
    batch = {"x": np.arange(6).reshape(3, 2), "more": (np.arange(3),)}
    assert data.sample_count(batch) == 3
    taken = data.take(batch, np.array([2, 0]))
    assert taken["x"].tolist() == [[4, 5], [0, 1]] and taken["more"][0].tolist() == [2, 0]
    for wrong in ({"x": np.zeros(3), "y": np.zeros(4)}, {"x": np.float32(1)}, ()):
        with pytest.raises(CompositeFLError, match="leading axis"):
            data.sample_count(wrong)
    assert len(jax.tree.leaves(data.Samples(np.zeros(2), np.zeros(2)))) == 2
