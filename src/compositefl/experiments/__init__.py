"""The figures and tables of the papers, as declarations: a folder per paper, a file per figure."""

from compositefl.experiments import fedcanon, fednmap, fedprox, zhang
from compositefl.experiments.declaration import Experiment, PlannedRun, Verdict
from compositefl.experiments.runner import reproduce, write_index

PAPERS = (fednmap, zhang, fedcanon, fedprox)
EXPERIMENTS: dict[str, Experiment] = {e.name: e for paper in PAPERS for e in paper.EXPERIMENTS}

__all__ = ["EXPERIMENTS", "Experiment", "PlannedRun", "Verdict", "reproduce", "write_index"]
