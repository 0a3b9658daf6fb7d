"""Size and time of a model, measured."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp

from compositefl.core.trees import tree_bytes
from compositefl.core.types import Array, Params

if TYPE_CHECKING:
    from rich.table import Table


class Measured(NamedTuple):
    """What a model takes."""

    name: str
    bytes: int  # of its parameters
    seconds: float  # for the batch, the shortest of several times


def measure(
    name: str, apply: Callable[[Params, Array], Array], params: Params, x: Array, repeats: int = 20
) -> Measured:
    """The bytes of the parameters and the shortest time of apply(params, x), compiled."""
    compiled, x = jax.jit(apply), jnp.asarray(x)
    return Measured(name, tree_bytes(params), timed(lambda: compiled(params, x), repeats))


def timed(call: Callable[[], object], repeats: int = 20) -> float:
    """The shortest of the times that a call takes: others are of a busy machine."""
    jax.block_until_ready(call())
    taken = []
    for _ in range(repeats):
        began = time.perf_counter()
        jax.block_until_ready(call())
        taken.append(time.perf_counter() - began)
    return min(taken)


def table(rows: Sequence[Measured]) -> "Table":
    """Sizes and times with their ratios to the first row."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    out = Table(box=SIMPLE_HEAD)
    for heading in ("model", "kB", "", "ms a batch", ""):
        out.add_column(heading, justify="left" if heading == "model" else "right")
    first = rows[0]
    for row in rows:
        size, pace = row.bytes / first.bytes, row.seconds / first.seconds
        cells = (f"{row.bytes / 1e3:.4g}", f"{size:.0%}", f"{1e3 * row.seconds:.3g}", f"{pace:.0%}")
        out.add_row(row.name, *cells)
    return out
