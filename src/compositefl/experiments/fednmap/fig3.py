"""Figure 3: speed-up in the number of clients."""

from functools import partial

from compositefl.experiments.declaration import Experiment, PlannedRun
from compositefl.experiments.fednmap.network import CHOICES, NETWORKS, SOURCE, planned
from compositefl.experiments.fednmap.speedup import slope_draw, slope_judge


def runs(quick: bool) -> list[PlannedRun]:
    """The runs behind the figure."""
    numbers = (10, 100) if quick else (10, 20, 40, 60, 80, 100)
    return [planned(f, "FedNMap", n, 10, 0.1, quick) for f in NETWORKS for n in numbers]


EXPERIMENT = Experiment(
    "fednmap-fig3",
    "speed-up in the number of clients",
    f"{SOURCE}, Figure 3",
    (*CHOICES, "n in {10, 20, 40, 60, 80, 100}; the paper's are not in our copy."),
    partial(slope_draw, "n", -1.436),
    partial(slope_judge, "n", -1.436),
    runs,
    compares=("method", "n", "local_lr"),
)
