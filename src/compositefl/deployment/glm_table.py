"""A generalised linear model in federation.toml: the table [glm].

The estimators are loaded where there is such a table: scikit-learn takes longer to load than all
else in a process of a job.
"""

from collections.abc import Collection
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from compositefl.core.errors import CompositeFLError, unknown_name, wrong_value
from compositefl.deployment import penalty as penalties
from compositefl.deployment.entries import positive, whole

if TYPE_CHECKING:
    from compositefl.glm.families import Family
    from compositefl.linear_model.base import GeneralizedLinearModel
    from compositefl.regularizers import Regularizer

# What happens while a site does not answer: the fit waits, begins anew without it, or goes on with
# the quadratic of its last loss, gradient and Hessian.
MISSING = ("wait", "without", "last")
WORDS = ("penalty", "impute", "scoring", "select", "weight", "offset", "event")
SWITCHES = ("fit_intercept", "standardize", "positive")
# Of a server that asks for more a site would make arrays beyond its memory.
MOST_FOLDS, MOST_ALPHAS = 1000, 10_000


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
        self._check_kinds()
        if (self.alpha is None) == (self.cv is None):
            raise CompositeFLError("either alpha (one fit) or cv (folds of a path) must be given")
        if self.cv is not None:
            whole(self, "cv", minimum=2)
            if self.cv > MOST_FOLDS:
                raise wrong_value("cv", self.cv, f"at most {MOST_FOLDS} folds")
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
        self._estimator(0, None)._check_parameters()

    def _check_kinds(self) -> None:
        for name in SWITCHES:
            if type(value := getattr(self, name)) is not bool:
                raise wrong_value(name, value, "true or false", shown=repr(value))
        for name in WORDS:
            if not isinstance(value := getattr(self, name), str | None):
                raise wrong_value(name, value, "a word", shown=repr(value))
        whole(self, "max_iter")
        positive(self, "tol", "cv_tol")
        if not _is_number(self.l1_ratio):
            raise wrong_value("l1_ratio", self.l1_ratio, "in [0, 1]", shown=repr(self.l1_ratio))
        count = self.alphas if type(self.alphas) is int else 0
        if count > MOST_ALPHAS:
            raise wrong_value("alphas", count, f"at most {MOST_ALPHAS}")
        for name, wanted in (
            ("alphas", "a number of alphas or a list"),
            ("penalty_factor", "a list"),
        ):
            value = getattr(self, name)
            if isinstance(value, list) and value and all(map(_is_number, value)):
                object.__setattr__(self, name, tuple(value))
            elif not (value is None or (name == "alphas" and type(value) is int)):
                raise wrong_value(name, value, f"{wanted} of numbers", shown=repr(value))

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a site's table besides features and target."""
        return tuple(name for name in (self.weight, self.offset, self.event) if name is not None)

    def check(self, modules: Collection[str], features: int, classes: int) -> None:
        """Refuse what does not go together; a regulariser "module:Name" is of `modules` alone."""
        from compositefl.glm.scores import check_score

        family = self.family_of(classes)
        self.estimator(0, modules)._spec(family, classes, features)
        if self.cv is not None:
            check_score(family, self.scoring, classes)

    def family_of(self, classes: int) -> "Family":
        """The family for a number of classes."""
        return self._estimator(0, None)._family(classes)

    def estimator(self, seed: int, modules: Collection[str]) -> "GeneralizedLinearModel":
        """The estimator that this table describes; `seed` is of the folds."""
        from compositefl.linear_model.penalties import NAMES

        phi: Regularizer | str | None = self.penalty
        if self.penalty is not None and self.penalty not in NAMES:
            phi = penalties.make(self.penalty, (), (), None, modules)
        return self._estimator(seed, phi)

    def _estimator(
        self, seed: int, penalty: "Regularizer | str | None"
    ) -> "GeneralizedLinearModel":
        from compositefl.linear_model.by_family import BY_FAMILY

        cls: Any = BY_FAMILY[self.family][self.cv is not None]
        known = {f.name for f in fields(cls)}
        ours = {f.name: getattr(self, f.name) for f in fields(self) if f.name in known}
        ours["penalty"] = penalty
        numbers = {name: value for name, value in ours.items() if value is not None}
        if self.cv is not None:
            numbers |= {"random_state": seed}
            numbers["alphas"] = self.alphas if isinstance(self.alphas, int) else list(self.alphas)
        if self.penalty_factor is not None:
            numbers["penalty_factor"] = list(self.penalty_factor)
        return cls(**numbers)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
