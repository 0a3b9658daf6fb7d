"""Estimators that choose alpha by cross-validation, all folds side by side."""

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np

from compositefl.core.errors import (
    CompositeFLError,
    require_integer,
    require_positive,
    wrong_value,
)
from compositefl.glm.outcome import Path, in_original_units
from compositefl.glm.path import fit_path
from compositefl.glm.scores import SCORES, Curve, check_score, cross_validate
from compositefl.glm.sites import LocalSites, Sites
from compositefl.glm.spec import Spec
from compositefl.linear_model.base import GeneralizedLinearModel
from compositefl.linear_model.classification import Classifier
from compositefl.linear_model.inputs import ArrayLike, missing
from compositefl.linear_model.penalties import RATIOS
from compositefl.linear_model.regression import DevianceScore, Regressor
from compositefl.linear_model.survival import SurvivalModel

Array = np.ndarray


@dataclass(eq=False, repr=False)
class CrossValidated(GeneralizedLinearModel):
    """A path of alphas and the best of it by cross-validation.

    Parameters
    ----------
    l1_ratio : a number, or several to choose from.
    alphas : their number, from alpha_max_ down, or the weights themselves.
    eps : the smallest alpha, relative to the largest; None: 1e-4, or 1e-2 with fewer samples than
        features.
    cv : number of folds, drawn at every site; or the fold of every sample; or a splitter of
        scikit-learn, or the list of pairs (training samples, others) that one gives.
    scoring : "deviance"; for classes also "accuracy" and, for two, "auc"; for numbers "mse",
        "mae", "r2"; for survival "c_index".
    select : "best", or "1se" for the largest alpha within one standard error of it.
    random_state : of the folds.
    cv_tol : as tol, for the fits without a fold; they serve the scores alone.

    Attributes
    ----------
    alpha_, alpha_1se_ : with the best score, and the largest within one standard error.
    l1_ratio_ : the chosen one.
    alphas_, cv_mean_, cv_error_, cv_scores_ : the curve; scores by fold and alpha.
    coef_path_, intercept_path_ : of the fit to all samples, by alpha (last axis).
    """

    _: KW_ONLY
    l1_ratio: float | Sequence[float] | Array = 1.0
    alphas: int | Sequence[float] | Array = 100
    eps: float | None = None
    cv: Any = 10
    scoring: str = "deviance"
    select: str = "best"
    random_state: int = 0
    tol: float = 1e-8
    cv_tol: float = 1e-6

    is_path = True

    def _ratios(self) -> list[float]:
        """Those to choose from; a penalty by another name has its own, or none."""
        try:
            found = np.atleast_1d(np.asarray(self.l1_ratio, float))
        except (TypeError, ValueError):
            found = np.empty(0)
        if not len(found) or found.ndim > 1 or not ((found >= 0) & (found <= 1)).all():
            shown = repr(self.l1_ratio)
            wanted = "a number in [0, 1], or several"
            raise wrong_value("l1_ratio", self.l1_ratio, wanted, shown=shown)
        if isinstance(self.penalty, str) and self.penalty in RATIOS:
            return [RATIOS[self.penalty]]
        plain = self.penalty is None or self.penalty == "elasticnet"
        return [float(ratio) for ratio in (found if plain else found[:1])]

    def _numbers(self) -> dict[str, Any]:
        alphas: int | Array
        if isinstance(self.alphas, (int, np.integer)) and not isinstance(self.alphas, bool):
            require_integer(alphas=self.alphas)
            alphas = int(self.alphas)
        else:
            try:
                alphas = np.asarray(self.alphas, float)
            except (TypeError, ValueError):
                alphas = np.empty(0)
            good = alphas.ndim == 1 and len(alphas) and ((alphas >= 0) & (alphas < np.inf)).all()
            if not good:
                shown = repr(self.alphas)
                wanted = "a whole number of alphas, or a list of finite alphas >= 0"
                raise wrong_value("alphas", self.alphas, wanted, shown=shown)
        return {
            "alphas": alphas,
            "l1_ratio": self._ratios()[0],
            "smallest": self.eps,
            "fold_tolerance": self.cv_tol,
            "folds": self.cv if self._draws else 0,  # set when the folds are known
        }

    @property
    def _draws(self) -> bool:
        """The sites draw the folds."""
        return isinstance(self.cv, (int, np.integer)) and not isinstance(self.cv, bool)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.select not in ("best", "1se"):
            raise wrong_value("select", self.select, "'best' or '1se'", shown=repr(self.select))
        if self._draws and self.cv < 2:
            raise wrong_value("cv", self.cv, "at least 2 folds")
        require_integer(minimum=0, random_state=self.random_state)
        require_positive(cv_tol=self.cv_tol)
        if self.eps is not None:
            require_positive(eps=self.eps)
            if self.eps >= 1:
                raise wrong_value("eps", self.eps, "in (0, 1)")

    def _prepare(self, sites: LocalSites, X: ArrayLike, y: Array, rows: dict[str, Array]) -> None:
        if self._draws:
            if self.cv > len(y):
                raise CompositeFLError(
                    f"cv={self.cv} folds are more than the {len(y)} samples",
                    parameter="cv",
                    value=self.cv,
                )
            self._count = int(self.cv)
            for site in sites.sites:
                site.draw(self._count, self.random_state)
            filled = len(np.unique(np.concatenate([site.fold for site in sites.sites])))
            if filled < self._count:
                warnings.warn(
                    f"{self._count - filled} of {self._count} folds are empty, since every site "
                    "draws its own; cv= also takes the fold of every sample",
                    RuntimeWarning,
                    stacklevel=3,
                )
            return
        fold = self._given_folds(X, y)
        self._count = int(fold.max())
        for site, mine in zip(sites.sites, rows.values(), strict=True):
            site.set_folds(fold[mine])

    def _given_folds(self, X: ArrayLike, y: Array) -> Array:
        """1, ..., K from fold numbers, a splitter or its pairs; each sample in one fold."""
        pairs = None
        if hasattr(self.cv, "split") and not isinstance(self.cv, str):
            pairs = self.cv.split(X, y[:, 1] if y.ndim > 1 else y)
        elif isinstance(self.cv, list) and all(isinstance(pair, tuple) for pair in self.cv):
            pairs = self.cv
        if pairs is not None:
            return self._folds_of(pairs, len(y))
        given = np.asarray(self.cv)
        if given.shape != (len(y),):
            raise wrong_value(
                "cv", self.cv, f"folds of the {len(y)} samples, a number or a splitter"
            )
        if missing(given).any():
            raise CompositeFLError("cv has NaN: every sample needs a fold", parameter="cv")
        names, fold = np.unique(given, return_inverse=True)
        if len(names) < 2:
            raise wrong_value("cv", self.cv, "at least 2 folds")
        return fold + 1

    def _folds_of(self, pairs: Iterable[tuple[ArrayLike, ArrayLike]], n: int) -> Array:
        """The fold of every sample, from pairs whose training samples are all those of the others.

        Other pairs (repeated or random splits, a gap between training and test) are no folds; a
        sample has only one, so the scores would be those of other splits than were given.
        """
        fold, times = np.zeros(n, int), np.zeros(n, int)
        kept = True
        for number, (train, out) in enumerate(pairs, 1):
            fold[out] = number
            times[out] += 1
            inside = np.zeros(n, bool)
            inside[train] = True
            kept = kept and np.array_equal(inside, fold != number)
        wrong = None
        if not times.all():
            wrong = "leaves samples out of every fold"
        elif (times > 1).any():
            wrong = "puts samples into several folds"
        elif not kept:
            wrong = "does not train on all samples of the other folds"
        if wrong is not None:
            shown = "the list of pairs" if isinstance(self.cv, list) else repr(self.cv)
            raise CompositeFLError(
                f"cv={shown} {wrong}; every sample must be in one fold",
                parameter="cv",
                value=self.cv,
            )
        return fold

    def _fit_sites(self, spec: Spec, sites: Sites, names: list[str]) -> None:
        spec = replace(spec, folds=getattr(self, "_count", spec.folds))
        check_score(spec.family, self.scoring, spec.classes)
        higher = SCORES[spec.family.response][self.scoring]
        best: tuple[float, Spec, Path, Curve] | None = None
        for ratio in self._ratios():
            one = replace(spec, l1_ratio=ratio)
            path = fit_path(one, sites, self.on_round)
            curve = cross_validate(one, sites, path, self.scoring)
            merit = curve.mean[curve.best] * (1 if higher else -1)
            if best is None or merit > best[0]:
                best = (merit, one, path, curve)
        assert best is not None
        _, spec, path, curve = best
        self.l1_ratio_ = spec.l1_ratio
        self._keep_curve(spec, path, curve)
        self._keep(spec, path, curve.best if self.select == "best" else curve.one_error)
        self.inference_ = None
        self._close(sites, names)

    def _keep_curve(self, spec: Spec, path: Path, curve: Curve) -> None:
        self.alphas_ = path.alphas
        self.alpha_ = float(path.alphas[curve.best])
        self.alpha_1se_ = float(path.alphas[curve.one_error])
        self.cv_mean_, self.cv_error_, self.cv_scores_ = curve.mean, curve.error, curve.by_fold
        intercepts, b = in_original_units(spec, path, path.x[0])
        k = intercepts.shape[-1]
        self.intercept_path_ = intercepts.T if k > 1 else intercepts[:, 0]
        self.coef_path_ = b.transpose(2, 1, 0) if k > 1 else b[:, :, 0].T


@dataclass(eq=False, repr=False)
class ElasticNetCV(CrossValidated, Regressor):
    """Least squares with an elastic net; l1_ratio=1 is the lasso."""

    _: KW_ONLY
    l1_ratio: float | Sequence[float] | Array = 0.5


@dataclass(eq=False, repr=False)
class LogisticRegressionCV(CrossValidated, Classifier):
    """Logistic regression of two classes or more."""


@dataclass(eq=False, repr=False)
class PoissonRegressorCV(DevianceScore, CrossValidated, Regressor):
    """Counts; exposure enters as offset = ln(exposure)."""

    family_name = "poisson"


@dataclass(eq=False, repr=False)
class GammaRegressorCV(DevianceScore, CrossValidated, Regressor):
    """Positive numbers of a gamma distribution, with the logarithm of their mean linear."""

    family_name = "gamma"


@dataclass(eq=False, repr=False)
class CoxRegressionCV(CrossValidated, SurvivalModel):
    """Proportional hazards, the sites as strata."""
