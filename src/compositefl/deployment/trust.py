"""What a node runs: federations that it was told to accept, and functions of modules that it lists.

A federation comes from another machine. Its text is hashed before it is looked at, reading it calls
nothing, and what it names by "module:name" must be of a module that the node's own file lists, be
defined there, and be a class or a declared factory of the right kind.
"""

import hashlib
import re
import tomllib
import typing
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.core.resolve import resolve
from compositefl.core.types import PlainValues
from compositefl.deployment.entries import words

if TYPE_CHECKING:
    from compositefl.deployment.federation import Federation

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
LIBRARY = ("compositefl.algorithms", "compositefl.regularizers")  # their classes may be named


def check_name(what: str, given: object) -> str:
    """`given`, if it can be the name of a folder inside another."""
    if not isinstance(given, str) or not NAME.fullmatch(given):
        raise CompositeFLError(f"{what}={given!r} must be a name of letters, digits, '-', '_', '.'")
    return given


@dataclass(frozen=True)
class Trust:
    """What the owner of a node wrote into its own file: `accept` and `modules`."""

    accept: tuple[str, ...] = ()  # sha256 of federations
    modules: tuple[str, ...] = ()  # whose models, algorithms and regularisers may be used

    def __post_init__(self) -> None:
        if not all(isinstance(h, str) and len(h) == 64 for h in self.accept):
            raise CompositeFLError("accept must be a list of sha256 hashes of 64 digits")

    def admit(self, text: object, who: str, file: str) -> "Federation":
        """The federation that `text` declares, if `who` was told in `file` to accept it."""
        from compositefl.deployment.federation import Federation

        if not isinstance(text, str):
            raise CompositeFLError("a federation must be text")
        hash_ = hashlib.sha256(text.encode()).hexdigest()
        if hash_ not in self.accept:  # before the text is looked at
            raise CompositeFLError(
                f"{who} has not been told to accept the federation {hash_}; its administrator "
                f"adds this hash to accept in {file} after reading the file"
            )
        return Federation.parse(text).trusting(self.modules)


def server_trust(path: Path) -> Trust:
    """What `server.toml` of a server says; without the file nothing is accepted."""
    if not path.exists():
        return Trust()
    table = read_toml(path, ("accept", "modules"))
    try:
        return Trust(**{name: words(name, given) for name, given in table.items()})
    except CompositeFLError as error:
        raise CompositeFLError(f"{path}: {error}") from error


def read_toml(path: Path, entries: Collection[str]) -> PlainValues:
    """The content of a node's own file; other than the known entries are refused."""
    try:
        table = tomllib.loads(path.read_text())
    except (ValueError, RecursionError) as error:  # no TOML, no text, too deep or too long
        raise CompositeFLError(f"{path}: not TOML: {error}") from error
    for name in table:
        if name not in entries:
            raise CompositeFLError(f"{path}: {unknown_name('entry', name, entries)}")
    return table


def own_class(reference: str, kind: type[T], modules: Collection[str]) -> type[T]:
    """The class of `kind` that "module:name" names, of the library or of accepted modules."""
    allowed = _public(reference, _all(modules))
    return _defined_there(reference, resolve(reference, kind, modules=allowed), allowed)


def own_factory(reference: str, kind: type[T], modules: Collection[str]) -> Callable[..., T]:
    """The class of `kind`, or the function that says it returns one: `def f(...) -> Kind`.

    That a function can be called is not enough: a module also holds what it has imported, and
    functions that were never meant to be named by others. The library's own functions are such:
    its models have names, and what makes them takes "module:name" again.
    """
    found = resolve(reference, kind, factory=True, modules=_public(reference, modules))
    _defined_there(reference, found, modules)
    if isinstance(found, type):
        return found
    try:
        made = typing.get_type_hints(found).get("return")
    except (NameError, TypeError, AttributeError):
        made = None
    if not (isinstance(made, type) and issubclass(made, kind)):
        raise CompositeFLError(
            f"'{reference}' is not declared as a {kind.__name__}: write -> {kind.__name__} "
            "after its arguments"
        )
    return found


def accepts(module: str, modules: Collection[str]) -> bool:
    """Whether a module has classes of the library, or is one of `modules` or inside one of them."""
    return _among(module, _all(modules))


def _all(modules: Collection[str]) -> list[str]:
    return [*LIBRARY, *modules]


def _among(module: str, modules: Collection[str]) -> bool:
    return any(module == m or module.startswith(f"{m}.") for m in modules)


def _public(reference: str, modules: Collection[str]) -> Collection[str]:
    """`modules`, for a name that is meant for others."""
    if reference.partition(":")[2].startswith("_"):
        raise CompositeFLError(f"'{reference}' is private to its module; name a public one")
    return modules


def _defined_there(reference: str, found: T, modules: Collection[str]) -> T:
    home = str(getattr(found, "__module__", ""))
    if not _among(home, modules):
        raise CompositeFLError(f"'{reference}' comes from {home}, which is not accepted here")
    return found
