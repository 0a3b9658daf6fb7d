"""The server's door: a line in its log for every connection that is refused, with the address.

gRPC refuses a peer without a certificate, of another authority or with an old TLS before FLARE
hears of it, and tells only its own tracer. The node's output runs through this program: lines of
the tracer become one line for each refusal, in log.txt and node.log, all others pass.

    node 2>&1 | python flare_door.py KIT

Only the standard library: it runs beside the server and must not need its memory.
"""

import re
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

TRACING = {"GRPC_VERBOSITY": "INFO", "GRPC_TRACE": "handshaker"}  # of the server's process
FAILED = re.compile(r"CallNextHandshakerLocked: error=(?!OK)(.*)")
PEER = re.compile(r"endpoint_peer_address=([^,}\s]+)")
TRACE = re.compile(r"^I\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ \S+\] ")  # gRPC's own lines, of no interest
REST = ("=== Source Location Trace: ===", "src/core/", " shutdown=")  # further lines of such a line
MOST = 30  # lines a minute: a scanner must not fill the disk
REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "no certificate",
    "unable to get local issuer certificate": "certificate of another authority",
    "self-signed certificate": "certificate of another authority",
    "self signed certificate": "certificate of another authority",
    "certificate has expired": "certificate out of date",
    "certificate is not yet valid": "certificate not yet valid",
    "CERTIFICATE_VERIFY_FAILED": "certificate not accepted",
    "UNSUPPORTED_PROTOCOL": "TLS too old",
    "HTTP_REQUEST": "no TLS",
    "WRONG_VERSION_NUMBER": "no TLS",
}


class Refusal:
    """A connection that was refused."""

    def __init__(self, address: str, reason: str):
        self.address, self.reason = address, reason

    def __str__(self) -> str:
        return f"connection from {self.address} refused: {self.reason}"


def sorted_out(lines: Iterable[str]) -> Iterator[str | Refusal]:
    """The node's own lines, and refusals in place of the tracer's."""
    reason = ""
    inside = False  # a line of the tracer that goes on
    for line in lines:
        if found := FAILED.search(line):
            reason = _in_words(found.group(1))
        peer = PEER.search(line)
        if reason and peer:
            yield Refusal(unquote(peer.group(1).partition(":")[2]), reason)
            reason = ""
        if TRACE.match(line):
            inside = True
        elif not (inside and line.startswith(REST)):
            inside = False
            yield line


def _in_words(error: str) -> str:
    for sign, words in REASONS.items():
        if sign in error:
            return words
    return re.sub(r"[^\x20-\x7e]", " ", error).strip()[:200] or "unknown"


class Log:
    """Writes both files of a kit; refusals beyond MOST a minute are counted."""

    def __init__(self, kit: Path):
        self.kit, self.minute, self.said, self.more = kit, 0, 0, 0

    def write(self, item: str | Refusal) -> None:
        """A line of the node to node.log, a refusal to both."""
        if isinstance(item, str):
            self._append("node.log", item)
            return
        minute = int(time.time() // 60)
        if minute != self.minute:
            more, self.minute, self.said, self.more = self.more, minute, 0, 0
            if more:
                self._refused(f"{more} more connections refused in a minute")
        self.said += 1
        if self.said <= MOST:
            self._refused(str(item))
        else:
            self.more += 1

    def _refused(self, text: str) -> None:
        line = f"{time.strftime('%Y-%m-%d %H:%M:%S')},000 - door - WARNING - {text}\n"
        self._append("log.txt", line)
        self._append("node.log", line)

    def _append(self, name: str, line: str) -> None:
        try:
            with (self.kit / name).open("a") as file:  # by name each time: logs are rotated
                file.write(line)
        except OSError:  # a full disk must not end the server, which writes to this program
            pass


def main(kit: str) -> None:
    """Read the node's output to its end."""
    log = Log(Path(kit))
    source = open(sys.stdin.fileno(), errors="replace", closefd=False)  # noqa: SIM115
    for item in sorted_out(source):
        log.write(item)


if __name__ == "__main__":
    main(sys.argv[1])
