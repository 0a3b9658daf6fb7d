"""What there is to choose from."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from compositefl import models
from compositefl.algorithms import ALGORITHMS, Algorithm
from compositefl.algorithms.base import Knobs
from compositefl.cli.methods import hyperparameters, required, spelled
from compositefl.core.component import replace
from compositefl.data import DATASETS
from compositefl.data.partition import PARTITIONS
from compositefl.engine.accounting import RoundCost, round_cost
from compositefl.regularizers import L1, REGULARIZERS

NEEDS, HAS, PARAMETERS = 25, 28, 22  # widths of columns: all tables fit a terminal of 80
SIZE = 1000  # parameters of the model whose messages are counted


def tables(what: str | None) -> list[Table]:
    """The tables of one kind, or all."""
    return [make() for kind, makers in KINDS.items() if what in (None, kind) for make in makers]


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    out = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    for heading in headings:
        out.add_column(heading, no_wrap=heading == headings[0] or "\n" in heading)
    for row in rows:
        out.add_row(*[Text(cell) for cell in row])
    return out


def algorithms() -> Table:
    """Name and the class of problems."""
    rows = [[name, cls.covers] for name, cls in ALGORITHMS.items()]
    return _table("Algorithms", ("algorithm", "covers"), rows)


def papers() -> Table:
    """Name and source."""
    rows = [[name, cls.paper] for name, cls in ALGORITHMS.items()]
    return _table("Papers", ("algorithm", "paper"), rows)


def costs() -> Table:
    """The cost of a round with Q local steps, and whether some clients may miss it."""
    rows = []
    for name, cls in ALGORITHMS.items():
        few, more = _cost(cls, 2), _cost(cls, 3)
        prox_client = in_steps(few.prox_client, more.prox_client)
        prox_server = in_steps(few.prox_server, more.prox_server)
        rows.append(
            [
                name,
                f"{vectors(few.bytes_down)} / {vectors(few.bytes_up)}",
                f"{prox_client} / {prox_server}",
                "all" if cls.needs_everyone else "any part",
            ]
        )
    headings = (
        "algorithm",
        "vectors\ndown / up",
        "prox\nclient / server",
        "clients\nin a round",
    )
    return _table("Cost of a round of Q local steps", headings, rows)


def vectors(size: int) -> str:
    """Bytes of a message in units of the model; a few single numbers in it do not show."""
    count = size / (4 * SIZE)
    return f"{count:.2g}" if count < SIZE / 10 else f"{count / SIZE:.1g}p"  # a matrix: p parameters


def _cost(cls: type[Algorithm], steps: int) -> RoundCost:
    """The cost of a round, with numbers that matter only in that they exist."""
    known = hyperparameters(cls)
    values: dict[str, Any] = {name: 1 if int in known[name] else 0.1 for name in required(cls)}
    if "local_steps" in known:
        values |= {"local_steps": steps} | ({"local_lr": 0.1} if "local_lr" in known else {})
    algorithm = replace(cls(**values).at(Knobs(0.1, 1)), regularizer=L1(0.1))
    return round_cost(algorithm, np.zeros(SIZE, np.float32))


def in_steps(at_two: int, at_three: int) -> str:
    """A count that is linear in Q, from its values at Q = 2 and Q = 3: "0", "Q", "2Q + 1"."""
    slope = at_three - at_two
    rest = at_two - 2 * slope
    if not slope:
        return str(rest)
    times = "Q" if slope == 1 else f"{slope}Q"
    return times if not rest else f"{times} {'+' if rest > 0 else '-'} {abs(rest)}"


def options() -> Table:
    """The options that each algorithm must and may be given."""
    rows = []
    for name, cls in ALGORITHMS.items():
        needed = required(cls)
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        # None: a number that follows from the others.
        default = {f.name: "chosen" if f.default is None else f.default for f in fields}
        may = [n for n in hyperparameters(cls) if n not in needed]
        rows.append(
            [
                name,
                filled(map(spelled, needed), NEEDS),
                filled((f"{spelled(n)} {default[n]}".replace("= ", "=") for n in may), HAS),
            ]
        )
    return _table("Options of the algorithms", ("algorithm", "needs", "has, with default"), rows)


def filled(words: Iterable[str], width: int) -> str:
    """The words with commas between, on lines of at most this many characters where they fit."""
    lines = [""]
    for word in words:
        joined = f"{lines[-1]}, {word}" if lines[-1] else word
        if lines[-1] and len(joined) > width:
            lines[-1] += ","
            lines.append(word)
        else:
            lines[-1] = joined
    return "\n".join(lines)


def regularizers() -> Table:
    """Name, parameters, and the first line of the documentation."""
    rows = []
    for name, cls in REGULARIZERS.items():
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        parameters = [
            f.name if f.default is dataclasses.MISSING else f"[{f.name}={f.default}]"
            for f in fields
        ]
        rows.append([name, filled(parameters, PARAMETERS), first_line(cls)])
    return _table(
        "Regularisers, written NAME:PARAMETERS, such as elastic-net:0.001,0.01",
        ("regularizer", "parameters", "what it is"),
        rows,
    )


def first_line(thing: object) -> str:
    """The first line of a docstring, without the punctuation that leads to the next."""
    return (thing.__doc__ or "").strip().splitlines()[0].rstrip(",:. ")


def _from_dict(title: str, heading: str, rows: dict[str, str]) -> Table:
    return _table(title, (heading, "what it is"), [list(row) for row in rows.items()])


def datasets() -> Table:
    """Data sets by name."""
    return _from_dict("Datasets", "dataset", DATASETS)


def partitions() -> Table:
    """Ways to share samples among clients."""
    lines = {name: text for name, (_, text) in PARTITIONS.items()}
    return _from_dict("Partitions", "partition", lines)


def model_table() -> Table:
    """Models, with their options and the defaults of these."""
    rows = []
    for name, text in models.MODELS.items():
        options = [f"{o}={_shown(default)}" for o, default in models.model_options(name).items()]
        rows.append([name, text, "\n".join(options)])
    return _table("Models", ("model", "what it is", "options"), rows)


def _shown(default: object) -> str:
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default).lower()


KINDS: dict[str, tuple[Callable[[], Table], ...]] = {
    "algorithms": (algorithms, costs, options, papers),
    "regularizers": (regularizers,),
    "datasets": (datasets,),
    "partitions": (partitions,),
    "models": (model_table,),
}
