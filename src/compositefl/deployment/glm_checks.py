"""Sums that no table has are refused, one site at a time, before they are added up.

The sums of one table bound each other: weights and squares are not negative, the classes share the
weight among them, (sum w z)^2 <= sum w sum w z^2. Sums within these bounds may still be wrong.
"""

from typing import TypeAlias

import numpy as np
from scipy.special import xlogy

from compositefl.core.errors import CompositeFLError
from compositefl.deployment.federation import Federation
from compositefl.glm.families import Family
from compositefl.glm.site import Request, Sums

Array = np.ndarray
Bound: TypeAlias = "Array | float"
SLIP = 1e-6  # of a sum, relative: more than rounding takes
TINY = np.sqrt(np.finfo(float).tiny)  # numbers whose squares may be zero
LEAST_LOG = -746.0  # of a positive number
LARGEST_LOG = 709.0  # of a finite number
POSITIVE = ("poisson", "gamma")  # families whose response is not negative


class SumChecks:
    """What the sums of each site must be, given what it said of its table at first."""

    def __init__(self, federation: Federation, family: Family):
        assert federation.glm is not None
        self.glm, self.family = federation.glm, family
        self.most = federation.limits.largest_number  # in a table
        self.described: dict[str, Sums] = {}  # by site

    def check(self, site: str, samples: int, method: str, request: Request, sums: Sums) -> None:
        """Refuse the answer of a site that joined with so many samples."""
        if method == "describe":
            self._describe(float(samples), sums)
            self.described[site] = sums
            return
        checks = {"spread": self._spread, "evaluate": self._evaluate, "validate": self._validate}
        checks[method](self.described[site], request, sums)

    # --- the first answer -----------------------------------------------------------------------

    def _describe(self, n: float, sums: Sums) -> None:
        missing, there = sums["missing"], sums["weight_x"]
        whole, folds = sums["weight"][0], sums["weight"][1:]
        plain = self.glm.weight is None
        _within("rows", sums["rows"], n, n)
        _within("weight", whole, n if plain else 0, n if plain else n * self.most)
        _within("weight", folds, 0, whole)
        if len(folds):  # every sample is left out once
            _within("weight without the folds", (whole - folds).sum(), whole, whole)
        _within("missing", missing, 0, 0 if self.glm.impute is None else n)
        _within("missing", missing, np.rint(missing), np.rint(missing))
        known = n - missing if plain else np.where(missing > 0, 0, whole)
        _within("weight_x", there, known, known if plain else whole)
        _within("sum_x", np.abs(sums["sum_x"]), 0, self.most * there)
        _within("counted", sums["counted"], n if plain else 0, n)
        self._response(sums)
        self._tilt(sums)
        least, most = self._saturated(n, sums)
        slip = SLIP * (whole + abs(most))
        _within("saturated", sums["saturated"], least - slip, most + slip)

    def _tilt(self, sums: Sums) -> None:
        """What offsets add to the null model; `Family.tilt` says which sum it is."""
        weight, y, tilt = sums["weight"], sums["sum_y"][:, 0], sums["sum_tilt"]
        positive = {"poisson": weight, "gamma": y}.get(self.family.name)  # times exp(+-offset)
        if self.glm.offset is None:
            alone = 0 * weight if positive is None else positive
            _within("sum_tilt", tilt, alone, alone)
        elif positive is None:
            _within("sum_tilt", np.abs(tilt), 0, self.most * weight)
        else:
            largest = np.exp(min(self.most, LARGEST_LOG))
            _within("sum_tilt", tilt, positive / largest, positive * largest)
            _within("sum_tilt", tilt[1:], 0, tilt[0])

    def _response(self, sums: Sums) -> None:
        y, yy, weight = sums["sum_y"], sums["sum_yy"], sums["weight"][:, None]
        if self.family.response == "number":
            least = 0 if self.family.name in POSITIVE else -self.most * weight
            _within("sum_y", y, least, self.most * weight)
            _within("sum_yy", yy, 0, self.most**2 * weight)
            _within("sum_yy", yy[1:], 0, yy[0])
            _bounded("sum_y", y, yy, weight)
            return
        _within("sum_y", y, 0, weight)  # indicators of the classes, or events
        _within("sum_y", y[1:], 0, y[0])
        _within("sum_yy", yy, y, y)
        if self.family.response == "class":
            _within("sum_y", y.sum(axis=1), weight[:, 0], weight[:, 0])

    def _saturated(self, n: float, sums: Sums) -> tuple[float, float]:
        """The range of the smallest loss, given the sums of the response."""
        y, yy, weight = sums["sum_y"][0, 0], sums["sum_yy"][0, 0], sums["weight"][0]
        if self.family.coupled:  # sum d ln d over the times
            return -n / np.e, float(xlogy(y, y))
        least = {"poisson": 2 * y - yy, "gamma": LEAST_LOG * weight}.get(self.family.name, 0.0)
        return float(least), self._best(y, weight)

    def _best(self, y: float, weight: float) -> float:
        """The largest that the smallest loss can be, by Jensen's inequality."""
        if not weight > 0:
            return 0.0
        mean = np.maximum(np.array([y / weight]), np.finfo(float).tiny)
        return float(weight * self.family.saturated(mean)[0])

    # --- later answers --------------------------------------------------------------------------

    def _spread(self, described: Sums, request: Request, sums: Sums) -> None:
        weight, squares = described["weight"][:, None], sums["sum_zz"]
        most = (self.most + np.abs(request["mean"])) ** 2 * weight
        _within("sum_zz", squares, 0, most)
        _within("sum_zz", squares[1:], 0, squares[0])
        _bounded("sum_z", sums["sum_z"], squares, weight)

    def _evaluate(self, described: Sums, request: Request, sums: Sums) -> None:
        weight, loss = described["weight"][request["problems"]], sums["loss"]
        slip = SLIP * (described["weight"][0] + abs(described["saturated"]))
        least = np.array([self._least_loss(described, int(q)) for q in request["problems"]])
        _within("loss", loss, least - slip, np.inf)
        with np.errstate(over="ignore"):  # a loss that overflows is honest, and so are the others
            most = np.abs(loss) + self.most * weight
            slope, bend = self.most * most, self.most**2 * most
        _within("gradient", np.abs(sums["gradient"]).max(axis=1, initial=0), 0, slope)
        wanted, hessian = request["hessians"], sums["hessian"]
        _within("hessian", np.abs(hessian).max(axis=1, initial=0), 0, bend[wanted])
        rows = np.arange(round((np.sqrt(8 * hessian.shape[1] + 1) - 1) / 2))
        diagonal = hessian[:, rows * (rows + 3) // 2]  # of a lower triangle, row by row
        slips = SLIP * np.maximum(weight[wanted], diagonal.max(axis=1, initial=0))
        if self.family.coupled:  # a difference of two matrices, whose sizes are not known here
            slips = slips + SLIP * self.most * weight[wanted]
        _within("diagonal of the hessian", diagonal, -slips[:, None], np.inf)

    def _least_loss(self, described: Sums, problem: int) -> float:
        """Of the training samples of a problem: of all, less the largest of those left out."""
        least = float(described["saturated"])
        if not problem:
            return least
        if self.family.coupled:
            return -float(described["rows"]) / np.e
        y, weight = described["sum_y"][:, 0], described["weight"]
        out = float(weight[0] - weight[problem])
        if self.family.name == "poisson":
            return least - out  # y - y ln y is at most 1
        return least - self._best(y[0] - y[problem] + SLIP * y[0], out)

    def _validate(self, described: Sums, request: Request, sums: Sums) -> None:
        def left_out(sums_: Array) -> Array:
            which = request["problems"]
            return np.where(which == 0, sums_[0], sums_[0] - sums_[which])

        slip = SLIP * described["weight"][0]
        out = left_out(described["weight"]) + slip
        if "centre" in request:
            for name in ("positive", "negative"):
                _within(name, sums[name], 0, out[:, None])
            total = (sums["positive"] + sums["negative"]).sum(axis=1)
            _within("histogram", total, out - 2 * slip, out)
            return
        by_events = self.family.coupled and request["score"] == "deviance"
        counted = left_out(described["sum_y"][:, 0]) + slip if by_events else out
        _within("weight", sums["weight"], np.maximum(counted - 2 * slip, 0), counted)
        most: dict[str, Bound] = {"right": sums["weight"], "comparable": out**2}
        most["concordant"] = sums.get("comparable", 0)
        for name in ("right", "absolute", "pearson", "comparable", "concordant"):
            if name in sums:
                _within(name, sums[name], 0, most.get(name, np.inf))
        pairs = {"score": "score_square", "absolute": "squared", "sum_y": "sum_yy"}
        for name, square in pairs.items():
            if name in sums:
                _within(square, sums[square], 0, np.inf)
                _bounded(name, sums[name], sums[square], sums["weight"])
        if "deviance" in sums and not self.family.coupled:
            rounding = slip + SLIP * abs(described["saturated"])
            _within("deviance", sums["deviance"], -rounding, np.inf)


def _within(name: str, found: Array, least: Bound, most: Bound) -> None:
    """Refuse sums outside their range, but for rounding."""
    found, low, high = np.broadcast_arrays(found, least, most)
    good = (found >= low - SLIP * np.abs(low)) & (found <= high + SLIP * np.abs(high))
    if not good.all():
        at = int(np.argmin(good))
        raise CompositeFLError(
            f"its {name} is {found.flat[at]:g}, outside {low.flat[at]:g} to {high.flat[at]:g}"
        )


def _bounded(name: str, sums: Array, squares: Array, weight: Array) -> None:
    """Refuse sums that are larger than their squares allow."""
    _within(name, np.abs(sums), 0, np.sqrt(weight * squares) + weight * TINY)
