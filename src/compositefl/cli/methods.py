"""Algorithms from options. What an algorithm can be told is read from the fields of its class."""

import dataclasses
import os
import sys
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, Union, get_args, get_origin, get_type_hints

from compositefl.algorithms import ALGORITHMS, Algorithm
from compositefl.algorithms.base import Knobs, wants_theory
from compositefl.cli.settings import COMMON, Settings, option_name
from compositefl.cli.wording import about, with_remedy
from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.core.resolve import resolve
from compositefl.solve._tune import TUNED
from compositefl.solve.inputs import require_components
from compositefl.solve.options import residual_gamma

Value: TypeAlias = float | str | bool  # of a hyper-parameter
PLAIN = (int, float, str, bool)
# Where to start from: a usual number of local steps, and step sizes that suit scaled features.
START: dict[str, Value] = {"local_steps": 10, "local_lr": 0.1, "lr": 0.1, "eta": 1.0}
TRUTH = {"true": True, "false": False}


def hyperparameters(cls: type[Algorithm]) -> dict[str, tuple[type, ...]]:
    """The numbers and words that `cls` can be told, each with the types it takes."""
    hints = get_type_hints(cls)
    found: dict[str, tuple[type, ...]] = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        hint = hints[field.name]
        members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
        plain = tuple(t for t in PLAIN if t in members)
        if field.init and plain:
            found[field.name] = plain
    return found


def required(cls: type[Algorithm]) -> list[str]:
    """The hyper-parameters without a default."""
    empty = dataclasses.MISSING
    without = {
        f.name
        for f in dataclasses.fields(cls)  # type: ignore[arg-type]
        if f.default is empty and f.default_factory is empty
    }
    return [name for name in hyperparameters(cls) if name in without]


def spelled(name: str) -> str:
    """A hyper-parameter as a user writes it: --gamma, or --set name=."""
    return option_name(name) if name in COMMON else f"--set {name}="


def build_all(
    names: Sequence[str], settings: Settings, tuning: bool = False
) -> dict[str, Algorithm]:
    """The algorithms, each with those of the given numbers that it has fields for.

    A number that none of them has is an error, and so is one that is missing; with `tuning`, those
    that are to be found start from a usual value.
    """
    option = "--algorithm" if len(names) == 1 else "--algorithms"
    with about(option, ",".join(names)):
        classes = {name: _class(name) for name in names}
    if len(classes) < len(names):
        raise CompositeFLError(f"--algorithms {','.join(names)}: a name occurs twice")
    given = given_numbers(settings)
    for name, value in given.items():
        if not any(name in hyperparameters(cls) for cls in classes.values()):
            have = "; ".join(
                f"{label} has {', '.join(map(spelled, hyperparameters(cls))) or 'none'}"
                for label, cls in classes.items()
            )
            raise CompositeFLError(f"{_as_given(name, value)} is not an option here: {have}")
    made = {name: _build(name, cls, given, tuning) for name, cls in classes.items()}
    with about(option, ",".join(names)):
        require_components(*made.values())
    return made


def _class(name: str) -> type[Algorithm]:
    if ":" in name:
        return own(name, Algorithm)
    if name not in ALGORITHMS:
        raise unknown_name("algorithm", name, ALGORITHMS)
    return ALGORITHMS[name]


def given_numbers(settings: Settings) -> dict[str, Value]:
    """The hyper-parameters on the command line; those of --set still as text."""
    given = {name: getattr(settings, name) for name in COMMON}
    given = {name: value for name, value in given.items() if value is not None}
    for pair in settings.extra or []:
        name, value = split_pair("--set", pair)
        if name in given:
            raise CompositeFLError(f"--set {pair}: {name} is given twice")
        given[name] = value
    return given


def own(reference: str, kind: type | None = None) -> Any:
    """What "module:name" names; modules are looked for in the current folder too."""
    with_current_folder()
    return resolve(reference, kind)


def with_current_folder() -> None:
    """Let modules of the current folder be imported, as `python` does and a program does not."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # last: a file here must not hide an installed package


def _build(name: str, cls: type[Algorithm], given: dict[str, Value], tuning: bool) -> Algorithm:
    known = hyperparameters(cls)
    if tuning:
        given = {n: START[n] for n in required(cls) if n in TUNED and n in START} | given
    missing = [field for field in required(cls) if field not in given]
    if missing:
        raise CompositeFLError(f"{name} needs {_needs(name, missing)}")
    values: dict[str, Any] = {
        field: convert(_as_given(field, value), value, known[field])
        for field, value in given.items()
        if field in known
    }
    with _set_by_name(cls):
        return cls(**values)


def _needs(name: str, missing: list[str]) -> str:
    """The numbers that are missing, with values to start from where there are usual ones."""
    text = ", ".join(map(spelled, missing))
    if not all(field in START for field in missing):
        return text
    text += f"; for example {' '.join(_as_given(field, START[field]) for field in missing)}"
    if any(field in TUNED for field in missing):
        fixed = [field for field in missing if field not in TUNED]
        words = "".join(f" {_as_given(field, START[field])}" for field in fixed)
        text += f". To find good step sizes: compositefl tune --algorithms {name}{words} ..."
    return text


@contextmanager
def _set_by_name(cls: type[Algorithm]) -> Iterator[None]:
    """Write --set before an error about a number that has no option of its own."""
    try:
        yield
    except CompositeFLError as error:
        name, text = error.parameter, with_remedy(error)
        own = name not in COMMON and name in hyperparameters(cls)
        if not own or not text.startswith(f"{name}="):
            raise
        raise CompositeFLError(f"--set {text}") from error


def check(algorithm: Algorithm) -> None:
    """Refuse numbers that do not go with the regulariser."""
    if wants_theory(algorithm):
        return  # its numbers are not known yet
    with _set_by_name(type(algorithm)):
        algorithm.at(Knobs(1e-6, 1)).check()  # numbers that set themselves are in their range


def split_pair(option: str, pair: str) -> tuple[str, str]:
    """name=value, in two; the name may be written with hyphens."""
    name, equals, value = pair.partition("=")
    if not (name.strip() and equals and value.strip()):
        raise CompositeFLError(f"{option} {pair} must have the form name=value")
    return name.strip().replace("-", "_"), value.strip()


def convert(what: str, value: Value, kinds: tuple[type, ...]) -> Value:
    """A word of the command line as the first of `kinds` that it can be."""
    if not isinstance(value, str):
        return value
    for kind in (bool, int, float):
        if kind not in kinds:
            continue
        try:
            return TRUTH[value.lower()] if kind is bool else kind(value)
        except (KeyError, ValueError):
            continue
    if str in kinds:
        return value
    wanted = {int: "a whole number", float: "a number", bool: "true or false"}
    raise CompositeFLError(f"{what} must be {' or '.join(wanted[kind] for kind in kinds)}")


def common_gamma(settings: Settings, algorithms: Sequence[Algorithm]) -> float:
    """The prox parameter of the residual: as told, else the one that Python takes."""
    return residual_gamma(algorithms) if settings.eval_gamma is None else settings.eval_gamma


def _as_given(name: str, value: Value) -> str:
    return f"{option_name(name)} {value}" if name in COMMON else f"--set {name}={value}"
