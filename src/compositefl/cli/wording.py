"""What the user reads on stderr: one plain line a message."""

import dataclasses
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from compositefl.cli.settings import Settings, option_name
from compositefl.core.errors import CompositeFLError

# Words of the library that read differently on the command line.
WORDING = {
    r"resume=True": "--resume",
    r"composite=": "--composite ",
    r"folder=(?=\S)": "--data-folder ",
    r"folder=": "--data-folder",
    r"local_lr\*server_lr\*local_steps=": "--local-lr * --server-lr * --local-steps = ",
    r"leaf '([^']*)'(.*); use ByName.*": r"leaf '\1'\2; leave it out with --unpenalized '\1'",
    r"or leave (it|them) out": r"or leave \1 out with --drop",
    r"impute='mean'": "--impute mean",
    r"alpha=([\d.]+), l1_ratio=0$": r"--alpha \1 --penalty l2",
    r"; name the features, or": "; name the features with --features, or",
}


def say(text: str) -> None:
    """One line on stderr."""
    print(" ".join(text.split()), file=sys.stderr, flush=True)


def as_options(error: CompositeFLError, declared: type[Any] = Settings) -> str:
    """The library's "local_lr=-1 must be ..." as "--local-lr -1 must be ...".

    declared: has the options of the command as its fields.
    """
    message = str(error)
    known = {field.name for field in dataclasses.fields(declared)}
    named = _by_field(error, message, known)
    message = _by_pattern(message, known) if named is None else named
    for word, here in WORDING.items():
        message = re.sub(word, here, message)
    return message


def _by_field(error: CompositeFLError, message: str, known: set[str]) -> str | None:
    """The message with the option for the parameter that the error carries; None without one."""
    name, value = getattr(error, "parameter", None), getattr(error, "value", None)
    if name not in known or not message.startswith(f"{name}="):
        return None
    option = option_name(name) if isinstance(value, bool) else f"{option_name(name)} {value}"
    for form in (str(value), repr(value)):
        if message.startswith(f"{name}={form}"):
            return option + message.removeprefix(f"{name}={form}")
    return None


def _by_pattern(message: str, known: set[str]) -> str:
    def option(found: re.Match[str]) -> str:
        if found[1] not in known:
            return found[0]
        return option_name(found[1]) + ("" if found[2] else " ")  # --resume, but --rounds 5

    if numbers := re.match(r"(\w+=[^\s,]+,? ?)+", message):
        message = re.sub(r"(\w+)=(True)?", option, numbers[0]) + message[numbers.end() :]
    if (name := re.match(r"unknown (\w+) '([^']*)'", message)) and name[1] in known:
        message = f"{option_name(name[1])} {name[2]}: {message}"
    return message


@contextmanager
def about(option: str, value: Any = None) -> Iterator[None]:
    """Put the option and its value before an error that does not name them.

    Without a value: before an error that begins with it, such as a file.
    """
    try:
        yield
    except CompositeFLError as error:
        text = str(error)
        if value is not None:
            quoted = f"'{value}'"
            known = text.startswith(quoted)
            text = f"{value}{text.removeprefix(quoted)}" if known else f"{value}: {text}"
        raise CompositeFLError(f"{option} {text}") from error


@contextmanager
def plain_warnings(label: str) -> Iterator[list[Warning | str]]:
    """Show warnings as one line each; yields the list of those shown."""
    shown: list[Warning | str] = []

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in map(str, shown):
            shown.append(message)
            say(f"warning: {label}: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = show  # restored by catch_warnings
        yield shown
