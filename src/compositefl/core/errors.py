"""Errors that say what was given, what is allowed and, for names, which one was probably meant."""

import difflib
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the command line prints its help without loading NumPy and JAX
    import numpy as np


class CompositeFLError(ValueError):
    """A wrong input. The message is one line and names the value and what is allowed."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> CompositeFLError:
    """The error for a name that is not in `known`, with the nearest one that is."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return CompositeFLError(f"unknown {kind} '{name}'{hint} Known: {', '.join(known)}")


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
        raise CompositeFLError(f"{name}={value!r} must be {wanted}")
    return array


def require_positive(**values: Any) -> None:
    """Refuse numbers that are not finite and > 0."""
    for name, value in values.items():
        numbers = _numbers(name, value)
        if numbers is not None and not ((numbers > 0) & (numbers < math.inf)).all():
            raise CompositeFLError(f"{name}={value} must be a finite number > 0")


def require_nonnegative(**values: Any) -> None:
    """Refuse numbers that are not finite and >= 0."""
    for name, value in values.items():
        numbers = _numbers(name, value)
        if numbers is not None and not ((numbers >= 0) & (numbers < math.inf)).all():
            raise CompositeFLError(f"{name}={value} must be a finite number >= 0")


def require_integer(minimum: int = 1, **values: Any) -> None:
    """Refuse what is not a whole number >= minimum."""
    wanted = f"a whole number >= {minimum}"
    for name, value in values.items():
        numbers = _numbers(name, value, wanted)
        if numbers is not None and not ((numbers >= minimum) & (numbers % 1 == 0)).all():
            raise CompositeFLError(f"{name}={value} must be {wanted}")


def require_share(**values: Any) -> None:
    """Refuse numbers outside (0, 1]."""
    for name, value in values.items():
        numbers = _numbers(name, value)
        if numbers is not None and not ((numbers > 0) & (numbers <= 1)).all():
            raise CompositeFLError(f"{name}={value} must be in (0, 1]")
