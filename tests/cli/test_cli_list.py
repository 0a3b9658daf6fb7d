import pytest

from compositefl.algorithms import ALGORITHMS
from compositefl.cli.listing import in_steps
from compositefl.data import DATASETS
from compositefl.data.partition import PARTITIONS
from compositefl.models import MODELS
from compositefl.regularizers import REGULARIZERS

ALL = {
    "algorithms": ALGORITHMS,
    "regularizers": REGULARIZERS,
    "datasets": DATASETS,
    "partitions": PARTITIONS,
    "models": MODELS,
}


@pytest.fixture(scope="module")
def everything():
    """The whole list, as a pipe sees it."""
    import contextlib
    import io

    from compositefl.cli import main

    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["list"]) == 0
    return out.getvalue()


@pytest.mark.parametrize("kind", ALL)
def test_all_names_are_there(kind, everything):
    starts = {line.split()[0].partition(":")[0] for line in everything.splitlines() if line}
    assert set(ALL[kind]) <= starts


def test_plain_when_piped(everything):
    assert everything.isascii()
    assert "\x1b" not in everything
    assert all(line == line.rstrip() for line in everything.splitlines())


def test_costs_and_options_are_those_of_the_algorithm(everything):
    lines = {line.split()[0]: line for line in everything.splitlines() if " / " in line}
    expected = {  # vectors down / up, prox client / server
        "fednmap": ("2 / 1", "Q / 1", "any part"),
        "fedcanon": ("2 / 1", "0 / 1", "any part"),
        "fedcanon2": ("1 / 1", "1 / 1", "all"),
        "scaffold": ("2 / 2", "0 / 0", "any part"),
        "fedmid": ("1 / 1", "Q / 1", "any part"),
        "fedda": ("1 / 1", "Q / 1", "any part"),
    }
    for name, words in expected.items():
        columns = [part.strip() for part in lines[name].split("  ") if part.strip()]
        assert tuple(columns[-3:]) == words, name
    assert "--set prox_at=everywhere" in everything
    assert "--local-steps auto" in everything


def test_one_kind(cli):
    answer = cli("list", "datasets")
    assert answer.code == 0
    assert answer.out.startswith("Datasets\n")
    assert "fednmap" not in answer.out
    wrong = cli("list", "dataset")
    assert wrong.code == 2
    assert "did you mean 'datasets'" in wrong.err


@pytest.mark.parametrize(
    ("two", "three", "text"),
    [(0, 0, "0"), (1, 1, "1"), (2, 3, "Q"), (3, 4, "Q + 1"), (4, 6, "2Q"), (1, 2, "Q - 1")],
)
def test_counts_in_terms_of_the_local_steps(two, three, text):
    assert in_steps(two, three) == text
