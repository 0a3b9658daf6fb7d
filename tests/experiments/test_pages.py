"""The pages of the reproduction: what the code makes of the tables, with the remarks kept."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from compositefl.experiments import EXPERIMENTS, provenance, write_index
from compositefl.experiments.pages import page, remarks
from compositefl.experiments.statistics import difference

PAGES = Path(__file__).parents[2] / "docs" / "reproduction"


RUN = [name for name in EXPERIMENTS if (PAGES / f"{name}.csv").exists()]  # the index has the rest


@pytest.mark.parametrize("name", RUN)
def test_page_comes_from_its_table_and_its_remarks(name):
    experiment = EXPERIMENTS[name]
    table = pd.read_csv(PAGES / f"{name}.csv")
    about = provenance.read(PAGES / f"{name}.json")
    made = page(experiment, table, experiment.judge(table), about, False, remarks(PAGES, name))
    assert (PAGES / f"{name}.md").read_text() == made


@pytest.mark.parametrize("name", [name for name in RUN if EXPERIMENTS[name].runs is not None])
def test_all_methods_of_a_trial_started_at_the_same_model(name):
    experiment = EXPERIMENTS[name]
    table = pd.read_csv(PAGES / f"{name}.csv")
    start = table[table["round"] == 0]
    labels = experiment.runs(False)[0].labels
    panel = [label for label in labels if label not in experiment.compares]
    seen = [c for c in ("loss", "zeros", "hoyer", "accuracy") if c in start]
    for _, alike in start.groupby([*panel, "trial"]):
        # f weighs clients alike, and with some n their sizes differ by a sample: 1e-4 of f
        assert np.allclose(alike[seen], alike[seen].iloc[0], rtol=1e-3), alike


@pytest.mark.parametrize("name", RUN)
def test_what_is_random_has_its_seeds_beside_it(name):
    experiment = EXPERIMENTS[name]
    seeds = (provenance.read(PAGES / f"{name}.json") or {})["seeds"]
    timed = name in ("fedcanon-table1", "fedcanon-table3", "fedcanon-table6")
    assert timed or seeds, name
    assert experiment.seed is None or seeds == [experiment.seed]


def test_remarks_belong_to_an_experiment():
    found = {file.name.removesuffix(".remarks.md") for file in PAGES.glob("*.remarks.md")}
    assert found and found <= set(EXPERIMENTS)


def test_remarks_are_kept_and_are_no_claims(tmp_path):
    experiment = EXPERIMENTS["fednmap-fig4"]
    written = "- Found: | a | table | yes |\n"
    (tmp_path / f"{experiment.name}.remarks.md").write_text(written + "| x | y | yes |\n")

    def made(name):
        return page(experiment, pd.DataFrame(), [], None, False, remarks(tmp_path, name))

    assert written in made(experiment.name) and "## What was found" in made(experiment.name)
    assert "What was found" not in made("zhang-fig2")
    write_index(tmp_path)
    assert "The papers make 0 claims" in (tmp_path / "README.md").read_text()


def test_index_is_what_the_tables_say(tmp_path):
    shutil.copytree(PAGES, tmp_path, dirs_exist_ok=True)
    write_index(tmp_path)
    assert (tmp_path / "README.md").read_text() == (PAGES / "README.md").read_text()


@pytest.mark.parametrize(
    ("values", "holds"),
    [([1.0, 1.1, 0.9], True), ([-1.0, -1.1, -0.9], False), ([1.0, -2.0, 1.5], None), ([9.0], None)],
)
def test_a_difference_within_two_standard_errors_cannot_be_told(values, holds):
    zero = pd.Series([0.0] * len(values))
    assert difference(zero, pd.Series(values)).below(0.0) is holds
