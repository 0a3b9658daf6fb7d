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


def run_experiments(
    names: list[str], quick: bool, out: Path, parts: Path | None, finished: bool
) -> int:
    """Run some experiments or all; prints a line for each claim."""
    unknown = [name for name in names if name != "all" and name not in EXPERIMENTS]
    if unknown:
        raise unknown_name("experiment", unknown[0], [*EXPERIMENTS, "all"])
    for name in EXPERIMENTS if "all" in names else names:
        made = reproduce(
            EXPERIMENTS[name], out, quick=quick, parts=parts, finished=finished, say=say
        )
        for verdict in made:
            print(
                f"{name}: {verdict.claim} | paper: {verdict.paper} | "
                f"measured: {verdict.measured} | {verdict.word}"
            )
    write_index(out)
    return 0
