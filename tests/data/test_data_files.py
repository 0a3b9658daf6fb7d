"""Where files are found, what is downloaded, and what is refused."""

import gzip

import numpy as np
import pytest

import compositefl.data as data
from compositefl.core.errors import CompositeFLError
from compositefl.data import files, idx
from tests.data.data_helpers import sha256, write

IMAGES = "train-images-idx3-ubyte.gz"


def test_files_lie_in_the_folder_or_in_a_subfolder(mini, tmp_path):
    direct = data.load("mnist", write(tmp_path / "a", mini))
    below = data.load("mnist", write(tmp_path / "b" / "mnist", mini).parent)
    np.testing.assert_array_equal(direct.train.x, below.train.x)
    content = gzip.decompress(mini[IMAGES])[16:]
    pixels = np.frombuffer(content, np.uint8).reshape(12, 28, 28, 1)
    np.testing.assert_array_equal(np.rint(direct.train.x * 255), pixels)
    assert direct.train.x.dtype == np.float32 and direct.train.y.dtype == np.int32
    assert direct.train.y.tolist() == [*range(10), 0, 1]
    assert direct.test.x.shape == (5, 28, 28, 1)


def test_plain_files_are_as_good_as_gzipped_ones(mini, tmp_path):
    plain = {name.removesuffix(".gz"): gzip.decompress(c) for name, c in mini.items()}
    loaded = data.load("mnist", str(write(tmp_path, plain)))
    np.testing.assert_array_equal(loaded.train.y, [*range(10), 0, 1])


def test_the_explicit_folder_goes_before_the_environment_and_the_cache(
    mini, tmp_path, monkeypatch, isolated
):
    bad = {name: b"nothing" for name in mini}
    good = write(tmp_path / "good", mini)
    write(isolated / "mnist", bad)
    monkeypatch.setenv("COMPOSITEFL_DATA", str(write(tmp_path / "bad", bad)))
    data.load("mnist", good)
    with pytest.raises(CompositeFLError, match=str(tmp_path / "bad")):
        data.load("mnist")
    monkeypatch.setenv("COMPOSITEFL_DATA", str(good))
    data.load("mnist")
    monkeypatch.delenv("COMPOSITEFL_DATA")
    with pytest.raises(CompositeFLError, match=str(isolated)):
        data.load("mnist")


def test_the_subfolder_goes_first_because_two_datasets_share_file_names(mini, tmp_path):
    write(tmp_path, {name: b"of another dataset" for name in mini})
    write(tmp_path / "fashion-mnist", mini)
    assert len(data.load("fashion-mnist", tmp_path).train.y) == 12
    with pytest.raises(CompositeFLError, match="another dataset's file"):
        data.load("mnist", tmp_path)


def test_debian_package_compressed_anew(mini, tmp_path, monkeypatch):
    again = {name: gzip.compress(gzip.decompress(c), 1, mtime=1) for name, c in mini.items()}
    assert again[IMAGES] != mini[IMAGES]
    write(tmp_path / "usr" / "share" / "datasets" / "fashion-mnist", again)
    with pytest.raises(CompositeFLError, match="fashion-mnist"):
        data.load("fashion-mnist")
    monkeypatch.setattr(files, "SYSTEM_FOLDERS", (tmp_path / "usr" / "share" / "datasets",))
    assert len(data.load("fashion-mnist").train.y) == 12


@pytest.mark.parametrize("name", [None, "folder"])
def test_a_folder_that_does_not_exist_is_refused(name, tmp_path, monkeypatch):
    folder = tmp_path / "absent"
    if name is None:
        monkeypatch.setenv("COMPOSITEFL_DATA", str(folder))
    with pytest.raises(CompositeFLError, match="absent is not a folder"):
        data.load("mnist", folder if name else None)


def test_wrong_hash_names_file_and_both_hashes(mini, tmp_path):
    content = bytearray(gzip.decompress(mini[IMAGES]))
    content[100] ^= 1
    write(tmp_path, mini | {IMAGES: gzip.compress(content)})
    with pytest.raises(CompositeFLError, match="Delete it and load again") as caught:
        data.load("mnist", tmp_path)
    expected = idx.HASHES["mnist"][0][1]
    for part in (str(tmp_path / IMAGES), sha256(bytes(content)), expected):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: c[:-200], "cannot be read"),
        (lambda c: b"not gzip at all", "cannot be read"),
        (lambda c: c[:40] + b"\xff" * 20 + c[60:], "cannot be read|sha256"),
        (lambda c: gzip.compress(gzip.decompress(c)[:-1]), "has 9423 of the 9424 bytes"),
        (lambda c: gzip.compress(gzip.decompress(c) + b"!"), "more than the 9424 bytes"),
        (lambda c: b"", "has 0 of the 9424 bytes"),
    ],
)
def test_damaged_files(mini, tmp_path, damage, message):
    write(tmp_path, mini | {IMAGES: damage(mini[IMAGES])})
    with pytest.raises(CompositeFLError, match=message) as caught:
        data.load("mnist", tmp_path)
    assert str(tmp_path / IMAGES) in str(caught.value)


def test_absent_and_offline_names_every_missing_file_and_where_to_put_it(mini, tmp_path, isolated):
    write(tmp_path, {IMAGES: mini[IMAGES]})
    with pytest.raises(CompositeFLError) as caught:
        data.load("mnist", tmp_path)
    message = str(caught.value)
    assert "\n" not in message
    for part in ("train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz", str(tmp_path)):
        assert part in message
    assert f"put them into {isolated / 'mnist'}" in message and "no connection" in message
    assert "$COMPOSITEFL_DATA" in message
    assert IMAGES not in message


def test_download_goes_to_the_cache_once(mini, tmp_path, serve, isolated):
    requests = serve(write(tmp_path, mini))
    first = data.load("mnist")
    assert len(requests) == 4
    assert sorted(p.name for p in (isolated / "mnist").iterdir()) == sorted(mini)
    second = data.load("mnist")
    assert len(requests) == 4
    np.testing.assert_array_equal(first.train.x, second.train.x)


def test_only_missing_files_are_downloaded(mini, tmp_path, serve):
    requests = serve(write(tmp_path / "home", mini))
    some = write(tmp_path / "some", {IMAGES: mini[IMAGES]})
    data.load("mnist", some)
    assert sorted(requests) == sorted("/" + name for name in mini if name != IMAGES)


def test_a_wrong_download_is_refused_and_not_kept(mini, tmp_path, serve, isolated):
    serve(write(tmp_path, mini | {IMAGES: b"an error page"}))
    with pytest.raises(CompositeFLError) as caught:
        data.load("mnist")
    assert sha256(b"an error page") in str(caught.value)
    assert sha256(mini[IMAGES]) in str(caught.value)
    assert not (isolated / "mnist" / IMAGES).exists()


def test_a_file_the_server_lacks(mini, tmp_path, serve):
    del mini["t10k-labels-idx1-ubyte.gz"]
    serve(write(tmp_path, mini))
    with pytest.raises(CompositeFLError, match="404"):
        data.load("mnist")
