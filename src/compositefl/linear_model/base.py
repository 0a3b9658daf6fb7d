"""What all estimators share: checking, fitting over sites, coefficients in original units."""

import numbers
import warnings
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from compositefl.core.errors import (
    CompositeFLError,
    ConvergenceWarning,
    require_integer,
    require_positive,
    wrong_value,
)
from compositefl.glm.families import Family, family
from compositefl.glm.inference import Inference, infer
from compositefl.glm.outcome import Path, in_original_units
from compositefl.glm.path import fit_path
from compositefl.glm.sites import LocalSites, Sites
from compositefl.glm.spec import Spec
from compositefl.linear_model import inputs
from compositefl.linear_model.inputs import ArrayLike
from compositefl.linear_model.penalties import chosen_penalty
from compositefl.linear_model.summary import Summary

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from compositefl.regularizers.base import Regularizer

Array = np.ndarray


@dataclass(eq=False, repr=False)
class GeneralizedLinearModel(BaseEstimator):
    """A generalised linear model of tables at several sites, equal to that of the pooled table.

        minimise (1 / sum w) sum_i w_i loss_i + alpha (l1_ratio ||b||_1 + (1 - l1_ratio)/2 ||b||^2)

    over all samples of all sites. Sites send sums over their samples (loss, gradient, Hessian).

    Parameters
    ----------
    alpha : weight of the penalty, 0 for none.
    l1_ratio : 1 for the lasso, 0 for a ridge.
    penalty : None for this elastic net; "mcp" or "scad" with weight alpha; or any regulariser of
        the library, an object or text such as "mcp:0.1,3", with its own numbers (alpha then
        counts for nothing).
    penalty_factor : multiplies the penalty of every feature, of the elastic net, "mcp" and "scad";
        0 leaves one unpenalised.
    fit_intercept : with an intercept, which is never penalised.
    standardize : the penalty counts coefficients of features with standard deviation 1 over all
        sites. Coefficients are in original units either way.
    positive : no negative coefficients.
    bounds : (lower, upper) of the coefficients, numbers or one for every feature.
    impute : "mean" to put the mean over all sites where values are missing; None refuses them.
    max_iter : rounds of communication for one alpha.
    tol : stationarity at which a fit ends, relative to the gradient of the model without features.

    Attributes
    ----------
    coef_, intercept_ : in original units.
    n_iter_ : rounds of communication.
    residual_ : how stationary the solution is, relative as tol.
    converged_ : whether it is as stationary as tol asks, or as rounding allows.
    alpha_max_ : the smallest alpha at which all penalised coefficients are zero.
    means_, deviations_ : of the features over all sites; a missing value is predicted with its mean
        where the fit had impute="mean".
    """

    _: KW_ONLY
    penalty: "Regularizer | str | None" = None
    penalty_factor: ArrayLike | None = None
    fit_intercept: bool = True
    standardize: bool = True
    positive: bool = False
    bounds: tuple[ArrayLike, ArrayLike] | None = None
    impute: str | None = None
    max_iter: int = 100
    tol: float = 1e-9

    family_name: ClassVar[str] = "gaussian"
    is_path: ClassVar[bool] = False  # over many alphas
    # Set it on an estimator, and it is called with a `glm.path.Progress` after every round.
    on_round: ClassVar[Any] = None

    # --- what a subclass answers ----------------------------------------------------------------

    def _family(self, classes: int = 2) -> Family:
        return family(self.family_name)

    def _response(self, y: ArrayLike) -> tuple[Array, int]:
        """(y as numbers or classes 0, 1, ..., number of classes)."""
        y = column_or_1d(y, warn=True)
        if y.dtype.kind in "mM":
            raise CompositeFLError(
                "y holds dates or durations; make numbers of them, such as days", parameter="y"
            )
        if y.dtype.kind not in "biuf":
            try:
                y = y.astype(float)
            except (TypeError, ValueError):
                raise CompositeFLError(
                    "y holds values that are no numbers", parameter="y"
                ) from None
        y = y.astype(float)
        if not np.isfinite(y).all():
            raise CompositeFLError("y has NaN or infinite values", parameter="y")
        return y, 2

    def _numbers(self) -> dict[str, Any]:
        """Alphas, l1_ratio and folds of the specification."""
        return {"alphas": [getattr(self, "alpha", 0.0)], "l1_ratio": getattr(self, "l1_ratio", 1.0)}

    # --- fitting --------------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sites: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        offset: ArrayLike | None = None,
    ) -> "GeneralizedLinearModel":
        """Fit the model.

        X: (n, p) numbers, a DataFrame or a sparse matrix. sites: the site of every sample, None
        for one table. offset: added to the linear predictor, such as ln(exposure).
        """
        self._check_parameters()
        inputs.check_columns(X)
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=np.float64,
            ensure_all_finite=False,
            ensure_min_samples=2,
        )
        if y is None:
            raise ValueError("This estimator requires y to be passed, but the target y is None")
        y, classes = self._response(y)
        n, p = X.shape
        inputs.check_length(y, n)
        rows = inputs.site_rows(sites, n)
        names = inputs.column_names(getattr(self, "feature_names_in_", None), p)
        inputs.refuse_missing(X, rows, names, self.impute)
        inputs.check_sizes(X, y if y.ndim == 1 else None, names)
        made = self._family(classes)
        self._check_response(made, y, rows)
        weight = inputs.check_weights(inputs.per_sample("sample_weight", sample_weight, n))
        shift = inputs.per_sample("offset", offset, n)
        if made.response == "number" and np.ptp(y) == 0 and (shift is None or np.ptp(shift) == 0):
            raise CompositeFLError(
                f"y is {y[0]:g} for all samples: there is nothing to fit", parameter="y"
            )
        spec = self._spec(made, classes, p)
        local = LocalSites(inputs.make_sites(made, X, y, rows, weight, shift, classes))
        self._prepare(local, X, y, rows)
        self._fit_sites(spec, local, names)
        return self

    def fit_over(
        self, sites: Sites, names: Sequence[str], labels: Sequence[str] | None = None
    ) -> "GeneralizedLinearModel":
        """Fit over sites of any kind, such as those on a network.

        names: of the features. labels: of the classes, in the order of their numbers.
        """
        self._check_parameters()
        self.n_features_in_ = len(names)
        self.feature_names_in_ = np.array(list(names), object)
        if labels is not None:
            self.classes_ = np.array(list(labels))
        classes = 2 if labels is None else len(labels)
        spec = self._spec(self._family(classes), classes, len(names))
        self._fit_sites(spec, sites, list(names))
        return self

    def _fit_sites(self, spec: Spec, sites: Sites, names: list[str]) -> None:
        """Fit over sites of any kind and keep the outcome."""
        path = fit_path(spec, sites, self.on_round)
        self._keep(spec, path, 0)
        self.inference_ = found = infer(spec, sites, path) if self._is_plain(spec) else None
        intercept = ["the intercept"] if spec.intercept else []
        if found is not None and (caution := found.caution([*intercept, *names])):
            warnings.warn(caution, ConvergenceWarning, stacklevel=3)
        self._close(sites, names)

    def _close(self, sites: Sites, names: list[str]) -> None:
        self.n_iter_ = sites.rounds
        self.sites_ = sites.names
        self.bytes_up_, self.bytes_down_ = sites.bytes_up, sites.bytes_down
        self._names = names

    def _keep(self, spec: Spec, path: Path, at: int) -> None:
        """Coefficients in original units at one alpha of a path."""
        x = path.x[0, at]
        self._set_coefficients(*in_original_units(spec, path, x))
        self.means_, self.deviations_ = path.scaling.mean, path.scaling.deviation[0]
        self.alpha_max_ = path.alpha_max
        self.residual_ = float(path.residual[0, at])
        self.converged_ = self.residual_ <= path.enough
        self.loss_ = float(path.loss[0, at])
        if spec.family.has_scale:
            self.scale_ = float(x[-1])

    def _set_coefficients(self, intercept: Array, b: Array) -> None:
        self.coef_: Array = b[:, 0]
        self.intercept_: float | Array = float(intercept[0])

    def _is_plain(self, spec: Spec) -> bool:
        """Without a penalty and bounds, where standard errors mean something."""
        alphas = spec.alphas
        none = not isinstance(alphas, int) and alphas is not None and not np.any(alphas)
        return spec.penalty is None and none and not spec.bounded

    def _prepare(self, sites: LocalSites, X: ArrayLike, y: Array, rows: dict[str, Array]) -> None:
        """What the sites need before the first round."""

    def _spec(self, made: Family, classes: int, p: int) -> Spec:
        numbers_ = self._numbers()
        phi, changes = chosen_penalty(self.penalty, path=self.is_path)
        lower, upper = self._bounds(p)
        factors = inputs.per_feature("penalty_factor", self.penalty_factor, p)
        own: Any = getattr(phi, "weight", None)
        if self.is_path and factors is None and np.ndim(own) == 1:  # times the alphas of the path
            factors = inputs.per_feature("penalty", own, p)
            phi = replace(phi, weight=1.0)  # type: ignore[type-var, call-arg]
        if factors is not None and not ((factors >= 0) & np.isfinite(factors)).all():
            raise wrong_value("penalty_factor", self.penalty_factor, "finite and >= 0")
        return Spec(
            made,
            classes,
            **(numbers_ | changes),
            penalty=phi,
            factors=factors,
            lower=lower,
            upper=upper,
            fit_intercept=self.fit_intercept,
            standardize=self.standardize,
            tolerance=self.tol,
            max_rounds=self.max_iter,
        )

    def _bounds(self, p: int) -> tuple[Array | None, Array | None]:
        low = high = None
        if self.bounds is not None:
            try:
                low, high = self.bounds
            except (TypeError, ValueError):
                raise wrong_value("bounds", self.bounds, "a pair (lower, upper)") from None
        lower = inputs.per_feature("lower bound", low, p)
        upper = inputs.per_feature("upper bound", high, p)
        if self.positive:
            lower = np.zeros(p) if lower is None else np.maximum(lower, 0.0)
        if lower is not None and upper is not None and (lower > upper).any():
            raise CompositeFLError("a lower bound is above its upper bound")
        if (lower is not None and (lower > 0).any()) or (upper is not None and (upper < 0).any()):
            raise CompositeFLError("bounds must leave 0 to every coefficient")
        return lower, upper

    def _check_parameters(self) -> None:
        require_integer(max_iter=self.max_iter)
        require_positive(tol=self.tol)
        if self.impute not in (None, "mean"):
            raise wrong_value("impute", self.impute, "None or 'mean'", shown=repr(self.impute))
        for name in ("fit_intercept", "standardize", "positive"):
            if not isinstance(value := getattr(self, name), bool | np.bool_):
                raise wrong_value(name, value, "True or False", shown=repr(value))
        alpha = getattr(self, "alpha", 0.0)
        real = isinstance(alpha, numbers.Real) and not isinstance(alpha, bool)
        if not real or not 0 <= float(alpha) < np.inf:
            raise wrong_value("alpha", alpha, "a finite number >= 0", shown=repr(alpha))

    def _check_response(self, made: Family, y: Array, rows: dict[str, Array]) -> None:
        for site, mine in rows.items():
            if problem := made.check(y[mine]):
                raise CompositeFLError(
                    f"y of site '{site}' {problem} for the family {made.name}; it has values from "
                    f"{y[mine].min():g} to {y[mine].max():g}",
                    parameter="y",
                )

    # --- using ----------------------------------------------------------------------------------

    def _linear_predictor(self, X: ArrayLike, offset: ArrayLike | None = None) -> Array:
        """offset + intercept + X b, of shape (n, k)."""
        check_is_fitted(self)
        inputs.check_columns(X)
        X = validate_data(
            self,
            X,
            reset=False,
            accept_sparse="csr",
            dtype=np.float64,
            ensure_all_finite="allow-nan" if self.impute == "mean" else True,
        )
        if self.impute == "mean" and not sparse.issparse(X):
            X = np.where(np.isnan(X), self.means_, X)
        b = np.atleast_2d(self.coef_).T
        eta = np.asarray(X @ b) + self.intercept_
        shift = inputs.per_sample("offset", offset, len(eta))
        return eta if shift is None else eta + shift[:, None]

    def summary(self, confidence: float = 0.95) -> Summary:
        """Coefficients with their names; for unpenalised fits standard errors and intervals."""
        check_is_fitted(self)
        return Summary.of(self, confidence)

    @property
    def _inference(self) -> Inference | None:
        return getattr(self, "inference_", None)

    def __sklearn_tags__(self) -> "Tags":
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = self.impute == "mean"
        tags.target_tags.required = True
        return tags
