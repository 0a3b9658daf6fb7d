"""What the user reads on stderr: one plain line a message."""

import dataclasses
import sys
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from compositefl.cli.settings import Settings, option_name
from compositefl.core import errors
from compositefl.core.errors import CompositeFLError, UnknownName

if TYPE_CHECKING:
    from compositefl.cli.settings import AnySettings

# What `core.errors.REMEDIES` says, in options.
REMEDIES = {
    "code it": "--categories codes it, --drop leaves it out",
    "code them": "--categories codes them, --drop leaves them out",
    "composite": "choose --composite server-prox or subgradient to use it with one",
    "drop it": "or leave it out with --drop",
    "features": "name the features with --features, or leave the others out with --drop",
    "fixed steps": "it needs --set random=false",
    "folder": "or into a folder named by --data-folder or $COMPOSITEFL_DATA",
    "impute": "--impute mean takes the mean of all sites",
    "keep a checkpoint": "without --checkpoint FILE the run is lost",
    "leaf": "leave it out with --unpenalized '{value}'",
    "resume": "add --resume to go on from it, or remove it",
    "resume elsewhere": "--checkpoint {value} --resume goes on, with any number of them",
    "ridge": "--alpha 0.001 --penalty l2",
    "steps for theory": "a number with --local-lr theory",
}
CONTROL = ("Cc", "Cs", "Zl", "Zp")  # control characters, half characters, ends of lines
OPTIONS = {"folder": "data_folder"}  # parameters whose option has another name
FORMULAS = {
    "eta_hat = local_lr*server_lr*local_steps": "--local-lr * --server-lr * --local-steps = ",
    "eta_hat = local_lr*local_steps": "--local-lr * --local-steps = ",
    "eta_hat (1/mu, or local_lr*local_steps without the drift)": (
        "1/mu (--set mu=), or --local-lr * --local-steps without the drift, = "
    ),
    "local_steps*local_lr": "--local-steps * --local-lr = ",
    "lr/prox_probability": "--lr / (--set prox_probability=) = ",
    "1/mu": "1/mu (--set mu=) = ",
    "2/strong_convexity": "2/strong_convexity (--set strong_convexity=) = ",
}
# How errors about the arrays of an estimator begin, there and here.
ARRAYS = {
    "X": ("X has", "the tables have"),
    "y": ("y", "the target"),
    "sample_weight": ("sample_weight", "--weight"),
    "offset": ("offset", "--offset"),
}


def say(text: str) -> None:
    """One line on stderr."""
    print(plain(" ".join(text.split())), file=sys.stderr, flush=True)


def tell(line: object) -> None:
    """One line on stdout, with text that comes from other machines."""
    print(plain(line), flush=True)


def plain(text: object) -> str:
    """Text that comes from tables or other machines, with its control characters written out.

    A terminal would obey them: colours, a moved cursor, lines that hide what stands above.
    """
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in CONTROL else c
        for c in str(text)
    )


def plain_lines(text: object) -> str:
    """The same for text of several lines."""
    return "\n".join(map(plain, str(text).split("\n")))


def as_options(error: CompositeFLError, declared: "type[AnySettings]" = Settings) -> str:
    """The library's "local_lr=-1 must be ..." as "--local-lr -1 must be ...".

    declared: has the options of the command as its fields.
    """
    message, name = with_remedy(error), error.parameter
    if name is None:
        return message
    if name in ARRAYS:
        there, here = ARRAYS[name]
        return here + message.removeprefix(there) if message.startswith(there) else message
    if name in FORMULAS:
        return FORMULAS[name] + message.removeprefix(f"{name}=")
    known = {field.name for field in dataclasses.fields(declared)}
    if isinstance(error, UnknownName) and name in known:
        return f"{option_name(name)} {error.value}: {message}"
    return _begin_with_options(error, message, known)


def with_remedy(error: CompositeFLError) -> str:
    """The message; the words at its end that say what helps are those of the command line."""
    message, key = str(error), error.remedy
    if key is None:
        return message
    there = errors.REMEDIES[key].format(value=error.value)
    return message.removesuffix(there) + REMEDIES[key].format(value=error.value)


def _begin_with_options(error: CompositeFLError, message: str, known: set[str]) -> str:
    """Write the parameters that a message begins with as options."""
    options: list[str] = []
    rest = message
    for name, value in {str(error.parameter): error.value, **error.also}.items():
        field = OPTIONS.get(name, name)
        after = rest.removeprefix(", ") if options else rest
        forms = (f"{name}={value}", f"{name}={value!r}")
        form = next((form for form in forms if after.startswith(form)), None)
        if field not in known or form is None:
            break
        bare = isinstance(value, bool)  # --resume, but --rounds 5
        options.append(option_name(field) if bare else f"{option_name(field)} {value}")
        rest = after.removeprefix(form)
    return " ".join(options) + rest


@contextmanager
def about(option: str, value: object = None) -> Iterator[None]:
    """Put the option and its value before an error that does not name them.

    Without a value: before an error that begins with it, such as a file.
    """
    try:
        yield
    except CompositeFLError as error:
        text = with_remedy(error)
        if value is not None:
            quoted = f"'{value}'"
            known = text.startswith(quoted)
            text = f"{value}{text.removeprefix(quoted)}" if known else f"{value}: {text}"
        raise CompositeFLError(f"{option} {text}") from error


@contextmanager
def plain_warnings(label: str) -> Iterator[list[Warning | str]]:
    """Show warnings as one line each; yields the list of those shown."""
    shown: list[Warning | str] = []

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if str(message) not in map(str, shown):
            shown.append(message)
            say(f"warning: {label}: {message}")

    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = show  # restored by catch_warnings
        yield shown
