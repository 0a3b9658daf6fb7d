"""Proximal Newton for one problem of a fit, in steps that a server takes between two answers.

As `compositefl.algorithms.ProxNewton`: the next trial point minimises the quadratic model plus phi,
a share of the promised decrease accepts it, the damping rises after a rejection. Two things are
more: a Hessian may be kept while the steps it gives still converge fast, and it may cover only the
entries that can leave zero.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from compositefl.core.damping import ACCEPTED, FACTOR, FIRST, GOOD, POOR
from compositefl.glm.penalty import Penalty

Array = np.ndarray
Floor: TypeAlias = Callable[[Array], float]  # what rounding leaves of a gradient at a point
SMALLEST = 1e-10  # damping that is always there: with few samples a Hessian is singular
FEW = 200  # entries at zero whose second derivatives are asked for at once; then twice the others
NOISE = 1e-14  # rounding of a loss, relative
SLOW = 0.15  # share of its residual that a step may leave before a new Hessian is wanted


@dataclass
class Hessian:
    """Second derivatives of f for some entries."""

    matrix: Array
    index: Array

    def covers(self, wanted: Array) -> bool:
        left = wanted.copy()
        left[self.index] = False
        return not left.any()

    def times(self, d: Array) -> Array:
        """H d, as far as these entries go."""
        out = np.zeros_like(d)
        out[self.index] = self.matrix @ d[self.index]
        return out

    def along(self, d: Array) -> float:
        """The curvature along a direction."""
        return float(d[self.index] @ self.matrix @ d[self.index])


class Newton:
    """The state of one problem: accepted point, what is known there, and the trial point."""

    def __init__(self, start: Array, penalty: Penalty, free: Array, floor: Floor):
        self.penalty, self.free = penalty, free  # free: entries that exist in this model
        self.x = self.trial = start
        self.loss = np.inf
        self.gradient = np.zeros_like(start)
        self.hessian: Hessian | None = None
        self.damping = 0.0
        self.promised = 0.0
        self.residual = np.inf
        self.scale = 0.0  # of the gradient at the start
        self.floor_at = floor
        self.first: Hessian | None = None  # at the start
        self.stale = True  # a new Hessian is wanted
        self.begun = False
        self.comparable = True  # the next loss with the last one
        self.bend: Array | None = None
        self.rejected = 0  # trial points in a row

    @property
    def floor(self) -> float:
        """What rounding leaves of the gradient at the accepted point."""
        return self.floor_at(self.x)

    def aim(self, penalty: Penalty, bend: Array | None = None) -> None:
        """Go on with another penalty from where we are.

        bend: what the gradient is expected to do on the way beyond its linear model.
        """
        self.penalty, self.bend = penalty, bend
        self.residual = self._residual()
        self.damping, self.rejected = 0.0, 0

    def wants(self, share: float) -> Array:
        """Entries whose second derivatives are needed soon."""
        most = max(FEW, 2 * int(np.count_nonzero(self.x)))
        found = self.penalty.candidates(self.x, self.gradient, share, most)
        return self.free & (found | (self.trial != 0))

    @property
    def ready(self) -> bool:
        """Whether the Hessian at hand covers all that the next step should change."""
        return self.hessian is not None and self.hessian.covers(self.wants(1.0))

    def propose(self) -> None:
        """Set the trial point: entries outside the Hessian stay where they are."""
        if not self.begun:
            return
        self.trial, self.promised = self.x, 0.0
        if not self.ready:
            self.stale = True
        if self.hessian is None:
            return
        H, index = self.hessian.matrix, self.hessian.index
        diagonal = np.abs(np.diag(H))
        diagonal = np.maximum(diagonal, np.finfo(float).eps * diagonal.max(initial=0.0))
        diagonal[diagonal == 0] = 1.0
        B = H.copy()
        B[np.diag_indices_from(B)] += max(self.damping, SMALLEST) * diagonal
        gradient = self.gradient if self.bend is None else self.gradient + self.bend
        trial = self.penalty.solve(self.x, gradient, B, index)
        d = (trial - self.x)[index]
        model = gradient[index] @ d + 0.5 * d @ H @ d
        self.promised = self.penalty.value(self.x) - self.penalty.value(trial) - model
        self.trial = trial

    def receive(self, loss: float, gradient: Array, hessian: Hessian | None) -> bool:
        """Take the mean loss and its derivatives at the trial point; whether it is accepted."""
        phi, same = self.penalty.value, np.array_equal(self.trial, self.x)
        self.bend = None
        first = not self.begun
        share = 1.0
        if not (first or same) and self.comparable:
            decrease = self.loss - loss + phi(self.x) - phi(self.trial)
            noise = NOISE * (abs(self.loss) + abs(loss)) + np.finfo(float).tiny
            share = (decrease + noise) / (max(self.promised, 0.0) + noise)
        if not (share >= ACCEPTED and np.isfinite(gradient).all()):  # NaN is not
            self.damping = max(self.damping * FACTOR, FIRST)
            self.rejected += 1
            self.stale = True
            return False
        before = self.residual
        self.x, self.loss, self.gradient = self.trial, loss, gradient
        self.begun, self.comparable, self.rejected = True, True, 0
        self.residual = self._residual()
        if hessian is not None:
            self.hessian, self.stale = hessian, False
            if self.first is None or len(self.first.index) < len(hessian.index):
                self.first = hessian
        elif self.residual > SLOW * before:
            self.stale = True
        if not (first or same):
            self.damping *= 1 / FACTOR if share > GOOD else FACTOR if share < POOR else 1.0
            if self.damping < FIRST / FACTOR**4:
                self.damping = 0.0
        if first:
            self.scale = float(np.abs(gradient[self.free]).max(initial=0.0))
        return True

    def done(self, tolerance: float) -> bool:
        """Whether the accepted point is stationary, to a share of the gradient at the start."""
        return self.begun and self.residual <= max(tolerance * self.scale, self.floor)

    def recedes(self, tolerance: float, loose: Array) -> bool:
        """Whether entries that nothing holds grow for ever, although the gradient vanishes.

        The sign: the next step is as long as ever, while the curvature along it has vanished with
        the gradient. (Of features that are nearly dependent it was small from the start.)
        """
        small = max(1e-7, tolerance)
        if not (self.begun and self.hessian and self.first) or not loose.any():
            return False
        if self.residual > small * self.scale or not self.first.covers(loose):
            return False
        self.propose()
        d = self.trial - self.x
        flat = self.hessian.along(d) < 100 * small * self.first.along(d)
        return bool(flat and np.abs(d[loose]).max() > 0.1)

    def _residual(self) -> float:
        entries = self.penalty.residual(self.x, self.gradient)
        return float(entries[self.free].max(initial=0.0))
