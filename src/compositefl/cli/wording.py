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
    "resume=True": "--resume",
    "composite=": "--composite ",
    "folder=": "--data-folder",
    "local_lr*server_lr*local_steps=": "--local-lr * --server-lr * --local-steps = ",
}


def say(text: str) -> None:
    """One line on stderr."""
    print(" ".join(text.split()), file=sys.stderr, flush=True)


def as_options(message: str) -> str:
    """The library's "local_lr=-1 must be ..." as "--local-lr -1 must be ..."."""
    known = {field.name for field in dataclasses.fields(Settings)}

    def option(found: re.Match[str]) -> str:
        if found[1] not in known:
            return found[0]
        return option_name(found[1]) + ("" if found[2] else " ")  # --resume, but --rounds 5

    if numbers := re.match(r"(\w+=[^\s,]+,? ?)+", message):
        message = re.sub(r"(\w+)=(True)?", option, numbers[0]) + message[numbers.end() :]
    if (name := re.match(r"unknown (\w+) '([^']*)'", message)) and name[1] in known:
        message = f"{option_name(name[1])} {name[2]}: {message}"
    for word, here in WORDING.items():
        message = message.replace(word, here)
    return message


@contextmanager
def about(option: str, value: Any) -> Iterator[None]:
    """Put the option and its value before an error that does not name them."""
    try:
        yield
    except CompositeFLError as error:
        raise CompositeFLError(f"{option} {value}: {error}") from error


@contextmanager
def plain_warnings(label: str) -> Iterator[list[str]]:
    """Show warnings as one line each; yields the list of those shown."""
    shown: list[str] = []

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.append(str(message))
            say(f"warning: {label}: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = show  # restored by catch_warnings
        yield shown
