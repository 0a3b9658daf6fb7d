"""`compositefl reproduce`: the papers' figures and tables."""

from pathlib import Path

from rich.table import Table

from compositefl.cli.tables import TERMINAL, print_table
from compositefl.cli.wording import say
from compositefl.core.errors import unknown_name
from compositefl.experiments import EXPERIMENTS, reproduce, write_index


def show_list() -> None:
    """Print the names of the figures and tables that can be reproduced."""
    table = Table(box=None)
    for heading in ("name", "what", "source"):
        table.add_column(heading)
    for experiment in EXPERIMENTS.values():
        table.add_row(experiment.name, experiment.title, experiment.source)
    print_table(table, TERMINAL)


def run_experiments(name: str, quick: bool, out: Path) -> int:
    """Run one experiment or all; prints a line for each claim."""
    if name != "all" and name not in EXPERIMENTS:
        raise unknown_name("experiment", name, [*EXPERIMENTS, "all"])
    for experiment in EXPERIMENTS.values() if name == "all" else [EXPERIMENTS[name]]:
        for verdict in reproduce(experiment, out, quick=quick, say=say):
            holds = "holds" if verdict.holds else "DOES NOT HOLD"
            print(
                f"{experiment.name}: {verdict.claim} | paper: {verdict.paper} | "
                f"measured: {verdict.measured} | {holds}"
            )
    write_index(out)
    return 0
