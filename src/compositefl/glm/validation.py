"""Sums over samples that a fit has not seen, at one site."""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import ndtr

from compositefl.glm import survival
from compositefl.glm.design import Design
from compositefl.glm.families import Family

Array = np.ndarray
Sums = dict[str, Array]
BINS = 1000  # of a histogram of scores


@dataclass(frozen=True)
class Part:
    """Some rows of a table in standard units."""

    design: Design
    y: Array
    weight: Array
    offset: Array
    fold: Array
    times: survival.Times | None = None
    cut: dict[int, Design] = field(default_factory=dict)  # designs of folds that were asked for

    def fold_design(self, problem: int) -> Design:
        """Of the samples that a problem leaves out."""
        if problem not in self.cut:
            self.cut[problem] = self.design.take(self.fold == problem)
        return self.cut[problem]

    def weights(self, problem: int) -> Array:
        """Of the samples in the training set of a problem."""
        return self.weight if problem == 0 else np.where(self.fold == problem, 0.0, self.weight)

    def held_out(self, problem: int) -> "Part":
        """What a problem leaves out; all for problem 0 and where samples are coupled."""
        if problem == 0 or self.times is not None:
            return self
        out = self.fold == problem
        data = (self.y[out], self.weight[out], self.offset[out], self.fold[out])
        return Part(self.fold_design(problem), *data)


def score_sums(
    family: Family,
    part: Part,
    eta: Array,
    problem: int,
    score: str,
    bins: tuple[float, float] | None = None,
) -> Sums:
    """What a score needs of the held-out samples with linear predictors eta, (n, k).

    bins: centre and spread of the linear predictors, for histograms of them.
    """
    if part.times is not None:
        sums = _survival_sums(part, part.times, eta[:, 0], problem, score)
    else:
        sums = _independent_sums(family, part, eta, score, bins)
    return {name: np.asarray(value, float) for name, value in sums.items()}


def _independent_sums(
    family: Family, part: Part, eta: Array, score: str, bins: tuple[float, float] | None
) -> dict[str, float | Array]:
    y, weight = part.y, part.weight
    if bins is not None:
        centre, spread = bins
        place = ndtr((eta[:, 0] - centre) / (spread if spread > 0 else 1.0))
        # NaN where a linear predictor overflows: such a point has a bin, too
        at = np.minimum((np.nan_to_num(place) * BINS).astype(int), BINS - 1)
        return {
            "positive": np.bincount(at, weight * (y > 0), BINS),
            "negative": np.bincount(at, weight * (y <= 0), BINS),
        }
    sums: dict[str, float | Array] = {"weight": weight.sum()}
    if score == "deviance":
        sums["deviance"] = 2 * weight @ (family.losses(eta, y) - family.saturated(y))
    elif score == "accuracy":
        answer = eta.argmax(axis=1) if eta.shape[1] > 1 else eta[:, 0] > 0
        sums["right"] = weight @ (answer == y)
    elif score == "auc":
        sums |= {"score": weight @ eta[:, 0], "score_square": weight @ eta[:, 0] ** 2}
    elif score == "pearson":  # squares in units of the variance, up to the dispersion
        mean = family.predict(eta[:, :1])[:, 0]
        unit = mean if family.name == "gamma" else 1.0
        sums["pearson"] = weight @ ((y - mean) / unit) ** 2
    else:
        error = family.predict(eta[:, :1])[:, 0] - y
        sums |= {"squared": weight @ error**2, "absolute": weight @ np.abs(error)}
        sums |= {"sum_y": weight @ y, "sum_yy": weight @ y**2}
    return sums


def _survival_sums(
    part: Part, times: survival.Times, eta: Array, problem: int, score: str
) -> dict[str, float | Array]:
    """The deviance of a fold is what its samples add to that of the others (van Houwelingen).

    Less the smallest loss, as everywhere: else ties would count as misfit, and the size of the
    weights would count.
    """
    out = (part.fold == problem) if problem else np.ones(len(eta), bool)
    out &= part.weight > 0
    if score == "c_index":
        weight = part.weight[out]
        pairs = survival.concordance(times.time[out], times.event[out], eta[out], weight)
        return {"weight": weight.sum(), "concordant": pairs[0], "comparable": pairs[1]}

    def excess(weight: Array) -> float:
        loss = survival.partial_likelihood(times, eta, weight).loss
        return loss - survival.saturated(times, weight)

    added = excess(part.weight) - (excess(part.weights(problem)) if problem else 0.0)
    return {"weight": part.weight[out & times.event].sum(), "deviance": 2 * added}
