"""phi as a federation declares it: one regulariser, one for each pattern of names, or a path.

regularizer = "l1:0.01"          # one for all parameters

[[regularizers]]                 # or: the first pattern that a parameter's name matches
pattern = "*kernel"
name = "group-lasso"
weight = 0.1
groups = [0, 0, 1, 1]            # the group of each entry

path = [0.1, 0.03, 0.01]         # values of weight, a run each: run NAME-w0, NAME-w1, ...
"""

import re
from collections.abc import Collection

from compositefl.core.errors import (
    CompositeFLError,
    require_nonnegative,
    require_single,
    unknown_name,
    wrong_value,
)
from compositefl.core.resolve import is_reference
from compositefl.core.types import PlainValues
from compositefl.deployment.entries import fill
from compositefl.deployment.trust import LIBRARY, own_class
from compositefl.regularizers import REGULARIZERS, ByName, Regularizer, by_name, parse

OF_PATH = re.compile(r".+-w(\d+)")


def read_parts(given: object) -> tuple[PlainValues, ...]:
    """The tables [[regularizers]]; nothing is looked up yet."""
    if not isinstance(given, list) or not all(isinstance(part, dict) for part in given):
        raise CompositeFLError("[[regularizers]] must be a list of tables")
    for part in given:
        if not all(isinstance(part.get(word), str) for word in ("pattern", "name")):
            raise CompositeFLError("[[regularizers]] needs a pattern and a name in every table")
    return tuple(given)


def read_path(given: object) -> tuple[float, ...]:
    """The weights of a path."""
    if not isinstance(given, list) or not given:
        raise wrong_value("path", given, "a list of weights", shown=repr(given))
    for weight in given:
        require_single("a list of numbers", path=weight)
        require_nonnegative(path=weight)
    return tuple(float(weight) for weight in given)


def weight_of(run: str, path: tuple[float, ...]) -> float | None:
    """The weight that belongs to a run by its name; None without a path."""
    if not path:
        return None
    found = OF_PATH.fullmatch(run)
    if found is None or int(found.group(1)) >= len(path):
        last = len(path) - 1
        raise CompositeFLError(
            f"run={run}: the federation has a path of {len(path)} weights; name a run for each, "
            f"such as {run.partition('-w')[0]}-w0 to -w{last}",
            parameter="run",
            value=run,
        )
    return path[int(found.group(1))]


def make(
    regularizer: str,
    parts: tuple[PlainValues, ...],
    unpenalized: tuple[str, ...],
    weight: float | None,
    modules: Collection[str],
) -> Regularizer:
    """phi, without a weight on the unpenalized parameters."""
    if parts and regularizer != "zero":
        raise CompositeFLError("give either regularizer or [[regularizers]], not both")
    words = regularizer.split(":")[:2]
    if words[0] not in REGULARIZERS and is_reference(":".join(words)):
        own_class(":".join(words), Regularizer, modules)  # before it is called with its numbers
    rules = {part["pattern"]: _part(part, modules) for part in parts}
    if len(rules) < len(parts):
        raise CompositeFLError("[[regularizers]] has the same pattern twice")
    phi = ByName(rules) if rules else parse(regularizer, (*LIBRARY, *modules))
    if weight is not None:
        try:
            phi = phi.with_fields({"weight": weight})
        except CompositeFLError as error:
            raise CompositeFLError(f"path: {error}") from error
    return by_name.unpenalized(phi, unpenalized)


def _part(part: PlainValues, modules: Collection[str]) -> Regularizer:
    name = part["name"]
    if is_reference(name):
        cls = own_class(name, Regularizer, modules)
    elif name in REGULARIZERS:
        cls = REGULARIZERS[name]
    else:
        raise unknown_name("regularizer", name, REGULARIZERS)
    numbers = {k: v for k, v in part.items() if k not in ("pattern", "name")}
    return fill(cls, f"regularizers {name}", numbers)
