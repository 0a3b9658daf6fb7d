"""How well models of a path predict samples that they have not seen, from sums over sites.

Deviance, squared and absolute errors, accuracy and R2 are exact. The C-index is exact for pairs
within a site, as the stratified model is. The AUC comes from histograms of the scores with 1,000
bins of about equal content, which is exact to three digits (ties within a bin count half).
"""

import warnings
from dataclasses import dataclass

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.glm.families import Family
from compositefl.glm.outcome import Path
from compositefl.glm.sites import Sites
from compositefl.glm.spec import Spec

Array = np.ndarray
POINTS = 2000  # models in one message
CONSTANT = 1e-14  # spread of a target, relative to its mean square, that is rounding
SCORES = {  # by what y holds; True: higher is better
    "class": {"deviance": False, "accuracy": True, "auc": True},
    "number": {"deviance": False, "mse": False, "mae": False, "r2": True},
    "survival": {"deviance": False, "c_index": True},
}


def check_score(family: Family, score: str, classes: int = 2) -> None:
    """Refuse a score that the family does not have."""
    known = SCORES[family.response]
    if score not in known or (score == "auc" and classes > 2):
        names = [name for name in known if name != "auc" or classes == 2]
        raise CompositeFLError(
            f"scoring='{score}' must be one of {', '.join(names)} for the family {family.name}",
            parameter="scoring",
            value=score,
        )


@dataclass(frozen=True)
class Curve:
    """The cross-validation curve: a mean and its standard error for every alpha."""

    score: str
    by_fold: Array  # (folds, alphas)
    mean: Array
    error: Array
    best: int  # index of the best mean
    one_error: int  # index of the largest alpha within one standard error of it


def cross_validate(spec: Spec, sites: Sites, path: Path, score: str = "deviance") -> Curve:
    """The score of every alpha on the folds, each predicted by the fit without it."""
    check_score(spec.family, score, spec.classes)
    folds, count = spec.folds, len(path.alphas)
    points = path.x[1:].reshape(folds * count, -1)
    problems = np.repeat(np.arange(1, folds + 1), count)
    sums = _sums(sites, path, points, problems, score)
    shaped = {name: value.reshape(folds, count, -1) for name, value in sums.items()}
    values, weight = by_fold(score, shaped)
    better = SCORES[spec.family.response][score]
    return curve(score, values, weight[:, 0], better)


def curve(score: str, values: Array, weight: Array, higher_is_better: bool) -> Curve:
    """Mean and standard error over the folds, weighted by their samples, as glmnet has them.

    A fold may have no score (no AUC of one class); it does not count.
    """
    there = (weight > 0) & ~np.isnan(values).all(axis=1)
    if not there.any():
        raise CompositeFLError(f"no fold has a {score}: fewer folds or more samples are needed")
    if (missing := int(np.sum((weight > 0) & ~there))) > 0:
        warnings.warn(
            f"{missing} of {len(weight)} folds have no {score} and are left out; fewer folds help",
            RuntimeWarning,
            stacklevel=2,
        )
    values, share = values[there], (weight[there] / weight[there].sum())[:, None]
    mean = (share * values).sum(axis=0)
    spread = (share * (values - mean) ** 2).sum(axis=0)
    error = np.sqrt(spread / max(1, len(values) - 1))
    sign = 1.0 if higher_is_better else -1.0
    merit = np.where(np.isnan(mean), -np.inf, sign * mean)
    best = int(np.argmax(merit))
    within = merit >= merit[best] - error[best]
    return Curve(score, values, mean, error, best, int(np.argmax(within)))


def by_fold(score: str, sums: dict[str, Array]) -> tuple[Array, Array]:
    """(score, weight) of every fold and alpha, from sums whose last axis may hold a histogram."""
    flat = {name: value[..., 0] for name, value in sums.items()}
    weight = flat["weight"]
    with np.errstate(divide="ignore", invalid="ignore"):
        if score == "auc":
            return auc(sums["positive"], sums["negative"]), weight
        if score == "r2":
            total = flat["sum_yy"] - flat["sum_y"] ** 2 / weight
            total = np.where(total > CONSTANT * flat["sum_yy"], total, np.nan)
            return 1 - flat["squared"] / total, weight
        if score == "c_index":
            return flat["concordant"] / flat["comparable"], weight
        name = {"mse": "squared", "mae": "absolute", "accuracy": "right"}.get(score, score)
        return flat[name] / weight, weight


def auc(positive: Array, negative: Array) -> Array:
    """Chance that a positive sample scores above a negative one, from histograms."""
    below = np.cumsum(negative, axis=-1) - 0.5 * negative
    pairs = positive.sum(axis=-1) * negative.sum(axis=-1)
    return (positive * below).sum(axis=-1) / pairs


def _sums(sites: Sites, path: Path, points: Array, problems: Array, score: str) -> dict[str, Array]:
    """The sites' sums at all points, in messages that are not too long."""

    def ask(**more: Array) -> dict[str, Array]:
        found = []
        for at in range(0, len(points), POINTS):
            cut = slice(at, at + POINTS)
            some = {name: value[cut] for name, value in more.items()}
            found.append(
                sites.ask(
                    "validate",
                    points=points[cut],
                    problems=problems[cut],
                    mean=path.scaling.centre,
                    scale=path.scaling.scale,
                    score=score,
                    **some,
                )
            )
        return {name: np.concatenate([f[name] for f in found]) for name in found[0]}

    sums = ask()
    if score == "auc":  # the bins follow the distribution of the scores
        weight = np.where(sums["weight"] > 0, sums["weight"], 1.0)  # a fold may hold nothing
        centre = sums["score"] / weight
        spread = np.sqrt(np.maximum(sums["score_square"] / weight - centre**2, 0))
        sums |= ask(centre=centre, spread=spread)
    return sums
