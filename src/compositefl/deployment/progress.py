"""What the events of a run add up to: how far it is, who takes part, what went wrong."""

import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from compositefl.core.types import PlainValues

RECENT = 20  # rounds that the seconds of a round are the mean of


# What happened, a line of progress.jsonl: "event" is its kind, and each kind has values of its own.
Event: TypeAlias = PlainValues


NUMBER = (int, float)
ENTRIES: dict[str, dict[str, type | tuple[type, ...]]] = {  # of each kind, that somebody reads
    "start": {"round": int, "rounds": int},
    "refused": {"reason": str},
    "stop": {"round": int, "reason": str},
    "evaluation": {"round": int, "psi": NUMBER, "natural_residual_sq": NUMBER, "sites": int},
    "joined": {"round": int, "site": str},
    "failure": {"round": int, "site": str, "reason": str, "call": str},
    "round": {"round": int, "sites": list},
}


def _check(event: Event) -> None:
    """Raise for an event that is not what its kind says."""
    kind = event["event"]
    about = {"time": 0.0, "accuracy": 0.0} | event
    for name, wanted in {"time": NUMBER, "accuracy": NUMBER, **ENTRIES.get(kind, {})}.items():
        if not isinstance(about[name], wanted):
            raise TypeError(name)
    if kind == "round" and not all(isinstance(site, str) for site in event["sites"]):
        raise TypeError("sites")
    if kind == "evaluation" and event["natural_residual_sq"] < 0:
        raise ValueError("natural_residual_sq")


@dataclass
class SiteProgress:
    """One site as the events tell it."""

    state: str = "not seen"  # then "in", "refuses", "lost" or "failed"
    round: int = 0  # the last one that it took part in
    rounds: int = 0  # that it took part in
    seen: float = 0.0  # time of its last good answer
    failure: str = ""  # what went wrong last, in words, while it is not in again
    failures: int = 0


@dataclass
class Progress:
    """A run, from the lines of its progress.jsonl."""

    sites: dict[str, SiteProgress]
    round: int = 0
    rounds: int = 0
    stopped: str | None = None  # None while a job is at work
    refusal: str = ""  # why the server does not run the federation
    jobs: int = 0
    last: Event | None = None  # the last evaluation
    first: Event | None = None
    time: float = 0.0  # of the newest event
    _times: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT + 1))

    @classmethod
    def of(cls, sites: Iterable[str]) -> "Progress":
        """Nothing has happened yet."""
        return cls({site: SiteProgress() for site in sites})

    @classmethod
    def kept(cls, path: Path, sites: Iterable[str]) -> "Progress":
        """What a run's file says; a line that a disk has damaged is passed over."""
        self = cls.of(sites)
        self.read(path.read_bytes().decode(errors="replace") if path.exists() else "")
        return self

    def read(self, text: str) -> list[Event]:
        """Take whole lines of progress.jsonl; returns their events."""
        events = []
        for line in text.splitlines():
            try:
                event = json.loads(line)
                _check(event)
                self.take(event)
                events.append(event)
            # Cut by a crash in the middle of a line, damaged, or made up by a server.
            except (ValueError, KeyError, TypeError, RecursionError):
                continue
        return events

    def take(self, event: Event) -> None:
        """One event."""
        kind, now = event["event"], event.get("time", 0.0)
        self.time = max(self.time, now)
        if kind == "start":
            self.rounds, self.round = event["rounds"], event["round"]
            self.stopped, self.jobs = None, self.jobs + 1
            self._times.clear()
        elif kind == "refused":  # by the server itself
            self.stopped, self.refusal = "refused", event["reason"]
        elif kind == "stop":
            self.stopped, self.round = event["reason"], event["round"]
        elif kind == "evaluation":
            self.last, self.first = event, self.first or event
        elif kind == "joined":
            self._in(event["site"], now)
        elif kind == "failure":
            self._failed(event)
        elif kind == "round":
            self.round = event["round"]
            self._times.append(now)
            for site in event["sites"]:
                self._in(site, now)
                self.sites[site].round = self.round
                self.sites[site].rounds += 1

    def _in(self, name: str, now: float) -> None:
        site = self.sites.setdefault(name, SiteProgress())
        site.state, site.failure, site.seen = "in", "", now

    def _failed(self, event: Event) -> None:
        site = self.sites.setdefault(event["site"], SiteProgress())
        site.failure, site.failures = event["reason"], site.failures + 1
        if event.get("lost"):
            site.state = "lost"
        else:
            site.state = "refuses" if event["call"] == "hello" else "failed"
            site.seen = event.get("time", site.seen)

    @property
    def seconds_a_round(self) -> float | None:
        """The mean of the last rounds, evaluations included."""
        if len(self._times) < 2:
            return None
        return (self._times[-1] - self._times[0]) / (len(self._times) - 1)

    def missing(self) -> dict[str, str]:
        """What keeps each site out, in words."""
        return {name: site.failure for name, site in self.sites.items() if site.failure}
