"""Errors that say what was given, what is allowed and, for names, which one was probably meant."""

import difflib
from collections.abc import Iterable
from typing import Any


class CompositeFLError(ValueError):
    """A wrong input. The message is one line and names the value and what is allowed."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> CompositeFLError:
    """The error for a name that is not in `known`, with the nearest one that is."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    return CompositeFLError(f"unknown {kind} '{name}'{hint} Known: {', '.join(known)}")


def is_concrete(value: Any) -> bool:
    """True for a plain number. Inside jit and vmap numbers are tracers and pass unchecked."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def require_positive(**values: Any) -> None:
    """Refuse numbers that are not finite and > 0."""
    for name, value in values.items():
        if is_concrete(value) and not 0 < value < float("inf"):
            raise CompositeFLError(f"{name}={value} must be a finite number > 0")


def require_nonnegative(**values: Any) -> None:
    """Refuse numbers that are not finite and >= 0."""
    for name, value in values.items():
        if is_concrete(value) and not 0 <= value < float("inf"):
            raise CompositeFLError(f"{name}={value} must be a finite number >= 0")


def require_integer(minimum: int = 1, **values: Any) -> None:
    """Refuse what is not a whole number >= minimum."""
    for name, value in values.items():
        whole = is_concrete(value) and float(value).is_integer()
        if isinstance(value, (bool, str)) or (
            is_concrete(value) and not (whole and value >= minimum)
        ):
            raise CompositeFLError(f"{name}={value} must be a whole number >= {minimum}")
