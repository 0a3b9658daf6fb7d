"""A run as it goes: a live table on a terminal, lines for a log."""

import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from compositefl.cli.wording import plain
from compositefl.deployment.progress import Event, Progress

WIDTH = 80
COLORS = {"in": "green", "refuses": "red", "failed": "yellow", "lost": "red", "not seen": "dim"}


class Watching:
    """Shows `Progress` as it changes. A failure is told in a line once, until it changes."""

    def __init__(self, name: str, live: bool | None = None):
        self.name = name
        self.console = Console(highlight=False, soft_wrap=True)
        self.live = sys.stdout.isatty() if live is None else live
        self.told: dict[str, str] = {}  # what was last said of each site
        self._live: Live | None = None

    @contextmanager
    def open(self) -> Iterator["Watching"]:
        """While this is open the table stands at the bottom of the terminal."""
        if not self.live:
            yield self
            return
        with Live(console=self.console, auto_refresh=False, transient=False) as self._live:
            yield self
        self._live = None

    def say(self, line: str) -> None:
        """A line of the log, with the time of day."""
        self.console.print(f"{datetime.now():%H:%M:%S} {plain(line)}", markup=False)

    def show(self, progress: Progress, events: list[Event]) -> None:
        """What is known now, and what is new."""
        for event in events:
            self._tell(event)
        if self._live is not None:
            self._live.update(picture(self.name, progress), refresh=True)

    def _tell(self, event: Event) -> None:
        kind = event["event"]
        if kind == "failure":
            site, reason = event["site"], event["reason"]
            if self.told.get(site) != reason:
                self.told[site] = reason
                self.say(f"round {event['round']}: {site}: {reason}")
        elif kind == "joined" and self.told.pop(event["site"], None) is not None:
            self.say(f"round {event['round']}: {event['site']} is back")
        elif kind == "evaluation" and not self.live:
            self.say(evaluation(event))


def evaluation(event: Event) -> str:
    """An evaluation in one line."""
    accuracy = f", accuracy {event['accuracy']:.3f}" if "accuracy" in event else ""
    return (
        f"round {event['round']}: psi {event['psi']:.5f}, natural residual^2 "
        f"{event['natural_residual_sq']:.2e}{accuracy}, {event['sites']} sites"
    )


def headline(name: str, progress: Progress) -> str:
    """How far a run is."""
    words = [f"{name}: round {progress.round} of {progress.rounds or '?'}"]
    if progress.seconds_a_round is not None:
        words.append(f"{progress.seconds_a_round:.2f} s a round")
    if progress.last is not None:
        words.append(f"psi {progress.last['psi']:.5f}")
        words.append(f"residual {progress.last['natural_residual_sq'] ** 0.5:.1e}")
    if progress.jobs > 1:
        words.append(f"job {progress.jobs}")
    if progress.stopped is not None:
        words.append(f"stopped: {progress.stopped}")
    return ", ".join(words)


def picture(name: str, progress: Progress, now: float | None = None) -> Group:
    """The sites under a headline, and what went wrong at some of them; 80 columns wide."""
    now = time.time() if now is None else now
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("site", "state"):
        table.add_column(column, no_wrap=True)
    table.add_column("rounds", justify="right", no_wrap=True)
    table.add_column("last seen", justify="right", no_wrap=True)
    for site, about in progress.sites.items():
        table.add_row(
            Text(plain(site)),  # no markup, and no control characters
            Text(about.state, style=COLORS.get(about.state, "")),
            str(about.rounds),
            ago(now - about.seen) if about.seen else "-",
        )
    wrong = [_wrapped(f"{site}: {reason}") for site, reason in progress.missing().items()]
    return Group(_wrapped(headline(name, progress)), table, *wrong)


def _wrapped(line: str) -> Text:
    return Text("\n".join(textwrap.wrap(plain(line), WIDTH)))


def print_picture(name: str, progress: Progress) -> None:
    """The table, once."""
    Console(highlight=False).print(picture(name, progress))


def ago(seconds: float) -> str:
    """A span of time in one word."""
    seconds = max(0.0, seconds)
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
