"""How messages travel: an interface of two methods, and a transport inside one process.

A second engine is a second class with these two methods.
"""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from errno import errorcode
from typing import NamedTuple, Protocol

from compositefl.core.errors import CompositeFLError

Handler = Callable[[str, bytes], bytes]
Fault = Callable[[str, str, bytes, Callable[[], bytes]], bytes]


class Failure(NamedTuple):
    """Why a site gave no answer. `lost`: it did not answer at all, so asking again costs time."""

    reason: str
    lost: bool = False


class Transport(Protocol):
    """What the coordinator needs of a network."""

    def call(
        self, sites: Iterable[str], method: str, payload: bytes, timeout: float
    ) -> dict[str, bytes | Failure]:
        """Call `method` of the workers of `sites` at the same time; an entry for each of them."""
        ...

    def close(self) -> None:
        """Nothing will be called any more."""
        ...


class InProcess:
    """Workers as objects of this process, each call in a thread of its own.

    As on a real network, a call that timed out goes on running at its site. `fault(site, method,
    payload, call)` stands between: it may raise, wait, repeat the call or change the answer.
    """

    def __init__(self, handlers: Mapping[str, Handler], fault: Fault | None = None):
        self.handlers = dict(handlers)
        self.fault = fault

    def call(
        self, sites: Iterable[str], method: str, payload: bytes, timeout: float
    ) -> dict[str, bytes | Failure]:
        """As `Transport.call`."""
        running: dict[str, Future[bytes]] = {site: Future() for site in sites}
        for site, future in running.items():
            work = (future, site, method, payload)
            threading.Thread(target=self._serve, args=work, daemon=True).start()
        wait(running.values(), timeout)
        answers: dict[str, bytes | Failure] = {}
        for site, future in running.items():
            if not future.done():
                answers[site] = Failure(f"no answer within {timeout:g} seconds", lost=True)
            elif error := future.exception():
                lost = isinstance(error, ConnectionError)  # raised between server and site
                text = f"{type(error).__name__}: {error}" if lost else failure_text(error)
                answers[site] = Failure(text, lost)
            else:
                answers[site] = future.result()
        return answers

    def close(self) -> None:
        """Forget the workers."""
        self.handlers.clear()

    def _serve(self, future: Future[bytes], site: str, method: str, payload: bytes) -> None:
        try:
            future.set_result(self._one(site, method, payload))
        except BaseException as error:
            future.set_exception(error)

    def _one(self, site: str, method: str, payload: bytes) -> bytes:
        handler = self.handlers.get(site)
        if handler is None:
            raise ConnectionError("not connected")
        if self.fault is None:
            return _handled(handler, method, payload)
        return self.fault(site, method, payload, lambda: _handled(handler, method, payload))


def _handled(handler: Handler, method: str, payload: bytes) -> bytes:
    """The site's answer; an OSError of its code is no lost connection, and has its text removed."""
    try:
        return handler(method, payload)
    except OSError as error:
        raise CompositeFLError(failure_text(error)) from error


class PrivateError(CompositeFLError):
    """An error whose text is for the site's operator; `public` is what the server may read."""

    def __init__(self, message: str, public: str):
        super().__init__(message)
        self.public = public


def failure_text(error: BaseException) -> str:
    """What the server may read of a site's error: the text of ours, only the kind of others.

    The text of an exception that is not of this package may quote data; of an OSError (as those of
    requests are, with addresses and tokens) the system's own words for its number do not.
    """
    if isinstance(error, PrivateError):
        return f"{error.public}; its log says more"
    if isinstance(error, CompositeFLError):
        return str(error)
    if isinstance(error, OSError) and isinstance(error.errno, int) and error.errno in errorcode:
        return f"{type(error).__name__}: {os.strerror(error.errno)}"
    return f"{type(error).__name__} in the site's code; see its log"
