"""The figures and tables of the papers, as declarations."""

from compositefl.experiments import fednmap, zhang
from compositefl.experiments.declaration import Experiment, Setting, Verdict
from compositefl.experiments.runner import reproduce, write_index

PAPERS = (fednmap, zhang)
EXPERIMENTS: dict[str, Experiment] = {e.name: e for p in PAPERS for e in p.EXPERIMENTS}

__all__ = ["EXPERIMENTS", "Experiment", "Setting", "Verdict", "reproduce", "write_index"]
