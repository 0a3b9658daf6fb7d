"""Classes and functions of the user's own modules, by "package.module:name"."""

import importlib
from collections.abc import Callable, Collection
from types import ModuleType
from typing import Any, TypeVar, overload

from compositefl.core.errors import CompositeFLError, unknown_name

T = TypeVar("T")


def is_reference(text: str) -> bool:
    """Whether `text` has the form "package.module:name"."""
    module, colon, name = text.partition(":")
    words = [*module.split("."), name]
    return bool(colon) and all(word.isidentifier() for word in words)


@overload
def resolve(
    reference: str, kind: type[T], *, modules: Collection[str] | None = None
) -> type[T]: ...


@overload
def resolve(
    reference: str,
    kind: type | None = None,
    *,
    factory: bool = False,
    modules: Collection[str] | None = None,
) -> Callable[..., Any]: ...


def resolve(
    reference: str,
    kind: type | None = None,
    *,
    factory: bool = False,
    modules: Collection[str] | None = None,
) -> Any:
    """The class or function that "package.module:name" names.

    kind: the class must be one of these; None: whatever can be called. factory: a function is
    allowed too, of which the caller checks what it returns (`require_kind`).
    modules: the modules and packages that may be imported; None: all.
    """
    module, _, name = reference.partition(":")
    if not is_reference(reference):
        raise CompositeFLError(f"'{reference}' must have the form package.module:name")
    if modules is not None and not _among(module, modules):
        accepted = ", ".join(sorted(modules)) or "none"
        raise CompositeFLError(
            f"'{reference}': the module {module} is not accepted here; accepted: {accepted}"
        )
    found = _attribute(reference, _module(reference, module), name)
    is_kind = isinstance(found, type) and (kind is None or issubclass(found, kind))
    is_function = callable(found) and not isinstance(found, type)
    if is_kind or (is_function and (factory or kind is None)):
        return found
    wanted = "a function or class" if kind is None else f"a subclass of {kind.__name__}"
    if factory and kind is not None:
        wanted += f" or a function that returns one of {kind.__name__}"
    raise CompositeFLError(f"'{reference}' must be {wanted}, not {_what(found)}")


def require_kind(reference: str, made: object, kind: type[T]) -> T:
    """`made`, if it is of the kind that a factory was called for."""
    if not isinstance(made, kind):
        raise CompositeFLError(
            f"'{reference}' must return {kind.__name__}, it returned {type(made).__name__}"
        )
    return made


def _among(module: str, modules: Collection[str]) -> bool:
    return any(module == allowed or module.startswith(f"{allowed}.") for allowed in modules)


def _module(reference: str, module: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and _among(module, [error.name]):
            raise CompositeFLError(
                f"'{reference}': there is no module {error.name} here"
            ) from error
        raise CompositeFLError(f"'{reference}': {module} needs {error.name}") from error
    except Exception as error:  # whatever the user's module does when it is imported
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise CompositeFLError(f"'{reference}': importing {module} failed with {text}") from error


def _attribute(reference: str, module: ModuleType, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        public = [word for word in vars(module) if not word.startswith("_")]
        error = unknown_name(f"name in {module.__name__}", name, public)
        raise CompositeFLError(f"'{reference}': {error}") from None


def _what(found: object) -> str:
    if isinstance(found, type):
        return f"the class {found.__name__}"
    return "a function" if callable(found) else f"a {type(found).__name__}"
