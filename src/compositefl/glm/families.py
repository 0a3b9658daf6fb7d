"""Families of generalised linear models: a sample's loss as a function of its linear predictor.

    minimise  (1 / sum w) sum_i w_i loss(y_i, eta_i) + phi(b),    eta = offset + intercept + X b

Every loss is the negative log-likelihood up to what does not depend on eta (for huber: the loss
itself), so that half the deviance is the loss above that of the saturated model.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import expit, logsumexp, softmax, xlogy

from compositefl.core.errors import require_positive, unknown_name, wrong_value

Array = np.ndarray


@dataclass(frozen=True)
class Derivatives:
    """Loss of every sample, and its first and second derivatives in the k linear predictors."""

    loss: Array  # (n,)
    first: Array  # (n, k)
    second: Array  # (n, k, k), or (n, k) where k = 1


class Family:
    """One family. `eta` and `y` of `derivatives` have the shapes (n, k) and (n,)."""

    name: ClassVar[str]
    response: ClassVar[str] = "number"  # what y holds: "number", "class" or "survival"
    ratio: ClassVar[str] = ""  # what exp(coefficient) is called
    intercept: ClassVar[bool] = True  # whether the model can have one
    coupled: ClassVar[bool] = False  # samples of a site depend on each other
    dispersion: ClassVar[bool] = False  # the variance has a factor to be estimated
    has_scale: ClassVar[bool] = False  # a scale of y is one more parameter
    recedes: ClassVar[bool] = False  # the loss may fall for ever while coefficients grow

    def outputs(self, classes: int) -> int:
        """Linear predictors per sample."""
        return 1

    def check(self, y: Array) -> str | None:
        """What is wrong with these responses, or None."""
        return None

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        raise NotImplementedError

    def losses(self, eta: Array, y: Array) -> Array:
        """The loss alone."""
        return self.derivatives(eta, y).loss

    def expected(self, made: Derivatives) -> Array:
        """The second derivatives that are expected for such eta: what standard errors rest on."""
        return made.second

    def saturated(self, y: Array) -> Array:
        """The smallest loss that any eta gives."""
        return np.zeros(len(y))

    def rounding(self, mean: float, square: float) -> float:
        """Size of the numbers whose differences first derivatives are; from means of y and y^2."""
        return 1.0

    def tilt(self, y: Array, offset: Array) -> Array:
        """What of every sample's offset the intercept of the model without features depends on."""
        return offset

    def start(self, mean: Array | float, tilt: float) -> Array:
        """The intercepts of the model without features, or near them where there is no closed form.

        From the mean response, for classes their shares, and the mean of `tilt`.
        """
        return np.atleast_1d(mean) - tilt

    def predict(self, eta: Array) -> Array:
        """The mean response, or the probabilities of the classes."""
        return eta


class Gaussian(Family):
    """(y - eta)^2 / 2."""

    name = "gaussian"
    dispersion = True

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        residual = eta - y[:, None]
        return Derivatives(0.5 * residual[:, 0] ** 2, residual, np.ones_like(eta))

    def rounding(self, mean: float, square: float) -> float:
        return float(np.sqrt(square))


class Binomial(Family):
    """ln(1 + exp(eta)) - y eta, y in {0, 1}."""

    name = "binomial"
    recedes = True
    response = "class"
    ratio = "odds ratio"

    def check(self, y: Array) -> str | None:
        return None if np.isin(y, (0, 1)).all() else "must be 0 or 1"

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        # One exponential serves them all: of the two chances the smaller one is odds * larger.
        sign = (1 - 2 * (y > 0))[:, None]
        z = sign * eta  # positive where the other class is the likelier one
        odds = np.exp(-np.abs(z))
        larger = 1 / (1 + odds)
        smaller = odds * larger
        loss = np.log1p(odds) + np.maximum(z, 0.0)
        miss = np.where(z > 0, larger, smaller)  # chance of the other class
        return Derivatives(loss[:, 0], sign * miss, larger * smaller)

    def losses(self, eta: Array, y: Array) -> Array:
        z = np.where(y > 0, -eta[:, 0], eta[:, 0])
        return np.logaddexp(0.0, z)

    def start(self, mean: Array | float, tilt: float) -> Array:
        share = np.asarray(mean, float)
        return np.atleast_1d(np.log(share[1] / share[0])) - tilt

    def predict(self, eta: Array) -> Array:
        chance = expit(eta[:, 0])
        return np.column_stack([1 - chance, chance])


class Multinomial(Family):
    """ln(sum_c exp(eta_c)) - eta_y, y a class 0, 1, ..., the classes on equal terms."""

    name = "multinomial"
    recedes = True
    response = "class"

    def outputs(self, classes: int) -> int:
        return classes

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        chance = softmax(eta, axis=1)
        hit = np.arange(eta.shape[1]) == y[:, None]
        second = -chance[:, :, None] * chance[:, None, :]
        at = np.arange(eta.shape[1])
        second[:, at, at] += chance
        return Derivatives(self.losses(eta, y), chance - hit, second)

    def losses(self, eta: Array, y: Array) -> Array:
        return logsumexp(eta, axis=1) - eta[np.arange(len(y)), y.astype(int)]

    def start(self, mean: Array | float, tilt: float) -> Array:
        logs = np.log(np.asarray(mean, float))
        return logs - logs.mean()  # an offset of all classes changes nothing

    def predict(self, eta: Array) -> Array:
        return softmax(eta, axis=1)


class Poisson(Family):
    """exp(eta) - y eta, y a count; an exposure enters as the offset ln(exposure)."""

    name = "poisson"
    recedes = True
    ratio = "rate ratio"

    def check(self, y: Array) -> str | None:
        return "must not be negative" if (y < 0).any() else None

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        with np.errstate(over="ignore"):  # an infinite loss is a step that is not taken
            mean = np.exp(eta)
        return Derivatives((mean - y[:, None] * eta)[:, 0], mean - y[:, None], mean)

    def saturated(self, y: Array) -> Array:
        return y - xlogy(y, y)

    def rounding(self, mean: float, square: float) -> float:
        return float(np.sqrt(square))

    def tilt(self, y: Array, offset: Array) -> Array:
        with np.errstate(over="ignore"):  # is told with the sum
            return np.exp(offset)

    def start(self, mean: Array | float, tilt: float) -> Array:
        return np.atleast_1d(np.log(mean) - np.log(tilt))  # sum w y = exp(intercept) sum w exp(o)

    def predict(self, eta: Array) -> Array:
        return np.exp(eta)


class Gamma(Family):
    """y exp(-eta) + eta, y > 0: the logarithmic link."""

    name = "gamma"
    ratio = "ratio of means"
    dispersion = True

    def check(self, y: Array) -> str | None:
        return "must be above 0" if (y <= 0).any() else None

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        with np.errstate(over="ignore"):
            ratio = y[:, None] * np.exp(-eta)
        return Derivatives((ratio + eta)[:, 0], 1.0 - ratio, ratio)

    def expected(self, made: Derivatives) -> Array:
        return np.ones_like(made.second)

    def saturated(self, y: Array) -> Array:
        return 1.0 + np.log(y)

    def tilt(self, y: Array, offset: Array) -> Array:
        with np.errstate(over="ignore"):
            return y * np.exp(-offset)

    def start(self, mean: Array | float, tilt: float) -> Array:
        return np.atleast_1d(np.log(tilt))  # sum w = exp(-intercept) sum w y exp(-o)

    def predict(self, eta: Array) -> Array:
        return np.exp(eta)


@dataclass(frozen=True)
class Huber(Family):
    """Half of sigma + sigma H(r / sigma), r = eta - y, H(z) = z^2, beyond epsilon 2 epsilon |z| -
    epsilon^2 (Huber 1981, section 7.7, as scikit-learn has it).

    sigma, the scale of y, is found together with the coefficients, or given as `scale`. Its value
    stands as a second column of eta.
    """

    name: ClassVar[str] = "huber"
    epsilon: float = 1.35
    scale: float | None = None

    def __post_init__(self) -> None:
        require_positive(epsilon=self.epsilon)
        if self.epsilon <= 1:
            raise wrong_value("epsilon", self.epsilon, "above 1")
        if self.scale is not None:
            require_positive(scale=self.scale)

    @property
    def has_scale(self) -> bool:  # type: ignore[override]
        return self.scale is None

    def derivatives(self, eta: Array, y: Array) -> Derivatives:
        r = eta[:, 0] - y
        sigma = eta[:, 1] if self.has_scale else np.full(len(y), self.scale)
        inside = np.abs(r) <= self.epsilon * sigma
        z = np.where(inside, r / sigma, self.epsilon * np.sign(r))
        loss = np.where(inside, r * z, 2 * self.epsilon * np.abs(r) - self.epsilon**2 * sigma)
        curvature = np.where(inside, 1 / sigma, 0.0)
        loss = 0.5 * (sigma + loss)
        if not self.has_scale:
            return Derivatives(loss, z[:, None], curvature[:, None])
        # A z of an outlier is +-epsilon: the same formulas hold inside and outside.
        first = np.column_stack([z, 0.5 * (1 - z * z)])
        second = curvature[:, None, None] * np.array([[1.0, 0.0], [0.0, 0.0]])
        second[:, 0, 1] = second[:, 1, 0] = -curvature * z
        second[:, 1, 1] = curvature * z * z
        return Derivatives(loss, first, second)

    def rounding(self, mean: float, square: float) -> float:
        if self.scale is not None:
            return float(np.sqrt(square)) / self.scale
        return float(np.sqrt(square / max(square - mean**2, 1e-30 * square)))


class Cox(Family):
    """Minus the logarithm of Breslow's partial likelihood, the sites as strata; see `survival`."""

    name = "cox"
    recedes = True
    response = "survival"
    ratio = "hazard ratio"
    intercept = False
    coupled = True

    def predict(self, eta: Array) -> Array:
        return np.exp(eta)


FAMILIES: dict[str, type[Family]] = {
    cls.name: cls for cls in (Gaussian, Binomial, Multinomial, Poisson, Gamma, Huber, Cox)
}


def family(name: str, **numbers: float | None) -> Family:
    """The family of this name; huber takes epsilon and scale."""
    if name not in FAMILIES:
        raise unknown_name("family", name, FAMILIES)
    return FAMILIES[name](**numbers)
