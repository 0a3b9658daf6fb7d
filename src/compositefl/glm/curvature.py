"""Second derivatives of a round: of which features, of which problems, and how they travel."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.glm.newton import Newton
from compositefl.glm.problems import Problems

Array = np.ndarray
LARGEST = 4000  # entries of a Hessian: 128 MB a matrix, 64 MB an answer
ALL_COLUMNS = 100  # coefficients up to which a Hessian has them all
AHEAD = 0.5  # share of its weight from which on an entry's second derivatives are asked for
CHEAP = 3e8  # multiplications for Hessians in a round that are worth no thought
NONE, OWN, SHARED = 0, 1, 2  # no Hessian; at the problem's own point; at the common point


class Asking(Protocol):
    """A problem on its way, as far as its Hessians are concerned."""

    problem: int
    newton: Newton
    rounds: int  # for the present alpha
    shared: bool  # its Hessian is that of the common point


def choose_columns(problems: Problems, active: Sequence[Asking]) -> Array:
    """Features whose second derivatives are asked for."""
    general = problems.spec.penalty is not None
    features = problems.features(np.any([walk.newton.free for walk in active], axis=0))
    if problems.p * problems.k > ALL_COLUMNS or general:
        wanted = problems.features(np.any([walk.newton.wants(AHEAD) for walk in active], axis=0))
        if not active[0].newton.begun:  # no gradient yet that tells
            wanted = np.zeros(problems.p, bool)
        features &= wanted | general
    columns = np.flatnonzero(features)
    if len(columns) * problems.k > LARGEST:
        raise CompositeFLError(
            f"{len(columns) * problems.k:,} coefficients are free at the same time; second "
            f"derivatives of at most {LARGEST:,} are held (128 MB a matrix). A larger alpha or "
            "l1_ratio keeps more at zero; compositefl.FedNMap needs gradients alone"
        )
    return columns


def choose_kinds(problems: Problems, active: Sequence[Asking], columns: int) -> Array:
    """Which Hessians to ask for: all while they are cheap, else those that are wanted."""
    work = problems.rows * float((columns + 1) * problems.k) ** 2
    if work * len(active) <= CHEAP:
        return np.full(len(active), OWN)
    kinds = np.full(len(active), NONE)
    for i, walk in enumerate(active):
        if walk.newton.stale or not walk.newton.ready:
            first_try = not (walk.shared and walk.rounds > 1)
            together = i > 0 and first_try and not problems.spec.family.coupled
            kinds[i] = SHARED if together and active[0].problem == 0 else OWN
    return kinds


def symmetric(triangle: Array, size: int) -> Array:
    """The matrix with this lower triangle, row by row."""
    out = np.empty((size, size))
    lower = np.tril_indices(size)
    out[lower] = triangle
    out.T[lower] = triangle
    return out
