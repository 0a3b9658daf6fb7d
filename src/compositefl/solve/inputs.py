"""What users pass as problem, regulariser and algorithm: taken where it is clear, or refused."""

import difflib
from collections.abc import Mapping

import jax

from compositefl.algorithms import ALGORITHMS
from compositefl.algorithms.base import Algorithm
from compositefl.core.component import replace, same
from compositefl.core.errors import CompositeFLError
from compositefl.problem import Problem
from compositefl.regularizers import parse
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.elementary import Zero


def checked_problem(problem: object) -> Problem:
    """The problem, if it is one."""
    if isinstance(problem, Problem):
        return problem
    raise CompositeFLError(
        f"problem={short(problem)} must be a cfl.Problem, or what model.problem(clients) returns",
        parameter="problem",
        value=problem,
    )


def as_regularizer(given: object) -> Regularizer:
    """The regulariser, also from None (no regulariser) or from words such as "l1:0.01"."""
    if isinstance(given, Regularizer):
        return given
    if given is None:
        return Zero()
    if isinstance(given, str):
        return parse(given)
    hint = "cfl.L1(0.01) or 'l1:0.01'"
    if isinstance(given, (int, float)):
        hint = f"cfl.L1({given})"
    if isinstance(given, type) and issubclass(given, Regularizer):
        hint = f"{given.__name__}(...) with its numbers"
    raise CompositeFLError(
        f"regularizer={short(given)} must be a regulariser, such as {hint}; None for none",
        parameter="regularizer",
        value=given,
    )


def as_algorithm(given: object) -> Algorithm:
    """The algorithm; a name or a class is refused, since it lacks the numbers."""
    if isinstance(given, Algorithm):
        return given
    kind = None
    if isinstance(given, type) and issubclass(given, Algorithm):
        kind = given
    elif isinstance(given, str):
        near = difflib.get_close_matches(given.lower(), ALGORITHMS, n=1)
        kind = ALGORITHMS[near[0]] if near else None
    call = f"cfl.{kind.__name__}(...)" if kind else "cfl.FedNMap()"
    raise CompositeFLError(
        f"algorithm={short(given)} must be an algorithm with its numbers, such as {call}",
        parameter="algorithm",
        value=given,
    )


def with_regularizer(algorithm: object, regularizer: object) -> Algorithm:
    """The algorithm with the regulariser, which may have been given to either, not to both."""
    method, given = as_algorithm(algorithm), as_regularizer(regularizer)
    require_components(method, given)
    own = method.regularizer
    if isinstance(own, Zero) or same(own, given):
        return replace(method, regularizer=given)
    if regularizer is None:
        return method
    raise CompositeFLError(
        f"regularizer={given!r}, but the algorithm comes with {own!r}: give one of them",
        parameter="regularizer",
        value=given,
    )


def require_no_checkpoint(where: str, options: Mapping[str, object]) -> None:
    """Refuse the options of a checkpoint where many runs would share it."""
    for name in ("checkpoint", "resume"):
        if value := options.get(name):
            raise CompositeFLError(
                f"{name}={value} is for minimize; {where} keeps no checkpoint",
                parameter=name,
                value=value,
            )


def require_components(*parts: Algorithm | Regularizer) -> None:
    """Refuse one's own class without @component, also inside another: JAX takes it for a number."""
    for leaf in jax.tree.leaves(parts):
        for parameter, kind in (("regularizer", Regularizer), ("algorithm", Algorithm)):
            if isinstance(leaf, kind):
                raise CompositeFLError(
                    f"the class {type(leaf).__name__} lacks @cfl.component, which makes its fields "
                    "numbers that JAX knows",
                    parameter=parameter,
                    value=leaf,
                )


def short(value: object) -> str:
    """A value in a message, cut where it is long."""
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else f"{text[:57]}..."
