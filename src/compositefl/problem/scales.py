"""Features of very different scale, which methods without Hessians hardly move in."""

from typing import NamedTuple

import jax
import numpy as np

from compositefl.problem.federated import Problem

CLIENTS, ROWS = 10, 1000  # how much of the data is looked at


class Scales(NamedTuple):
    """The columns of the smallest and the largest scale, and how far these are apart."""

    small: int
    large: int
    ratio: float


def feature_scales(problem: Problem) -> Scales | None:
    """Scales of the columns of x, where the first array of a batch is a table of numbers.

    A column's scale is the root mean square of its entries that are not zero: its unit, however
    rare they are.
    """
    tables = [
        np.asarray(jax.tree.leaves(client)[0])[:ROWS]
        for client in (problem.clients[i] for i in range(min(CLIENTS, len(problem.sizes))))
    ]
    if any(t.ndim != 2 or not np.issubdtype(t.dtype, np.floating) for t in tables):
        return None
    x = np.concatenate(tables).astype(float)
    there = (x != 0).sum(0)
    if np.count_nonzero(there) < 2 or not np.isfinite(x).all():
        return None
    used = np.flatnonzero(there)
    x, there = x[:, used], there[used]
    largest = np.abs(x).max(0)  # squares of large numbers overflow, those of small ones vanish
    scale = largest * np.sqrt(((x / largest) ** 2).sum(0) / there)
    small, large = np.argmin(scale), np.argmax(scale)
    with np.errstate(over="ignore"):
        ratio = float(scale[large] / scale[small])
    return Scales(int(used[small]), int(used[large]), ratio)
