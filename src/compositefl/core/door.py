"""A server's door: a line in its log for every connection that TLS refuses, with the address.

asyncio, over which FLARE's server speaks, closes a connection without a certificate, of another
authority or with an old TLS, and says so to nobody. `deploy provision` names `Door` in the server's
own resources.json, so that this runs inside the server's process. It needs the standard library
alone: the process must not grow by what the rest of the package loads.
"""

import logging
import time
from asyncio import sslproto
from typing import Any

MOST = 30  # lines a minute: a scanner must not fill the disk
REASONS = {  # what OpenSSL says: in words
    "ALERT_UNKNOWN_CA": "it does not know this server's authority",
    "ALERT_BAD_CERTIFICATE": "it does not take this server's certificate",
    "ALERT_CERTIFICATE_UNKNOWN": "it does not take this server's certificate",
    "ALERT_CERTIFICATE_EXPIRED": "it finds this server's certificate out of date",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no certificate",
    "unable to get local issuer certificate": "certificate of another authority",
    "self-signed certificate": "certificate of another authority",
    "self signed certificate": "certificate of another authority",
    "certificate signature failure": "certificate of another authority",
    "certificate has expired": "certificate out of date",
    "certificate is not yet valid": "certificate not yet valid",
    "CERTIFICATE_VERIFY_FAILED": "certificate not accepted",
    "UNSUPPORTED_PROTOCOL": "TLS too old",
    "VERSION_TOO_LOW": "TLS too old",
    "HTTP_REQUEST": "no TLS",
    "WRONG_VERSION_NUMBER": "no TLS",
    "taking longer than": "no handshake in time",
    "ConnectionResetError": "closed in the handshake",
}
_log = logging.getLogger("compositefl.door")


class Door:
    """The component of FLARE's server: notes refusals as long as the process lives."""

    def __init__(self) -> None:
        note_refusals(Notes())


class Notes:
    """Writes refusals into the log; beyond MOST a minute they are counted."""

    def __init__(self) -> None:
        self.minute, self.said, self.more = 0, 0, 0

    def refused(self, address: str, reason: str) -> None:
        """One connection."""
        minute = int(time.time() // 60)
        if minute != self.minute:
            if self.more:
                _log.warning("%d more connections refused in a minute", self.more)
            self.minute, self.said, self.more = minute, 0, 0
        self.said += 1
        if self.said <= MOST:
            _log.warning("connection from %s refused: %s", address, reason)
        else:
            self.more += 1


def note_refusals(notes: Notes) -> None:
    """Tell `notes` of handshakes that fail in servers of this process.

    There is no public way: asyncio hands these errors to nobody unless its loop is in debug mode.
    """
    protocol: Any = sslproto.SSLProtocol
    fatal_error = getattr(protocol, "_fatal_error", None)
    if fatal_error is None:
        _log.warning("refused connections cannot be noted with this version of Python")
        return

    def noting(self: Any, error: BaseException, message: str = "Fatal error on transport") -> None:
        try:
            if self._server_side and "handshake" in f"{message} {error}":
                peer = self._get_extra_info("peername") or ("unknown", 0)
                notes.refused(f"{peer[0]}:{peer[1]}", in_words(error))
        except Exception:  # a note must not end a server
            _log.debug("a refusal could not be noted", exc_info=True)
        fatal_error(self, error, message)

    protocol._fatal_error = noting


def in_words(error: BaseException) -> str:
    """Why a handshake failed."""
    text = f"{error!r} {error}"
    for sign, words in REASONS.items():
        if sign in text:
            return words
    printable = "".join(c if c.isprintable() else " " for c in text)
    return printable[:200]
