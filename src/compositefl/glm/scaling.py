"""Means and standard deviations over all sites, from sums, and the way back to original units."""

from dataclasses import dataclass

import numpy as np

from compositefl.glm.sites import Sites

Array = np.ndarray
CONSTANT = 1e-12  # spread of a column, relative to its mean, that is rounding


@dataclass(frozen=True)
class Scaling:
    """The units in which a fit is solved: z = (x - centre) / scale."""

    mean: Array
    deviation: Array  # population standard deviations by problem, (problems, p); 0: constant
    centre: Array
    scale: Array

    def to_original(self, intercepts: Array, coefficients: Array) -> tuple[Array, Array]:
        """Intercepts (..., k) and coefficients (..., p, k) in the units of the table."""
        factor = np.divide(1.0, self.scale, out=np.zeros_like(self.scale), where=self.scale > 0)
        b = coefficients * factor[:, None]
        return intercepts - np.einsum("p,...pk->...k", self.centre, b), b

    def matrix(self, k: int) -> Array:
        """Of the linear map from (intercepts, coefficients) in standard units to original ones."""
        p = len(self.scale)
        factor = np.divide(1.0, self.scale, out=np.zeros(p), where=self.scale > 0)
        full = np.zeros((1 + p, 1 + p))
        full[0, 0] = 1.0
        full[0, 1:] = -self.centre * factor
        full[1:, 1:] = np.diag(factor)
        return np.kron(full, np.eye(k))


def measure(sites: Sites, problems: int, described: dict[str, Array]) -> tuple[Array, Array]:
    """(means, population standard deviations by problem), in a second round.

    Squares are summed around the means: sums of raw squares lose all digits of a column such as
    1e8 + noise.
    """
    there = described["weight_x"]
    mean = np.divide(described["sum_x"], there, out=np.zeros_like(there), where=there > 0)
    sums = sites.ask("spread", problems=problems, mean=mean)
    weight = described["weight"][:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # is told in `Problems`
        variance = sums["sum_zz"] / weight - (sums["sum_z"] / weight) ** 2
    deviation = np.sqrt(np.maximum(variance, 0.0))
    return mean, np.where(deviation > CONSTANT * np.abs(mean), deviation, 0.0)


def choose(mean: Array, deviation: Array, *, intercept: bool, standardize: bool) -> Scaling:
    """The units of a fit: always close to unit variance, whatever the penalty counts in.

    Without an intercept columns cannot be centred; their size is then the root of their mean square
    unless they are standardised. A constant column has no scale and gets no coefficient, except
    where it takes the place of the intercept.
    """
    centre = mean if intercept else np.zeros_like(mean)
    scale = deviation[0]
    if not intercept and not standardize:
        scale = np.sqrt(deviation[0] ** 2 + mean**2)
    return Scaling(mean, deviation, centre, scale)
