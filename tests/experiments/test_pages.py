"""The pages of the reproduction: what the code makes of the tables, with the remarks kept."""

from pathlib import Path

import pandas as pd
import pytest

from compositefl.experiments import EXPERIMENTS, write_index
from compositefl.experiments.runner import page, remarks

PAGES = Path(__file__).parents[2] / "docs" / "reproduction"


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_page_comes_from_its_table_and_its_remarks(name):
    experiment = EXPERIMENTS[name]
    verdicts = experiment.judge(pd.read_csv(PAGES / f"{name}.csv"))
    made = page(experiment, verdicts, False, remarks(PAGES, name))
    assert (PAGES / f"{name}.md").read_text() == made


def test_remarks_belong_to_an_experiment():
    found = {file.name.removesuffix(".remarks.md") for file in PAGES.glob("*.remarks.md")}
    assert found and found <= set(EXPERIMENTS)


def test_remarks_are_kept_and_are_no_claims(tmp_path):
    experiment = EXPERIMENTS["fednmap-fig4"]
    written = "- Found: | a | table | yes |\n"
    (tmp_path / f"{experiment.name}.remarks.md").write_text(written + "| x | y | yes |\n")
    made = page(experiment, [], False, remarks(tmp_path, experiment.name))
    assert written in made and "## What was found" in made
    assert "What was found" not in page(experiment, [], False, remarks(tmp_path, "zhang-fig2"))
    write_index(tmp_path)
    assert "0 of 0" in (tmp_path / "README.md").read_text()
