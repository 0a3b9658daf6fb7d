"""The user's own CSV, Parquet and NPZ files, as functions and on the command line."""

import json

import numpy as np
import pandas as pd
import pytest

from compositefl.core.errors import CompositeFLError
from compositefl.data.site_tables import class_column
from compositefl.data.tables import class_labels, features_and_target, read_table, site_rows

ROWS = 24
PGD = ["run", "--algorithm", "pgd", "--lr", "0.1", "--rounds", "1", "--data"]


def table(**changes):
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.normal(size=ROWS),
        "dose": rng.normal(size=ROWS),
        "smokes": np.arange(ROWS) % 3 == 0,
        "clinic": np.array(["Ulm", "Bonn", "Kiel", "Bonn"] * (ROWS // 4)),
        "healthy": np.array(["yes", "no"] * (ROWS // 2)),
    }
    return pd.DataFrame(columns | changes)


@pytest.fixture
def csv(tmp_path):
    def write(name="data.csv", **changes):
        table(**changes).to_csv(tmp_path / name, index=False)
        return tmp_path / name

    return write


def test_the_three_formats_are_the_same_table(tmp_path):
    frame = table()
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_csv(tmp_path / "a.csv.gz", index=False)
    frame.to_parquet(tmp_path / "a.parquet")
    arrays = {name: frame[name].to_numpy() for name in ("age", "dose", "smokes")}
    words = {name: frame[name].to_numpy().astype(str) for name in ("clinic", "healthy")}
    np.savez(tmp_path / "a.npz", **arrays, **words)
    for name in ("a.csv", "a.csv.gz", "a.parquet", "a.npz"):
        read = read_table(tmp_path / name)
        x, y, features = features_and_target(read, "healthy", drop=["clinic"])
        assert features == ["age", "dose", "smokes"]
        np.testing.assert_allclose(x, frame[features].to_numpy(float))
        assert x.dtype == np.float64
        assert list(y) == list(frame["healthy"])


def test_a_matrix_in_an_npz_makes_columns(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.arange(6.0).reshape(3, 2), y=[0, 1, 0])
    x, y, features = features_and_target(read_table(tmp_path / "a.npz"), "y")
    assert features == ["x[0]", "x[1]"]
    assert x.tolist() == [[0, 1], [2, 3], [4, 5]] and y.tolist() == [0, 1, 0]


def test_labels_and_sites():
    y = np.array(["b", "a", "b"], object)
    labels, classes = class_labels(y)
    assert (labels.tolist(), classes, labels.dtype) == ([1, 0, 1], ["a", "b"], np.int32)
    labels, classes = class_labels(np.array([7.0, 3.0, 10.0]))
    assert (labels.tolist(), classes) == ([1, 0, 2], [3, 7, 10])
    assert class_labels(np.array([10, 3]), classes)[0].tolist() == [2, 0]
    rows = site_rows(table(), "clinic")
    assert list(rows) == ["Bonn", "Kiel", "Ulm"]
    assert sorted(np.concatenate(list(rows.values()))) == list(range(ROWS))
    assert rows["Ulm"].tolist() == list(range(0, ROWS, 4))


@pytest.mark.parametrize(
    ("y", "text"),
    [
        ([1.0, np.inf], "holds numbers such as inf, not classes: words or whole numbers"),
        ([np.inf, np.inf], "holds numbers such as inf, not classes"),
        ([-np.inf, 0.0], "holds numbers such as -inf, not classes"),
        ([0.5, np.inf], "holds numbers such as 0.5, not classes"),
        ([], "holds nothing; it needs 2 classes"),
    ],
)
def test_targets_that_are_no_classes(y, text):
    with pytest.raises(CompositeFLError, match=f"f.csv: the target {text}"):
        class_labels(np.array(y, float), file="f.csv")


@pytest.mark.parametrize(
    ("y", "text"),
    [
        ([0.0, np.inf], "there: column 'y' holds inf in 1 row; only finite numbers are allowed"),
        ([-np.inf, -np.inf], "there: column 'y' holds -inf in 2 rows"),
        ([0.0, 1e300], "such as 1e\\+300, not classes: words or whole numbers up to 90071"),
        ([0, 2**53 + 1], "such as 9.0072e\\+15, not classes"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_labels_of_sites_that_are_no_classes(y, text):
    frames = {"here": pd.DataFrame({"y": [0, 1]}), "there": pd.DataFrame({"y": y})}
    with pytest.raises(CompositeFLError, match=text):
        class_column(frames, "y")


def test_the_largest_labels_stay_apart():
    frames = {"here": pd.DataFrame({"y": [2**53 - 1, 2**53 - 2]})}
    assert class_column(frames, "y").tolist() == [2**53 - 1, 2**53 - 2]


BAD = [  # changes of the table, what features_and_target must say
    ({"clinic": 1.0, "dose": ["1.5"] * 23 + ["much"]}, "column 'dose' (such as 'much') holds text"),
    ({"clinic": pd.Categorical([1, 2] * 12)}, "column 'clinic' (such as '1') holds text or categ"),
    ({"clinic": pd.Timestamp(0)}, "column 'clinic'"),
    ({"clinic": 1.0, "age": [np.nan] * 2 + [0.0] * 22}, "missing values in column 'age' (2 rows)"),
    ({"clinic": np.inf}, "infinite values in column 'clinic'; only finite numbers are allowed"),
    ({"clinic": 1.0, "healthy": [np.inf] * 2 + [0] * 22}, "column 'healthy' holds inf in 2 rows"),
    ({"clinic": 1.0, "healthy": [None] + ["no"] * 23}, "column 'healthy' has no value in 1 row"),
    ({"clinic": 1.0, "Unnamed: 0": range(ROWS)}, "'Unnamed: 0' is a column without a name"),
]


@pytest.mark.parametrize(("changes", "text"), BAD, ids=[text for _, text in BAD])
def test_what_is_no_number_is_named(changes, text):
    with pytest.raises(CompositeFLError) as caught:
        features_and_target(table(**changes), "healthy", file="f.csv")
    assert str(caught.value).startswith("f.csv: ")
    assert text in str(caught.value)


def test_files_that_are_no_tables(tmp_path):
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "head.csv").write_text("a,b\n")
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n1,2,3\n")
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x81")
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    (tmp_path / "bad.npz").write_bytes(b"no npz")
    np.savez(tmp_path / "images.npz", x=np.zeros((2, 3, 3)))
    np.savez(tmp_path / "uneven.npz", x=np.zeros(2), y=np.zeros(3))
    (tmp_path / "data.txt").write_text("a\n1\n")
    names = sorted(path.name for path in tmp_path.iterdir())
    for name in [*names, "missing.csv"]:
        with pytest.raises(CompositeFLError) as caught:
            read_table(tmp_path / name)
        assert name in str(caught.value) and "\n" not in str(caught.value)
        assert ("is empty: it has 0 bytes" in str(caught.value)) == (name == "empty.csv")
        assert "no such file" not in str(caught.value)


def test_sites_are_clients(cli, csv, tmp_path):
    words = ["--target", "healthy", "--site", "clinic", "--model", "logistic", "--test"]
    answer = cli(*PGD, csv(), *words, csv("test.csv"), "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "24 rows, 3 features, 2 classes (no, yes), 3 sites of 6 to 12 rows" in answer.err
    assert "accuracy" in answer.out
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["data"] == {
        "features": ["age", "dose", "smokes"],
        "target": "healthy",
        "classes": ["no", "yes"],
        "sites": ["Bonn", "Kiel", "Ulm"],
    }


def test_without_sites_the_rows_are_spread(cli, csv):
    words = ["--target", "healthy", "--drop", "clinic", "--clients", "4", "--model", "multinomial"]
    answer = cli(*PGD, csv(), *words)
    assert answer.code == 0, answer.err
    assert "4 clients of 6 to 6 rows" in answer.err
    number = ["--target", "age", "--drop", "clinic", "--drop", "healthy", "--clients", "4"]
    assert cli(*PGD, csv(), *number, "--model", "linear").code == 0


def test_categories_of_a_table_and_of_its_test(cli, csv, tmp_path):
    words = ["--target", "healthy", "--categories", "clinic=Kiel", "--clients", "2"]
    test = csv("test.csv", clinic="Ulm")
    answer = cli(*PGD, csv(), *words, "--test", test, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    about = json.loads((tmp_path / "out" / "config.json").read_text())["data"]
    assert about["features"] == ["age", "dose", "smokes", "clinic=Bonn", "clinic=Ulm"]
    assert about["categories"] == {"clinic": ["Kiel", "Bonn", "Ulm"]}
    answer = cli(*PGD, csv(), *words, "--test", csv("test.csv", clinic="Trier"))
    assert answer.code == 2 and "'Trier', which is none of Kiel, Bonn, Ulm" in answer.err


REFUSED = [  # options after --data FILE, what the message must say
    ("--target heathy", "did you mean 'healthy'"),
    ("", "needs --target COLUMN, one of: age, dose, smokes, clinic, healthy"),
    ("--target healthy", "'clinic' (such as 'Ulm') holds text or categories"),
    ("--target healthy", "--categories codes them, --drop leaves them out"),
    ("--target healthy --categories clinik", "--categories clinik: "),
    ("--target healthy --site clinic --categories clinic", "clinic is named by --site already"),
    ("--target healthy --categories clinic=Trier", "unknown value of clinic 'Trier'"),
    ("--target healthy --drop clinik", "unknown column 'clinik'"),
    ("--target healthy --site clinik", "unknown column 'clinik'"),
    ("--target healthy --site clinic --clients 3", "--clients 3 does not go here: --site clinic"),
    ("--target healthy --site clinic --dataset a9a", "--dataset a9a does not go here"),
    ("--target healthy --site clinic --model linear", "the target holds text, such as 'yes'"),
    (
        "--target age --drop healthy --site clinic",
        "for numbers there is --model linear",
    ),
    ("--target healthy --site clinic --test nothere.csv", "--test nothere.csv is not a file"),
    ("--target healthy --drop clinic --clients 30", "30 clients cannot share 24 samples"),
]


@pytest.mark.parametrize(("words", "text"), REFUSED)
def test_one_line_for_what_is_wrong(words, text, cli, csv):
    answer = cli(*PGD, csv(), *words.split())
    assert answer.code == 2
    assert answer.err.startswith("error: ") and answer.err.count("\n") == 1, answer.err
    assert text in answer.err


def test_a_test_file_must_fit(cli, csv):
    words = ["--target", "healthy", "--site", "clinic", "--test"]
    other = cli(*PGD, csv(), *words, csv("test.csv", healthy=["maybe", "no"] * 12))
    assert "test.csv: the target holds 'maybe', which the training data does not" in other.err
    frame = table().drop(columns="dose")
    path = csv("short.csv")
    frame.to_csv(path, index=False)
    assert "short.csv lacks column 'dose'" in cli(*PGD, csv(), *words, path).err


@pytest.mark.parametrize("words", ["--model logistic", "--model linear", ""])
def test_an_infinite_number_is_told_by_its_column(words, cli, csv):
    one = [np.inf] + [0.0] * (ROWS - 1)
    call = ["--target", "healthy", "--site", "clinic", *words.split()]
    numbers = np.arange(ROWS) % 2
    for changes, text in (
        ({"healthy": one}, "column 'healthy' holds inf in 1 row; only finite numbers are allowed"),
        ({"healthy": numbers, "dose": one}, "infinite values in column 'dose'; only finite"),
        ({"healthy": numbers, "clinic": one}, "column 'clinic' holds inf in 1 row; only finite"),
    ):
        answer = cli(*PGD, csv(**changes), *call)
        assert answer.code == 2 and answer.err.count("\n") == 1, answer.err
        assert answer.err.startswith("error: --data ") and text in answer.err
    good = csv(healthy=numbers)
    answer = cli(*PGD, good, *call, "--test", csv("test.csv", healthy=one))
    assert "error: --test " in answer.err and "test.csv: column 'healthy' holds inf" in answer.err


def test_options_of_tables_need_a_table(cli):
    answer = cli(*PGD[:-1], "--target", "healthy")
    assert answer.err == "error: --target healthy does not go here: it goes with --data FILE\n"
