"""Standard errors of an unpenalised fit, from the Hessian summed over the sites."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import norm, t

from compositefl.glm.curvature import LARGEST
from compositefl.glm.layout import symmetric
from compositefl.glm.outcome import Path
from compositefl.glm.sites import Sites
from compositefl.glm.spec import Spec

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray


@dataclass(frozen=True)
class Inference:
    """Estimates and their covariance in original units: intercept (if any), then coefficients.

    With several classes class after class.
    """

    estimate: Array
    covariance: Array
    freedom: float  # degrees of freedom of the t distribution; infinity: normal

    @property
    def error(self) -> Array:
        """Standard errors; NaN where the data do not determine a coefficient."""
        with np.errstate(invalid="ignore"):
            return np.sqrt(np.diag(self.covariance))

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
    if family.name in ("multinomial", "huber") or p > LARGEST:
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
    freedom = path.rows - len(index)
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
    inverse, loose = _inverse(H)
    full, unknown = np.zeros((1 + p, 1 + p)), np.zeros(1 + p)
    full[np.ix_(index, index)] = inverse * dispersion
    unknown[index] = loose
    map_ = path.scaling.matrix(1)
    covariance = map_ @ full @ map_.T
    unknown = (map_ != 0) @ unknown > 0
    covariance[unknown], covariance[:, unknown] = np.nan, np.nan
    estimate = map_ @ x[: 1 + p]
    if not spec.intercept:
        covariance, estimate = covariance[1:, 1:], estimate[1:]
    return Inference(estimate, covariance, degrees)


def _inverse(H: Array) -> tuple[Array, Array]:
    """H^-1 and which entries the data do not determine."""
    scale = np.sqrt(np.maximum(np.diag(H), np.finfo(float).tiny))
    values, vectors = np.linalg.eigh(H / scale[:, None] / scale)
    small = values < 1e-10 * values.max(initial=0.0)
    loose = (np.abs(vectors[:, small]) > 1e-6).any(axis=1)
    good = vectors[:, ~small]
    return (good / values[~small]) @ good.T / scale[:, None] / scale, loose
