"""Proportional hazards, with every site as a stratum."""

from dataclasses import KW_ONLY, dataclass

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.glm.families import Family
from compositefl.glm.survival import concordance
from compositefl.linear_model import inputs
from compositefl.linear_model.base import GeneralizedLinearModel
from compositefl.linear_model.inputs import ArrayLike

Array = np.ndarray


@dataclass(eq=False, repr=False)
class SurvivalModel(GeneralizedLinearModel):
    """Cox's model with Breslow's ties; each site has a baseline hazard of its own.

    y is a structured array with the event (bool) and the time, as scikit-survival has it, or two
    columns, time and event. fit_intercept counts for nothing: the model has no intercept.
    """

    family_name = "cox"

    def _response(self, y: ArrayLike) -> tuple[Array, int]:
        return inputs.survival_response(y), 2

    def _check_response(self, made: Family, y: Array, rows: dict[str, Array]) -> None:
        """Times are checked already."""

    def predict(self, X: ArrayLike) -> Array:
        """The risk score: the logarithm of the hazard ratio to a sample of zeros."""
        return self._linear_predictor(X)[:, 0]

    def score(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Harrell's concordance index."""
        risk, known = self.predict(X), inputs.survival_response(y)
        inputs.check_length(known, len(risk))
        weight = inputs.check_weights(inputs.per_sample("sample_weight", sample_weight, len(risk)))
        time, event = known.T
        concordant, comparable = concordance(time, event, risk, weight)
        if comparable == 0:
            raise CompositeFLError(
                "no two samples can be compared: that needs an event before the time of another "
                "sample",
                parameter="y",
            )
        return float(concordant / comparable)


@dataclass(eq=False, repr=False)
class CoxRegression(SurvivalModel):
    """Proportional hazards at one alpha; by default without a penalty."""

    alpha: float = 0.0
    _: KW_ONLY
    l1_ratio: float = 1.0
