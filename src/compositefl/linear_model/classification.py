"""Logistic regression, of two classes and of many."""

from dataclasses import KW_ONLY, dataclass

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.multiclass import check_classification_targets

from compositefl.core.errors import CompositeFLError
from compositefl.glm.families import Family, family
from compositefl.linear_model.base import GeneralizedLinearModel
from compositefl.linear_model.inputs import ArrayLike, missing

Array = np.ndarray


@dataclass(eq=False, repr=False)
class Classifier(ClassifierMixin, GeneralizedLinearModel):
    """Predicts classes and their probabilities.

    classes_ are the labels in their order; with two of them coef_ is of the shape (1, p) and counts
    for classes_[1], with more it has a row per class.
    """

    def _family(self, classes: int = 2) -> Family:
        return family("binomial" if classes == 2 else "multinomial")

    def _response(self, y: ArrayLike) -> tuple[Array, int]:
        y = column_or_1d(y, warn=True)
        if missing(y).any() or (y.dtype.kind == "f" and not np.isfinite(y).all()):
            raise CompositeFLError("y has NaN or infinite values", parameter="y")
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise CompositeFLError(
                f"y holds one class alone, '{self.classes_[0]}', at all sites; it needs 2 classes",
                parameter="y",
            )
        return codes.astype(float), len(self.classes_)

    def _set_coefficients(self, intercept: Array, b: Array) -> None:
        self.coef_, self.intercept_ = b.T.copy(), intercept

    def decision_function(self, X: ArrayLike, offset: ArrayLike | None = None) -> Array:
        """Linear predictors: of classes_[1], or one per class."""
        eta = self._linear_predictor(X, offset)
        return eta[:, 0] if len(self.classes_) == 2 else eta

    def predict_proba(self, X: ArrayLike, offset: ArrayLike | None = None) -> Array:
        """Probability of every class, in the order of classes_."""
        eta = self._linear_predictor(X, offset)
        return self._family(len(self.classes_)).predict(eta)

    def predict_log_proba(self, X: ArrayLike, offset: ArrayLike | None = None) -> Array:
        """Logarithms of the probabilities."""
        return np.log(self.predict_proba(X, offset))

    def predict(self, X: ArrayLike, offset: ArrayLike | None = None) -> Array:
        """The most likely class."""
        eta = self._linear_predictor(X, offset)
        best = (eta[:, 0] > 0).astype(int) if len(self.classes_) == 2 else eta.argmax(axis=1)
        return self.classes_[best]


@dataclass(eq=False, repr=False)
class LogisticRegression(Classifier):
    """Two classes by their log-odds, more by a softmax whose classes are on equal terms."""

    alpha: float = 0.01
    _: KW_ONLY
    l1_ratio: float = 1.0
