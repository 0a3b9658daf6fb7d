"""Errors that say what was given, what is allowed and, for names, which one was probably meant."""

import difflib
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from compositefl.core.types import Array

if TYPE_CHECKING:  # the command line prints its help without loading NumPy and JAX
    import numpy as np


# What helps, in words that end a message. The command line has others under the same keys
# (`cli.wording`), as a keyword argument is an option there.
REMEDIES = {
    "code it": "turn it into numbers, or leave it out",
    "code them": "turn them into numbers, or leave them out",
    "composite": "choose composite='server-prox' or 'subgradient' to use it with one",
    "drop it": "or leave it out",
    "features": "name the features, or leave the others out",
    "fixed steps": "it needs random=False",
    "folder": "or into a folder named by folder= or $COMPOSITEFL_DATA",
    "impute": "impute='mean' takes the mean of all sites",
    "keep a checkpoint": "without checkpoint= the run is lost",
    "leaf": "use ByName to give leaves different regularizers",
    "resume": "pass resume=True to go on from it, or remove it",
    "resume elsewhere": "resume=True goes on from checkpoint={value}, with any number of them",
    "ridge": "alpha=0.001, l1_ratio=0",
    "steps for theory": "a number where local_lr is 'theory'",
}


class CompositeFLError(ValueError):
    """A wrong input. The message is one line and names the value and what is allowed.

    The fields are for whoever words the message anew. parameter, value: what was wrong, or a
    formula of several parameters and its value; None where it is neither. also: further parameters
    that the message names, with their values. remedy: a key of `REMEDIES`, whose words end the
    message.
    """

    def __init__(
        self,
        message: str = "",
        *,
        parameter: str | None = None,
        value: object = None,
        also: Mapping[str, object] | None = None,
        remedy: str | None = None,
    ):
        ending = "" if remedy is None else REMEDIES[remedy].format(value=value)
        super().__init__(message + ending)
        self.parameter = parameter
        self.value = value
        self.also = dict(also or {})
        self.remedy = remedy


class UnknownName(CompositeFLError):
    """A name that is not among those known; `parameter` is the kind of thing it should name."""


class ProcessLost(CompositeFLError):
    """Another process of a run of several has gone; nothing more can be computed here."""


class ConvergenceWarning(RuntimeWarning):
    """A run that ended without a solution, or is likely to; the message says what was seen."""


class NotConverged(ConvergenceWarning):
    """A fit that was given up before it was as stationary as it should be."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> CompositeFLError:
    """The error for a name that is not in `known`, with the nearest one that is."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    message = f"unknown {kind} '{name}'{hint} Known: {', '.join(known)}"
    return UnknownName(message, parameter=kind, value=name)


def is_concrete(value: object) -> bool:
    """True for a number, of Python, NumPy or JAX. Tracers of jit and vmap pass unchecked."""
    import jax
    import numpy as np

    if isinstance(value, (bool, jax.core.Tracer)):
        return False
    if isinstance(value, (int, float)):
        return True
    return isinstance(value, (np.generic, np.ndarray, jax.Array)) and (
        value.ndim == 0 and value.dtype.kind in "iuf"
    )


def _numbers(name: str, value: object, wanted: str = "a number") -> "np.ndarray | None":
    """The numbers in `value`, None for a tracer; anything else is refused."""
    import jax
    import numpy as np

    if isinstance(value, jax.core.Tracer):
        return None
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise wrong_value(name, value, wanted, shown=repr(value))
    return array


def wrong_value(
    name: str, value: object, wanted: str, shown: str | None = None
) -> CompositeFLError:
    """The error for a parameter whose value is not what it must be."""
    message = f"{name}={value if shown is None else shown} must be {wanted}"
    return CompositeFLError(message, parameter=name, value=value)


def require_that(name: str, value: Array, good: "np.ndarray", wanted: str) -> None:
    """Refuse a number that is not good, or the first such entry of an array."""
    import numpy as np

    if np.all(good):
        return
    if np.ndim(value) == 0:
        raise wrong_value(name, value, wanted)
    where = tuple(int(i) for i in np.argwhere(~good)[0])
    index = ", ".join(map(str, where))
    raise CompositeFLError(
        f"{name}[{index}]={np.asarray(value)[where]} must be {wanted}", parameter=name, value=value
    )


def require_positive(**values: object) -> None:
    """Refuse numbers that are not finite and > 0."""
    for name, value in values.items():
        numbers = _numbers(name, value)
        if numbers is not None:
            good = (numbers > 0) & (numbers < math.inf)
            require_that(name, value, good, "a finite number > 0")


def require_nonnegative(**values: object) -> None:
    """Refuse numbers that are not finite and >= 0."""
    for name, value in values.items():
        numbers = _numbers(name, value)
        if numbers is not None:
            good = (numbers >= 0) & (numbers < math.inf)
            require_that(name, value, good, "a finite number >= 0")


def require_single(
    wanted: str = "a single number; cfl.sweep tries several", **values: Array
) -> None:
    """Refuse arrays and lists, of any length."""
    import numpy as np

    for name, value in values.items():
        if shape := np.shape(value):
            raise CompositeFLError(
                f"{name} has shape {shape}; it must be {wanted}", parameter=name, value=value
            )


def require_integer(minimum: int = 1, **values: object) -> None:
    """Refuse what is not a whole number >= minimum; 3.0 is one, which the caller takes `int` of."""
    wanted = f"a whole number >= {minimum}"
    for name, value in values.items():
        require_single(wanted, **{name: value})
        numbers = _numbers(name, value, wanted)
        if numbers is not None and not ((numbers >= minimum) & (numbers % 1 == 0)).all():
            raise wrong_value(name, value, wanted)


def require_share(**values: object) -> None:
    """Refuse numbers outside (0, 1]."""
    for name, value in values.items():
        numbers = _numbers(name, value)
        if numbers is not None and not ((numbers > 0) & (numbers <= 1)).all():
            raise wrong_value(name, value, "in (0, 1]")
