"""The figures and tables of the papers, as declarations."""

from compositefl.experiments import fednmap
from compositefl.experiments.declaration import Experiment, Setting, Verdict
from compositefl.experiments.runner import reproduce, write_index

EXPERIMENTS: dict[str, Experiment] = {e.name: e for e in (*fednmap.EXPERIMENTS,)}

__all__ = ["EXPERIMENTS", "Experiment", "Setting", "Verdict", "reproduce", "write_index"]
