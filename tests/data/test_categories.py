"""Columns of categories: the same values whatever a table holds them as."""

import numpy as np
import pandas as pd
import pytest

from compositefl.core.errors import CompositeFLError
from compositefl.data.categories import MOST, checked, coded, coded_names, values_of


def frames(*columns):
    return {f"t{i}": pd.DataFrame({"ward": column}) for i, column in enumerate(columns)}


@pytest.mark.parametrize(
    ("columns", "values"),
    [
        ([["b", "a"], [" c", "a "]], ["a", "b", "c"]),
        ([[10, 9], [2.0, np.nan], ["10", None]], ["2", "9", "10"]),
        ([[2, 1], ["unknown", "1"]], ["1", "2", "unknown"]),
        ([pd.Categorical([2.0, None]), ["1", " "], ["", "1 "]], ["1", "2"]),
        ([[True, False], [None, True]], ["False", "True"]),
        ([pd.Categorical(["x", "y"]), pd.array(["z", None], dtype="string")], ["x", "y", "z"]),
        ([pd.array([1, None], dtype="Int64"), [-1, 0]], ["-1", "0", "1"]),
    ],
)
def test_values_of_all_tables_in_their_order(columns, values):
    assert values_of(frames(*columns), "ward") == values


def test_a_column_for_every_value_but_the_first():
    frame = pd.DataFrame({"age": [1, 2, 3, 4], "ward": ["b", None, "a", "c"], "dose": 0.5})
    categories = {"ward": ["a", "b", "c"]}
    made = coded(frame, categories, "t")
    assert list(made) == coded_names(["age", "ward", "dose"], categories)
    assert list(made) == ["age", "ward=b", "ward=c", "dose"]
    np.testing.assert_array_equal(made["ward=b"], [1, np.nan, 0, 0])
    np.testing.assert_array_equal(made["ward=c"], [0, np.nan, 0, 1])
    assert list(made["age"]) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ([["a", "a"], ["a", None]], "'ward' holds 'a' alone"),
        ([[None, None]], "'ward' is empty"),
        ([["a", "b"], [1.5, 2.0]], "t1: column 'ward' holds 1.5; categories are words or whole"),
        ([[1.0, np.inf]], "holds inf"),
        ([[str(i) for i in range(MOST + 1)]], f"has {MOST + 1} different values"),
    ],
)
def test_what_are_no_categories(columns, text):
    with pytest.raises(CompositeFLError, match=text):
        values_of(frames(*columns), "ward")


def test_values_that_are_not_known_and_names_that_are_taken():
    with pytest.raises(CompositeFLError, match="'ward' holds 'd', which is none of a, b"):
        coded(pd.DataFrame({"ward": ["a", "d"]}), {"ward": ["a", "b"]}, "t")
    with pytest.raises(CompositeFLError, match="t has a column 'ward=b' beside 'ward'"):
        coded(pd.DataFrame({"ward": ["a"], "ward=b": 1}), {"ward": ["a", "b"]}, "t")


@pytest.mark.parametrize(
    "given", [3, {"a": "bc"}, {"a": ["b"]}, {"a": ["b", "b"]}, {"a": ["b", 1]}, {"a": ["b", ""]}]
)
def test_categories_of_a_file_are_checked(given):
    with pytest.raises(CompositeFLError, match="categories"):
        checked(given)
