"""Errors that say what was given, what is allowed and, for names, which one was probably meant."""

import difflib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line prints its help without loading NumPy and JAX
    import numpy as np


class CompositeFLError(ValueError):
    """A wrong input. The message is one line and names the value and what is allowed.

    parameter, value: what was wrong, for whoever words the message anew; None where it is not one
    parameter's value.
    """

    def __init__(self, message: str = "", *, parameter: str | None = None, value: Any = None):
        super().__init__(message)
        self.parameter = parameter
        self.value = value


class ProcessLost(CompositeFLError):
    """Another process of a run of several has gone; nothing more can be computed here."""


class ConvergenceWarning(RuntimeWarning):
    """A run that ended without a solution, or is likely to; the message says what was seen."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> CompositeFLError:
    """The error for a name that is not in `known`, with the nearest one that is."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else "."
    message = f"unknown {kind} '{name}'{hint} Known: {', '.join(known)}"
    return CompositeFLError(message, parameter=kind, value=name)


def is_concrete(value: Any) -> bool:
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


def _numbers(name: str, value: Any, wanted: str = "a number") -> "np.ndarray | None":
    """The numbers in `value`, None for a tracer; anything else is refused."""
    import jax
    import numpy as np

    if isinstance(value, jax.core.Tracer):
        return None
    array = np.asarray(value)
    if array.dtype.kind not in "iuf":
        raise wrong_value(name, value, wanted, shown=repr(value))
    return array


def wrong_value(name: str, value: Any, wanted: str, shown: str | None = None) -> CompositeFLError:
    """The error for a parameter whose value is not what it must be."""
    message = f"{name}={value if shown is None else shown} must be {wanted}"
    return CompositeFLError(message, parameter=name, value=value)


def require_that(name: str, value: Any, good: "np.ndarray", wanted: str) -> None:
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


def require_positive(**values: Any) -> None:
    """Refuse numbers that are not finite and > 0."""
    for name, value in values.items():
        numbers = _numbers(name, value)
        if numbers is not None:
            good = (numbers > 0) & (numbers < math.inf)
            require_that(name, value, good, "a finite number > 0")


def require_nonnegative(**values: Any) -> None:
    """Refuse numbers that are not finite and >= 0."""
    for name, value in values.items():
        numbers = _numbers(name, value)
        if numbers is not None:
            good = (numbers >= 0) & (numbers < math.inf)
            require_that(name, value, good, "a finite number >= 0")


def require_integer(minimum: int = 1, **values: Any) -> None:
    """Refuse what is not a whole number >= minimum."""
    wanted = f"a whole number >= {minimum}"
    for name, value in values.items():
        numbers = _numbers(name, value, wanted)
        if numbers is not None and not ((numbers >= minimum) & (numbers % 1 == 0)).all():
            raise wrong_value(name, value, wanted)


def require_share(**values: Any) -> None:
    """Refuse numbers outside (0, 1]."""
    for name, value in values.items():
        numbers = _numbers(name, value)
        if numbers is not None and not ((numbers > 0) & (numbers <= 1)).all():
            raise wrong_value(name, value, "in (0, 1]")
