"""Second derivatives of a round: of which features, of which problems, and how they travel."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.glm.newton import Newton
from compositefl.glm.problems import Problems

Array = np.ndarray
LARGEST = 4000  # entries of a Hessian: 128 MB per matrix, 64 MB per answer
ALL_COLUMNS = 100  # coefficients up to which a Hessian has them all
AHEAD = 0.5  # share of its weight from which on an entry's second derivatives are asked for
CHEAP = 3e8  # multiplications for Hessians in a round that are worth no thought


class Asking(Protocol):
    """A problem on its way, as far as its Hessians are concerned."""

    problem: int
    newton: Newton
    rounds: int  # for the present alpha
    took: int  # rounds for the alpha before
    hessian_at: int  # number of the alpha at which its Hessian was asked for

    @property
    def steps(self) -> Sequence[object]:
        """The alphas that are solved."""
        ...


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
        if general:
            raise CompositeFLError(
                f"penalty={problems.spec.penalty!r} has second derivatives of all "
                f"{len(columns) * problems.k:,} coefficients at once; at most {LARGEST:,} are held "
                "(128 MB per matrix). The lasso holds those that are not zero; compositefl.FedNMap "
                "needs gradients alone",
                parameter="penalty",
                value=problems.spec.penalty,
            )
        raise CompositeFLError(
            f"{len(columns) * problems.k:,} coefficients are free at the same time; second "
            f"derivatives of at most {LARGEST:,} are held (128 MB per matrix). A larger alpha or "
            "l1_ratio keeps more at zero; compositefl.FedNMap needs gradients alone"
        )
    return columns


def choose_problems(problems: Problems, active: Sequence[Asking], columns: int) -> Array:
    """Whose Hessians to ask for: all while they are cheap, else of those that need a new one.

    An alpha that took more than one round would have taken fewer with a younger Hessian. The folds,
    which have rounds to spare, get one for every second alpha.
    """
    work = problems.rows * float((columns + 1) * problems.k) ** 2
    if work * len(active) <= CHEAP:
        return np.ones(len(active), bool)
    return np.array([_needs(walk) for walk in active])


def _needs(walk: Asking) -> bool:
    ages = len(walk.steps) - walk.hessian_at > (0 if walk.problem == 0 else 1)
    slow = ages and walk.rounds == 1 and walk.took > 1
    return slow or walk.newton.stale or not walk.newton.ready
