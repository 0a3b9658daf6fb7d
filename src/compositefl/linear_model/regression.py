"""Regression: lasso, elastic net, Poisson, gamma and Huber."""

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.base import RegressorMixin

from compositefl.core.errors import CompositeFLError
from compositefl.glm.families import Family, family
from compositefl.glm.problems import ROUNDING
from compositefl.linear_model import inputs
from compositefl.linear_model.base import GeneralizedLinearModel
from compositefl.linear_model.inputs import ArrayLike

if TYPE_CHECKING:
    from sklearn.utils import Tags

Array = np.ndarray


@dataclass(eq=False, repr=False)
class Regressor(RegressorMixin, GeneralizedLinearModel):
    """Predicts the mean of y."""

    def predict(self, X: ArrayLike, offset: ArrayLike | None = None) -> Array:
        """The mean of y for each sample."""
        return self._family().predict(self._linear_predictor(X, offset))[:, 0]


class DevianceScore:
    """The score of Poisson and gamma models: the share of deviance explained, D^2."""

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> float:
        """1 - deviance / deviance of the model with an intercept (and the offset) alone.

        Where that model fits exactly, 1 for predictions that do so, too, and 0 for others, as
        scikit-learn's R^2.
        """
        model: Any = self
        made: Family = model._family()
        eta = model._linear_predictor(X, offset)
        n = len(eta)
        y, _ = model._response(y)
        inputs.check_length(y, n)
        if problem := made.check(y):
            raise CompositeFLError(f"y {problem} for the family {made.name}", parameter="y")
        weight = inputs.check_weights(inputs.per_sample("sample_weight", sample_weight, n))
        weight = np.ones(n) if weight is None else weight
        shift = inputs.per_sample("offset", offset, n)
        shift = np.zeros(n) if shift is None else shift
        best = float(weight @ made.saturated(y))
        mine = float(weight @ made.losses(eta, y)) - best
        null, mean = 0.0, np.average(y, weights=weight)
        if mean > 0:  # else there are no counts, which a mean of zero fits
            start = made.start(mean, np.average(made.tilt(y, shift), weights=weight))
            null = float(weight @ made.losses(start + shift[:, None], y)) - best
        rounding = ROUNDING * (abs(best) + weight.sum())
        if null <= rounding:
            return float(mine <= rounding)
        return 1 - mine / null

    def __sklearn_tags__(self) -> "Tags":
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.target_tags.positive_only = True
        return tags


@dataclass(eq=False, repr=False)
class Lasso(Regressor):
    """Least squares with an l1 penalty: (1/2) mean of (y - X b)^2 + alpha ||b||_1."""

    alpha: float = 1.0


@dataclass(eq=False, repr=False)
class ElasticNet(Regressor):
    """Least squares with l1 and squared l2 penalties."""

    alpha: float = 1.0
    _: KW_ONLY
    l1_ratio: float = 0.5


@dataclass(eq=False, repr=False)
class PoissonRegressor(DevianceScore, Regressor):
    """Counts, with the logarithm of their mean linear; exposure enters as offset = ln(exposure)."""

    family_name = "poisson"
    alpha: float = 1.0
    _: KW_ONLY
    l1_ratio: float = 0.0


@dataclass(eq=False, repr=False)
class GammaRegressor(DevianceScore, Regressor):
    """Positive numbers of a gamma distribution, with the logarithm of their mean linear."""

    family_name = "gamma"
    alpha: float = 1.0
    _: KW_ONLY
    l1_ratio: float = 0.0


@dataclass(eq=False, repr=False)
class HuberRegressor(Regressor):
    """Regression that outliers move little: squared near zero, linear beyond epsilon * scale_.

    As scikit-learn's, with the mean over samples in place of their sum: its alpha divided by the
    number of samples is the alpha here.

    Parameters
    ----------
    epsilon : residuals above epsilon * scale_ count linearly, > 1.
    scale : of y; None to estimate it with the coefficients, as scale_.
    """

    family_name = "huber"
    alpha: float = 1e-4
    _: KW_ONLY
    l1_ratio: float = 0.0
    epsilon: float = 1.35
    scale: float | None = None

    def _family(self, classes: int = 2) -> Family:
        return family("huber", epsilon=self.epsilon, scale=self.scale)
