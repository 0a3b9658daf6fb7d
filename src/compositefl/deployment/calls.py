"""Calls to the sites, with every answer checked before it counts."""

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.trees import tree_bytes
from compositefl.core.types import PlainValues, PyTree
from compositefl.deployment.federation import Federation
from compositefl.deployment.ledger import budget
from compositefl.deployment.messages import (
    SLACK,
    Message,
    NotFinite,
    answer_digest,
    call_digest,
    decode,
    encode,
    unpack,
    value,
)
from compositefl.deployment.progress import Event
from compositefl.deployment.roster import Roster
from compositefl.deployment.transport import Failure, Transport

LOG = logging.getLogger(__name__)
Report = Callable[[Event], None]
T = TypeVar("T")
LARGEST = 2**53  # of the plain numbers that a site may send
LONGEST_REASON = 400  # characters of what a site says went wrong


class Reply(NamedTuple):
    """A good answer: its plain values and its arrays as a pytree."""

    message: Message
    tree: PyTree

    def number(self, name: str, kind: type[T]) -> T:
        """One of its plain values, if it is of that kind."""
        return value(self.message, name, kind)


class SiteCalls:
    """Asks the sites of one run. A bad answer counts as none, and its site is named."""

    def __init__(
        self,
        federation: Federation,
        run: str,
        transport: Transport,
        roster: Roster,
        report: Report,
        steps: Callable[[int], tuple[int, int]],
    ):
        self.federation, self.run, self.steps = federation, run, steps
        self.transport, self.roster, self.report = transport, roster, report
        self.most_uploads = budget(federation)["uploads"]  # what a site's own ledger allows
        self.bytes_sent = self.bytes_received = 0
        self.steered: Callable[[], PlainValues] = dict  # more to say where numbers set themselves

    def join(self, t: int, sites: list[str]) -> None:
        """Let sites join the run; each gets the federation and decides whether it accepts it.

        A site that was lost gets a short time: its worker goes on loading, and the next call finds
        it ready, while the other sites have hardly waited.
        """
        payload = encode({"federation": self.federation.text, "run": self.run})
        network, members = self.federation.network, self.roster.members
        lost = [site for site in sites if members[site].lost]
        new = [site for site in sites if not members[site].lost]
        answers = self._call(t, new, "hello", payload, network.join_timeout, SLACK)
        answers |= self._call(t, lost, "hello", payload, network.probe_timeout, SLACK)
        for site, answer in answers.items():
            with self._refusing(t, site, "hello"):
                self._check_sender(answer, site, None)
                samples = value(answer, "samples", int)
                tests = value(answer, "tests", int)
                _require("samples", samples, 1, LARGEST)
                _require("tests", tests, 0, LARGEST)
                member = members[site]
                if member.samples not in (0, samples):
                    raise CompositeFLError(
                        f"it has {samples} samples and had {member.samples} when this run "
                        "began; a run needs the same data to its end"
                    )
                member.joined, member.samples, member.tests = True, samples, tests
                self.report({"event": "joined", "round": t, "site": site})

    def ask(
        self,
        t: int,
        sites: list[str],
        method: str,
        arrays: dict[str, np.ndarray],
        prefix: str,
        like: PyTree,
        not_finite: list[str] | None = None,
        largest: float | None = None,
        check: Callable[[str, PyTree], None] = lambda _site, _tree: None,
        **more: Any,
    ) -> dict[str, Reply]:
        """Call `method` in round t; the answers whose arrays look `like` it, in the sites' order.

        check: raises for the arrays of a site that cannot be.
        largest: number that an answer may have, where it is not that of the federation.
        not_finite: gets the names of sites that sent NaN or infinity.
        """
        about = {
            "federation": self.federation.hash,
            "run": self.run,
            "round": t,
            "accepted": self.roster.accepted(),
            **self.steered(),
            **more,
        }
        network = self.federation.network
        limit = min(network.limit, tree_bytes(like) + SLACK)
        numbers = about.get("numbers")
        call = call_digest(self.federation.hash, self.run, method, t, arrays, numbers)
        if largest is None:
            most = self.federation.limits.largest_number
            largest = LARGEST if method == "evaluate" else most
        answers = self._call(t, sites, method, encode(about, arrays), network.round_timeout, limit)
        good: dict[str, Reply] = {}
        for site in (s for s in sites if s in answers):
            message = answers[site]
            with self._refusing(t, site, method, not_finite):
                self._check_sender(message, site, t)
                self._check_numbers(message, site, method, t)
                tree = unpack(prefix, message.arrays, like, finite=True, largest=largest)
                if message.values.get("digest") != answer_digest(call, *message):
                    raise CompositeFLError("its answer does not belong to this round's message")
                check(site, tree)
                good[site] = Reply(message, tree)
        return good

    def _check_numbers(self, message: Message, site: str, method: str, t: int) -> None:
        """Refuse plain numbers that cannot be."""
        if method == "round":
            _require("steps", value(message, "steps", int), *self.steps(t))
            uploads, counted = value(message, "uploads", int), self.roster.members[site].uploads
            _require("uploads", uploads, 1, self.most_uploads)
            if counted >= self.most_uploads:  # the result's epsilon must not grow beyond
                raise CompositeFLError(
                    f"it has counted {counted} uploads in this run, all that it agreed to"
                )
        if method == "curvature":  # 0: the loss is flat at the start, or the site cannot tell
            _require("curvature", value(message, "curvature", float), 0, LARGEST)
        if method == "evaluate":
            _require("loss", value(message, "loss", float), -LARGEST, LARGEST, NotFinite)
            tests = value(message, "tests", int)
            if tests not in (0, self.roster.members[site].tests):
                raise CompositeFLError(f"its answer has tests={tests}, it joined with another")
            _require("right", value(message, "right", float), 0, tests * (1 + 1e-6))

    def _check_sender(self, message: Message, site: str, t: int | None) -> None:
        expected = {"federation": self.federation.hash, "run": self.run, "site": site, "round": t}
        for name, mine in expected.items():
            if message.values.get(name) != mine:
                raise CompositeFLError(
                    f"its answer has {name} {message.values.get(name)!r} instead of {mine!r}"
                )

    def _call(
        self, t: int, sites: list[str], method: str, payload: bytes, timeout: float, limit: int
    ) -> dict[str, Message]:
        """Decoded answers; failures are noted with the name of the site."""
        answers: dict[str, Message] = {}
        if not sites:
            return answers
        self.bytes_sent += len(payload) * len(sites)
        for site, answer in self.transport.call(sites, method, payload, timeout).items():
            if isinstance(answer, Failure):
                self._refuse(t, site, method, answer)
                continue
            with self._refusing(t, site, method):
                answers[site] = decode(answer, limit)
                self.bytes_received += len(answer)
                self.roster.heard(site)
        return answers

    @contextmanager
    def _refusing(
        self, t: int, site: str, method: str, not_finite: list[str] | None = None
    ) -> Iterator[None]:
        """Whatever goes wrong in here is this site's failure, and the run goes on.

        Not only the library's own errors: a site may send what no check has thought of.
        """
        try:
            yield
        except CompositeFLError as error:
            if not_finite is not None and isinstance(error, NotFinite):
                not_finite.append(site)
            self._refuse(t, site, method, Failure(f"refused: {error}"))
        except Exception as error:
            LOG.exception("the check of an answer of %s failed", site)
            kind = type(error).__name__
            self._refuse(t, site, method, Failure(f"refused: {kind} in the check of its answer"))

    def _refuse(self, t: int, site: str, method: str, failure: Failure) -> None:
        self.roster.failed(site, t, failure.lost, refused=method == "hello" and not failure.lost)
        reason = "".join(c if c.isprintable() else " " for c in failure.reason[:LONGEST_REASON])
        about = {"round": t, "site": site, "call": method, "reason": reason}
        about["lost"] = failure.lost
        self.report({"event": "failure", **about})


def _require(
    name: str,
    number: float,
    least: float,
    most: float,
    error: type[CompositeFLError] = CompositeFLError,
) -> None:
    """Refuse a plain number of an answer that is out of its range; NaN is in none."""
    if isinstance(number, float) and not math.isfinite(number):  # an int may be longer than a float
        raise NotFinite(f"{name} is NaN or infinite")
    if not least <= number <= most:
        raise error(f"its answer has {name}={number}, outside {least:g} to {most:g}")
