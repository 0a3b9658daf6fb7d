"""Standard errors of an unpenalised fit, from the Hessian summed over the sites."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.stats import norm, t

from compositefl.glm.curvature import LARGEST
from compositefl.glm.layout import symmetric
from compositefl.glm.outcome import Path
from compositefl.glm.sites import Sites
from compositefl.glm.spec import Spec

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray
SINGULAR = 1e-10  # eigenvalues of the information, relative to the largest, that are rounding
FLOOR = 1e-30  # information on an entry, relative to the largest, that is none
NO_ERRORS = ("multinomial", "huber")
PART = 1e-6  # share of a direction without information that an entry has by rounding
NAMED = 8  # columns that a warning names


@dataclass(frozen=True)
class Inference:
    """Estimates and their covariance in original units: intercept (if any), then coefficients.

    With several classes class after class. tied: groups of entries of which the data determine
    less than there are, collinear columns.
    """

    estimate: Array
    covariance: Array
    freedom: float  # degrees of freedom of the t distribution; infinity: normal
    tied: tuple[tuple[int, ...], ...] = ()

    @property
    def error(self) -> Array:
        """Standard errors; NaN where the data do not determine a coefficient."""
        with np.errstate(invalid="ignore"):
            return np.sqrt(np.diag(self.covariance))

    def caution(self, names: Sequence[str]) -> str:
        """What the data leave open, given the names of all entries; "" if nothing."""
        told = []
        for group in self.tied:
            listed = ", ".join(names[i] for i in group[:NAMED]) + ", ..." * (len(group) > NAMED)
            many = len(group) > 1
            told.append(f"{listed} are collinear" if many else f"{listed} has no information")
        if not told:
            return ""
        return (
            f"the data do not determine all coefficients: {'; '.join(told)}. Those have no "
            "standard errors; leave columns out, or take a penalty"
        )

    def table(self, confidence: float, ratio: str) -> "pd.DataFrame":
        """Standard error, statistic, p-value and interval of every coefficient."""
        import pandas as pd

        law = norm if np.isinf(self.freedom) else t(self.freedom)
        reach = law.ppf(0.5 + confidence / 2) * self.error
        with np.errstate(divide="ignore", invalid="ignore"):
            statistic = self.estimate / self.error
        percent = f"{100 * confidence:g} %"
        low, high = self.estimate - reach, self.estimate + reach
        frame = pd.DataFrame(
            {
                "std. error": self.error,
                "z" if np.isinf(self.freedom) else "t": statistic,
                "p-value": 2 * law.sf(np.abs(statistic)),
                f"lower {percent}": low,
                f"upper {percent}": high,
            }
        )
        if ratio:
            with np.errstate(over="ignore"):
                frame[f"{ratio} lower"], frame[f"{ratio} upper"] = np.exp(low), np.exp(high)
        return frame


def infer(spec: Spec, sites: Sites, path: Path) -> Inference | None:
    """Ask for the information at the solution and invert it; None where it is not available.

    Multinomial models have no unique coefficients without a penalty, and a Huber loss is no
    likelihood: neither has standard errors here.
    """
    family, p = spec.family, len(path.scaling.scale)
    if family.name in NO_ERRORS or p > LARGEST:
        return None
    x = path.x[0, -1]
    columns = np.flatnonzero(path.scaling.scale > 0)
    answer = sites.ask(
        "evaluate",
        points=x[None],
        problems=np.zeros(1, int),
        hessians=np.ones(1, bool),
        columns=columns,
        mean=path.scaling.centre,
        scale=path.scaling.scale,
        intercept=spec.intercept,
        expected=True,
    )
    index = np.concatenate([[0], 1 + columns]) if spec.intercept else 1 + columns
    H = symmetric(answer["hessian"][0], len(index))
    # In units in which H has a diagonal of ones: no scale of a column looks like rounding.
    unit = 1 / np.sqrt(np.maximum(np.diag(H), FLOOR * np.diag(H).max(initial=1e-200)))
    inverse, empty = _inverse(H * unit[:, None] * unit)
    freedom = path.rows - len(index) + empty.shape[1]
    dispersion, degrees = 1.0, np.inf
    if family.dispersion:
        sums = sites.ask(
            "validate",
            points=x[None],
            problems=np.zeros(1, int),
            mean=path.scaling.centre,
            scale=path.scaling.scale,
            score="pearson",
        )
        dispersion = float(sums["pearson"][0]) / freedom if freedom > 0 else np.nan
        degrees = max(freedom, 1e-9)
    map_ = path.scaling.matrix(1)
    estimate, scaled = map_ @ x[: 1 + p], map_[:, index] * unit
    covariance = scaled @ (inverse * dispersion) @ scaled.T
    unknown = _unknown(scaled, empty)
    unknown[1:] |= path.scaling.scale == 0  # a constant column, which is left out
    covariance[unknown], covariance[:, unknown] = np.nan, np.nan
    tied = _tied(empty, index)
    if not spec.intercept:
        covariance, estimate = covariance[1:, 1:], estimate[1:]
        tied = tuple(tuple(i - 1 for i in group) for group in tied)
    return Inference(estimate, covariance, degrees, tied)


def _inverse(H: Array) -> tuple[Array, Array]:
    """The pseudo-inverse of H, and orthonormal columns that span what has no information."""
    values, vectors = np.linalg.eigh(H)
    small = values <= SINGULAR * values.max(initial=0.0)
    good = vectors[:, ~small]
    return (good / values[~small]) @ good.T, vectors[:, small]


def _unknown(map_: Array, empty: Array) -> Array:
    """Which rows of a linear map change along a direction without information.

    Others, such as the intercept beside two equal columns, are determined: whichever of the
    solutions is taken, they and their variances are the same.
    """
    part = np.abs(empty).max(axis=1, initial=0.0) > PART
    reach = np.linalg.norm(map_[:, part], axis=1)
    unknown: Array = np.linalg.norm(map_[:, part] @ empty[part], axis=1) > PART * reach
    return unknown


def _tied(empty: Array, index: Array) -> tuple[tuple[int, ...], ...]:
    """Entries that directions without information move together."""
    moved = np.abs(empty @ empty.T) > PART
    _, label = connected_components(moved, directed=False)
    free = np.diag(moved)
    return tuple(
        tuple(int(i) for i in index[label == one]) for one in dict.fromkeys(label[free].tolist())
    )
