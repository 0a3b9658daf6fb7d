"""What every session of a site is: one site in one run, its ledger, and its messages."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import PlainValues
from compositefl.deployment.federation import Federation
from compositefl.deployment.ledger import Ledger
from compositefl.deployment.messages import (
    Message,
    answer_digest,
    call_digest,
    decode,
    encode,
    value,
)
from compositefl.deployment.site import Site


class SiteSession:
    """One site in one run; a subclass says what it answers to which call."""

    answers: dict[str, Callable[[Message], bytes]]
    limit: int  # bytes of the longest message
    size: int  # training samples
    test_size: int = 0
    notes: tuple[str, ...] = ()  # for the site's own eyes, in a dry run

    def __init__(self, site: Site, federation: Federation, run: str, folder: Path):
        if site.name not in federation.sites:
            raise CompositeFLError(f"{site.name} is not a site of the federation")
        self.name, self.run, self.hash = site.name, run, federation.hash
        self.rounds = federation.rounds
        self.minimum = max(federation.limits.minimum_samples, site.limits.minimum_samples)
        self.ledger = Ledger(folder, federation, run, site.limits)  # before the data are read

    def read(self, payload: bytes) -> Message:
        """A message of this run, not longer than any can be."""
        message = decode(payload, self.limit)
        for name, mine in (("federation", self.hash), ("run", self.run)):
            if message.values.get(name) != mine:
                raise CompositeFLError(
                    f"the message is for {name} {message.values.get(name)!r}, this site is in "
                    f"{mine!r}; say hello first"
                )
        return message

    def check_size(self, samples: int) -> None:
        """Refuse data of so few people that an answer would be about them."""
        if samples < self.minimum:
            raise CompositeFLError(
                f"this site has fewer samples than the minimum of {self.minimum}"
            )

    def round_of(self, message: Message, last: int | None = None) -> int:
        """The round that a message is of, if it is one that was agreed to."""
        t = value(message, "round", int)
        if not 0 <= t <= (self.rounds - 1 if last is None else last):
            raise CompositeFLError(
                f"round={t}: this site agreed to {self.rounds} rounds", parameter="round", value=t
            )
        return t

    def call(self, method: str, t: int, message: Message) -> str:
        """The digest of a call."""
        numbers = message.values.get("numbers")
        return call_digest(self.hash, self.run, method, t, message.arrays, numbers)

    def reply(self, t: int, call: str, about: PlainValues, arrays: dict[str, np.ndarray]) -> bytes:
        """An answer, bound to the call with this digest."""
        who = {"federation": self.hash, "run": self.run, "site": self.name, "round": t} | about
        return encode(who | {"digest": answer_digest(call, who, arrays)}, arrays)
