"""The figures and tables of the papers, as declarations."""

from compositefl.experiments import (
    fedcanon,
    fedcanon_costs,
    fednmap,
    fednmap_vision,
    fedprox,
    table1,
    zhang,
)
from compositefl.experiments.declaration import Experiment, Setting, Verdict
from compositefl.experiments.runner import reproduce, write_index

PAPERS = (fednmap, fednmap_vision, table1, zhang, fedcanon, fedcanon_costs, fedprox)
EXPERIMENTS: dict[str, Experiment] = {e.name: e for p in PAPERS for e in p.EXPERIMENTS}

__all__ = ["EXPERIMENTS", "Experiment", "Setting", "Verdict", "reproduce", "write_index"]
