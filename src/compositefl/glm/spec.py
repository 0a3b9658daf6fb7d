"""What is to be fitted: family, penalty, path and cross-validation."""

import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from compositefl.core.errors import (
    CompositeFLError,
    require_integer,
    require_nonnegative,
    require_positive,
    wrong_value,
)
from compositefl.glm.families import Family

if TYPE_CHECKING:
    from compositefl.regularizers.base import Regularizer

Array = np.ndarray


@dataclass(frozen=True)
class Spec:
    """A fit, or a path of fits.

        minimise (1 / sum w) sum_i w_i loss_i + alpha (l1_ratio ||b||_1 + (1 - l1_ratio)/2 ||b||^2)

    alphas: falling weights, or their number: then they fall geometrically from the smallest one
        that keeps every coefficient at zero to `smallest` times it (None: 1e-4, or 1e-2 with fewer
        samples than features).
    penalty: instead of the elastic net a regulariser; the alphas are then its `weight`, or with
        alphas=None its own numbers are used.
    factors: of the penalty for every feature; 0 leaves it out.
    lower, upper: bounds of the coefficients, in original units.
    standardize: the penalty counts coefficients of features with standard deviation 1.
    tolerance, fold_tolerance: stationarity at which the fit to all samples and those without a fold
        end, relative to the gradient of the model without features.
    """

    family: Family
    classes: int = 2
    alphas: Sequence[float] | int | None = 100
    l1_ratio: float = 1.0
    penalty: "Regularizer | None" = None
    factors: Array | None = None
    lower: Array | None = None
    upper: Array | None = None
    fit_intercept: bool = True
    standardize: bool = True
    smallest: float | None = None
    folds: int = 0
    tolerance: float = 1e-9
    fold_tolerance: float = 1e-6
    max_rounds: int = 100  # for one alpha

    def __post_init__(self) -> None:
        real = isinstance(self.l1_ratio, numbers.Real) and not isinstance(self.l1_ratio, bool)
        if not real or not 0 <= self.l1_ratio <= 1:
            shown = repr(self.l1_ratio)
            raise wrong_value("l1_ratio", self.l1_ratio, "a number in [0, 1]", shown=shown)
        if isinstance(self.alphas, int):
            require_integer(alphas=self.alphas)
        elif self.alphas is not None:
            require_nonnegative(alpha=np.asarray(self.alphas, float))
        if self.smallest is not None and not 0 < self.smallest < 1:
            raise wrong_value("smallest", self.smallest, "in (0, 1)")
        require_positive(tolerance=self.tolerance, fold_tolerance=self.fold_tolerance)
        require_integer(max_rounds=self.max_rounds)
        if self.folds == 1 or self.folds < 0:
            raise wrong_value("cv", self.folds, "at least 2 folds")
        if self.penalty is not None and self.bounded:
            raise CompositeFLError(
                f"penalty={self.penalty!r} has no bounds; bounds and positive belong to the "
                "elastic net",
                parameter="penalty",
                value=self.penalty,
            )
        if self.penalty is not None and self.factors is not None and not self._takes_factors:
            raise CompositeFLError(
                f"penalty={self.penalty!r} has its own weights; penalty factors belong to the "
                "elastic net, 'mcp' and 'scad'",
                parameter="penalty",
                value=self.penalty,
            )

    @property
    def _takes_factors(self) -> bool:
        """Whether the alphas are the weight of a regulariser that may have one per feature."""
        if self.penalty is None or self.alphas is None:
            return self.penalty is None
        own: Any = getattr(self.penalty, "weight", None)
        return np.ndim(own) == 0 and "weight" in self.penalty.per_entry

    @property
    def bounded(self) -> bool:
        """Whether coefficients have bounds."""
        return self.lower is not None or self.upper is not None

    def unpenalised(self, p: int) -> Array:
        """Which of p features no alpha penalises."""
        given = self.alphas is not None and not isinstance(self.alphas, int)
        if self.penalty is None and given and not np.any(self.alphas):
            return np.ones(p, bool)
        return np.zeros(p, bool) if self.factors is None else np.asarray(self.factors == 0)

    @property
    def intercept(self) -> bool:
        """Whether the model has an intercept that is fitted."""
        return self.fit_intercept and self.family.intercept

    @property
    def problems(self) -> int:
        """The fit to all samples, and one for every fold."""
        return 1 + self.folds
