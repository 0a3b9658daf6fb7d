"""Figure 4: speed-up in the number of local steps."""

from functools import partial

from compositefl.experiments.declaration import Experiment, PlannedRun
from compositefl.experiments.fednmap.network import CHOICES, NETWORKS, SOURCE, planned
from compositefl.experiments.fednmap.speedup import slope_draw, slope_judge


def runs(quick: bool) -> list[PlannedRun]:
    """The runs behind the figure."""
    numbers = (5, 20) if quick else (5, 10, 20, 30, 40)
    return [planned(f, "FedNMap", 30, q, 1 / q, quick) for f in NETWORKS for q in numbers]


EXPERIMENT = Experiment(
    "fednmap-fig4",
    "speed-up in the number of local steps",
    f"{SOURCE}, Figure 4",
    (*CHOICES, "Q in {5, 10, 20, 30, 40}; the paper's are not in our copy."),
    partial(slope_draw, "Q", -1.181),
    partial(slope_judge, "Q", -1.181),
    runs,
    compares=("method", "Q", "local_lr"),
)
