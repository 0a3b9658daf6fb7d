"""Zhou et al. (2025): FedCanon."""

from compositefl.experiments.fedcanon import (
    fig1,
    fig2,
    fig3,
    table1,
    table3,
    table6,
    table7,
    table7_steps,
)

EXPERIMENTS = tuple(
    module.EXPERIMENT
    for module in (
        table1,
        table3,
        table6,
        fig1,
        fig2,
        fig3,
        table7,
        table7_steps,
    )
)
