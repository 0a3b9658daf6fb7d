"""Zhang, Hu, Johansson (2026): ZA1. FedNMap's curve is added to each figure."""

from compositefl.experiments.zhang import fig2, fig3, fig4

EXPERIMENTS = tuple(
    module.EXPERIMENT
    for module in (
        fig2,
        fig3,
        fig4,
    )
)
