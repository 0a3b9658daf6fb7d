"""The figures and tables of the papers, as declarations: a folder per paper, a file per figure."""

from pathlib import Path

from compositefl.experiments import fedcanon, fednmap, fedprox, pages, zhang
from compositefl.experiments.declaration import Experiment, Kind, PlannedRun, Verdict
from compositefl.experiments.runner import reproduce

PAPERS = (fednmap, zhang, fedcanon, fedprox)
EXPERIMENTS: dict[str, Experiment] = {e.name: e for paper in PAPERS for e in paper.EXPERIMENTS}


def write_index(out: Path) -> None:
    """README.md in `out`: every claim of the papers, once."""
    pages.write_index(out, EXPERIMENTS)


__all__ = ["EXPERIMENTS", "Experiment", "Kind", "PlannedRun", "Verdict", "reproduce", "write_index"]
