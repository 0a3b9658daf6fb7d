"""Huang, Pu, Johansson (2026): FedNMap."""

from compositefl.experiments.fednmap import (
    fig2,
    fig3,
    fig4,
    fig5,
    fig6,
    sampled,
    table1,
    theorems,
    widths,
)

EXPERIMENTS = tuple(
    module.EXPERIMENT
    for module in (fig2, fig3, fig4, fig5, fig6, sampled, table1, theorems, widths)
)
