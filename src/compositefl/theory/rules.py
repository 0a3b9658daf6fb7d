"""Steps for a method by its name, and algorithms that use them."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

from compositefl.algorithms.base import Algorithm
from compositefl.core.errors import unknown_name, wrong_value
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer
from compositefl.theory import fednmap, fedprox, za1
from compositefl.theory.base import Constants, Setting, StepSizes, Theorem
from compositefl.theory.estimation import estimate

# Theorems of each method under its name in the registry, the default first.
THEOREMS: dict[str, dict[str, Theorem]] = {
    "fednmap": {"5": fednmap.Theorem5(), "8": fednmap.Theorem8()},
    "za1": {"3.5": za1.Theorem35(), "3.6": za1.Theorem36(), "3.8": za1.Theorem38()},
    "fedprox": {"1": fedprox.Theorem1(), "2": fedprox.Theorem2()},
    "fedmspp": {"3": fedprox.Theorem3(), "4": fedprox.Theorem4()},
    "fedprox-nonsmooth": {"2": fedprox.Theorem2()},
    "fedmspp-nonsmooth": {"4": fedprox.Theorem4()},
}


def stepsizes(
    algorithm: str | type[Algorithm] | Algorithm,
    constants: Constants,
    *,
    rounds: int,
    local_steps: int = 1,
    batch_size: int | None = None,
    theorem: str | float | None = None,
    participants: int | None = None,
    gamma: float | None = None,
    local_lr: float | None = None,
    server_lr: float | None = None,
    m: int | None = None,
    envelope: float | None = None,
) -> StepSizes:
    """The steps that a theorem sets for a run of `rounds` rounds, and its bound.

    algorithm: its name as in `compositefl list` or its class, "fednmap" or cfl.ZA1. theorem: its
    number, for example "3.6"; the method's first one if None. Steps that are given are kept: with
    gamma, local_lr and server_lr the bound is that of these steps. m, envelope: see the theorems.
    """
    rule = _theorem(_name(algorithm), theorem)
    setting = Setting(
        rounds=rounds,
        local_steps=local_steps,
        batch_size=batch_size,
        participants=participants,
        gamma=gamma,
        local_lr=local_lr,
        server_lr=server_lr,
        m=m,
        envelope=envelope,
    )
    return StepSizes(
        theorem=rule.name,
        measures=rule.measures,
        exact=rule.exact,
        notes=tuple(_participation(rule, constants, participants)),
        setting=setting,
        constants=constants,
        rule=rule,
        **rule.choose(constants, setting),
    )


def with_theory_steps(
    algorithm_class: type[Algorithm],
    hyper: dict[str, Any],
    problem: Problem,
    regularizer: Regularizer | None,
    rounds: int,
    batch_size: int | None,
    *,
    constants: Constants | None = None,
    theorem: str | float | None = None,
    participants: int | None = None,
    faults: Sequence[str] = (),
    seed: int = 0,
    dtype: str = "float32",
) -> Algorithm:
    """An instance of `algorithm_class` whose missing steps are those of its theorem.

    hyper: its hyper-parameters. Numbers are kept; steps that are missing or "theory" come from the
    theorem, with constants measured by `estimate` unless they are given. A warning says what the
    theorem does not cover, with `faults` the sentences about what goes wrong in the run.
    """
    _theorem(_name(algorithm_class), theorem)  # refuse before the work of an estimate
    given = {k: v for k, v in hyper.items() if not (isinstance(v, str) and v == "theory")}
    if constants is None:
        measured = estimate(problem, regularizer, batch_size=batch_size, seed=seed, dtype=dtype)
        constants = measured.constants()
    steps = stepsizes(
        algorithm_class,
        constants,
        rounds=rounds,
        local_steps=given.get("local_steps", 1),
        batch_size=batch_size,
        theorem=theorem,
        participants=participants,
        **{name: given.get(name) for name in ("gamma", "local_lr", "server_lr")},
    )
    fields = {f.name for f in dataclasses.fields(algorithm_class)}  # type: ignore[arg-type]
    for name in ("gamma", "local_lr", "server_lr", "eta"):
        if name in fields and name not in given and getattr(steps, name) is not None:
            given[name] = getattr(steps, name)
    outside = [*steps.admissible(), *steps.notes, *faults]
    if outside:
        warnings.warn(_not_covered(steps.rule, outside), RuntimeWarning, stacklevel=2)
    return algorithm_class(**given)


def note_outside(
    algorithm: Algorithm,
    constants: Constants,
    rounds: int,
    *,
    participants: int | None = None,
    batch_size: int | None = None,
    faults: Sequence[str] = (),
) -> str | None:
    """One line that says which conditions of its theorem the algorithm's steps violate, or None.

    None also for a method without a theorem here. Being outside is common: the papers' own
    experiments are.
    """
    theorems = THEOREMS.get(_name(algorithm))
    if theorems is None:
        return None
    rule = next(iter(theorems.values()))
    setting = Setting(
        rounds=rounds,
        local_steps=int(getattr(algorithm, "local_steps", 1)),
        participants=participants,
        batch_size=batch_size,
    )
    steps = {n: getattr(algorithm, n, None) for n in ("gamma", "local_lr", "server_lr", "eta")}
    outside = list(rule.violations(constants, setting, steps))
    outside += [*_participation(rule, constants, participants), *faults]
    return _not_covered(rule, outside) if outside else None


def _not_covered(rule: Theorem, outside: list[str]) -> str:
    return f"{rule.name} does not cover this run: {'; '.join(outside)}"


def _name(algorithm: str | type[Algorithm] | Algorithm) -> str:
    """The name in the registry; that of a class is also understood, "FedProxNonsmooth"."""
    kind = algorithm if isinstance(algorithm, (str, type)) else type(algorithm)
    name = kind.lower() if isinstance(kind, str) else kind.__name__.lower()
    plain = name.replace("-", "").replace("_", "")
    return next((known for known in THEOREMS if known.replace("-", "") == plain), name)


def _theorem(name: str, theorem: str | float | None) -> Theorem:
    if name not in THEOREMS:
        raise unknown_name("algorithm with a theorem", name, THEOREMS)
    known = THEOREMS[name]
    if theorem is None:
        return next(iter(known.values()))
    number = str(theorem).lower().removeprefix("theorem").strip()
    if number not in known:
        raise wrong_value(
            "theorem", theorem, f"one of {', '.join(known)} for {name}", shown=repr(theorem)
        )
    return known[number]


def _participation(rule: Theorem, c: Constants, participants: int | None) -> list[str]:
    if rule.full_participation and participants is not None and participants < c.clients:
        return [f"{participants} of {c.clients} clients take part, the theorem wants all"]
    return []
