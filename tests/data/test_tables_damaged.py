"""Files of tables that are damaged, or something else under the name of a table."""

import gzip
import io
import zipfile

import numpy as np
import pytest

from compositefl.core.errors import CompositeFLError
from compositefl.core.npz import read_npz
from compositefl.data.tables import read_table


def array(made=np.save):
    """The bytes of a .npy, or of an NPZ file with random numbers in it."""
    file = io.BytesIO()
    made(file, np.random.default_rng(0).normal(size=(200, 3)))
    return file.getvalue()


def archive(name, content):
    """A ZIP file with one member."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as members:
        members.writestr(name, content)
    return file.getvalue()


def flipped(content, first, last):
    return content[:first] + bytes(b ^ 0x5A for b in content[first:last]) + content[last:]


def too_large():
    """An array whose header promises 8 PB."""
    shape = b"(200, 3), }          "
    assert shape in array()
    return archive("x.npy", array().replace(shape, b"(%d,), }" % 10**15))


DAMAGED = {
    "one array.npz": array(),
    "compressed.npz": flipped(array(np.savez_compressed), 80, 200),
    "checksum.npz": flipped(array(np.savez), 300, 301),
    "half.npz": array(np.savez)[:300],
    "text.npz": b"nonsense",
    "a text in it.npz": archive("a.txt", "hello"),
    "no array in it.npz": archive("a.npy", "hello"),
    "too large.npz": too_large(),
    "half.csv.gz": gzip.compress(b"a,b\n" + b"1,2\n" * 5000)[:40],
    "damaged.csv.gz": flipped(gzip.compress(b"a,b\n" + b"1,2\n" * 5000), 12, 30),
    "no gzip.csv.gz": b"a,b\n1,2\n",
    "half.parquet": b"PAR1 nonsense PAR1",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_table_is_named_in_one_line(tmp_path, name):
    (tmp_path / name).write_bytes(DAMAGED[name])
    with pytest.raises(CompositeFLError) as caught:
        read_table(tmp_path / name)
    assert str(caught.value).startswith(str(tmp_path / name)) and "\n" not in str(caught.value)


def test_of_an_archive_what_is_asked_for_is_read(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(3), words=np.array([{}]))  # which needs a pickle
    found = read_npz(tmp_path / "a.npz", ["x", "z"])
    assert list(found) == ["x"] and found["x"].tolist() == [0, 1, 2]
    with pytest.raises(CompositeFLError, match="cannot be read"):
        read_npz(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["twice.csv", "twice.csv.gz"])
def test_a_column_that_occurs_twice_is_refused(tmp_path, name):
    content = b"a,b,a,b,c\n1,2,3,4,5\n"
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    with pytest.raises(CompositeFLError, match="columns 'a', 'b' occur twice"):
        read_table(tmp_path / name)


def test_names_that_pandas_would_give_are_columns(tmp_path):
    (tmp_path / "named.csv").write_text("a,a.1,,\n1,2,3,4\n")
    assert read_table(tmp_path / "named.csv").columns[:2].tolist() == ["a", "a.1"]
