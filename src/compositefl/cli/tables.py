"""Tables: framed on a terminal, plain aligned columns in a pipe or a file."""

import sys

from rich.console import Console
from rich.table import Table

TERMINAL = 80  # columns
WIDE = 1000  # columns of a pipe: nothing is wrapped there


def print_table(table: Table, width: int = WIDE) -> None:
    """Print for whoever reads stdout; `width`: the columns of a pipe or a file."""
    if sys.stdout.isatty():
        Console().print(table)
        return
    console = Console(width=width, color_system=None)
    table.box = None
    table.pad_edge = False
    for column in table.columns:
        column.header = str(column.header).replace("\n", " ")
    with console.capture() as captured:
        console.print(table)
    lines = [line.rstrip() for line in captured.get().splitlines()]
    print("\n".join(lines))
