"""A generalised linear model in federation.toml: the table [glm].

The estimators are loaded where there is such a table: scikit-learn takes longer to load than all
else in a process of a job.
"""

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from compositefl.core.errors import CompositeFLError, require_integer, unknown_name

if TYPE_CHECKING:
    from compositefl.linear_model.base import GeneralizedLinearModel

# What happens while a site does not answer: the fit waits, begins anew without it, or goes on with
# the quadratic of its last loss, gradient and Hessian.
MISSING = ("wait", "without", "last")


@dataclass(frozen=True)
class GLMTable:
    """Family, columns and numbers; the estimators of `linear_model` say more about each.

    The columns are those of [data]: features, target and, for classes, labels. For cox the target
    is the time, and `event` names the column of events.
    """

    family: str
    alpha: float | None = None  # one fit; None: a path, by cross-validation
    cv: int | None = None  # folds; with alphas
    alphas: int | tuple[float, ...] = 100
    l1_ratio: float = 1.0
    penalty: str | None = None
    penalty_factor: tuple[float, ...] | None = None
    fit_intercept: bool = True
    standardize: bool = True
    positive: bool = False
    impute: str | None = None
    scoring: str = "deviance"
    select: str = "best"
    max_iter: int = 100
    tol: float | None = None
    cv_tol: float | None = None
    weight: str | None = None  # columns
    offset: str | None = None
    event: str | None = None
    missing: str = "wait"

    def __post_init__(self) -> None:
        from compositefl.linear_model.by_family import BY_FAMILY

        if self.family not in BY_FAMILY:
            raise unknown_name("family", self.family, BY_FAMILY)
        for name in ("alphas", "penalty_factor"):
            if isinstance(value := getattr(self, name), list):
                object.__setattr__(self, name, tuple(value))
        if (self.alpha is None) == (self.cv is None):
            raise CompositeFLError("either alpha (one fit) or cv (folds of a path) must be given")
        if self.cv is not None:
            require_integer(minimum=2, cv=self.cv)
            if BY_FAMILY[self.family][1] is None:
                raise CompositeFLError(
                    f"family={self.family} has no cross-validation; give alpha",
                    parameter="family",
                    value=self.family,
                )
        if (self.family == "cox") == (self.event is None):
            raise CompositeFLError("event names the column of events, for cox alone")
        if self.missing not in MISSING:
            raise unknown_name("missing", self.missing, MISSING)
        self.estimator(0)._check_parameters()

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a site's table besides features and target."""
        return tuple(name for name in (self.weight, self.offset, self.event) if name is not None)

    def estimator(self, seed: int) -> "GeneralizedLinearModel":
        """The estimator that this table describes; `seed` is of the folds."""
        from compositefl.linear_model.by_family import BY_FAMILY

        cls: Any = BY_FAMILY[self.family][self.cv is not None]
        known = {f.name for f in fields(cls)}
        ours = {f.name: getattr(self, f.name) for f in fields(self) if f.name in known}
        numbers = {name: value for name, value in ours.items() if value is not None}
        if self.cv is not None:
            numbers |= {"random_state": seed}
            numbers["alphas"] = self.alphas if isinstance(self.alphas, int) else list(self.alphas)
        if self.penalty_factor is not None:
            numbers["penalty_factor"] = list(self.penalty_factor)
        return cls(**numbers)
