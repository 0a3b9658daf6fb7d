"""Runs that outlive their jobs: a job that ends early is continued by a new one.

An engine's job dies with its server or with one worker; the checkpoint and the sites' states do
not. Here a run is followed to its end over as many jobs as it takes. The engine is behind
`Engine`.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from compositefl.core.errors import CompositeFLError
from compositefl.core.files import in_turn, private_folder, privately
from compositefl.deployment.coordinator import FINAL
from compositefl.deployment.federation import Federation
from compositefl.deployment.progress import Event, Progress
from compositefl.deployment.trust import check_name

FRUITLESS = 3  # jobs in a row that ended by themselves without a new round: a run is given up
AWAY = 86400.0  # seconds that the server may be unreachable
RESTARTED = "the server was restarted"
IDLE = 15.0  # seconds that a server has nothing to do before a job counts as forgotten
Say = Callable[[str], None]
Show = Callable[[Progress, list[Event]], None]
WriteJob = Callable[[Federation, str, Path], Path]


class Engine(Protocol):
    """Jobs of an engine. Methods raise ConnectionError while its server cannot be reached."""

    def submit(self, job: Path) -> str:
        """Hand in a job; returns its id."""
        ...

    def state(self, job: str) -> str:
        """What the engine says of a job."""
        ...

    def system(self) -> tuple[set[str], bool]:
        """The connected sites, and whether the server is at work on some job."""
        ...

    def progress(self, job: str, start: int) -> tuple[str, int]:
        """Lines of a run's progress.jsonl from byte `start` on, and where the next ones start."""
        ...

    def abort(self, job: str) -> None:
        """End a job."""
        ...

    def download(self, job: str, folder: Path) -> Path:
        """Fetch the outcome of a job; the folder that holds it."""
        ...


class RunFolder:
    """What the administrator's machine knows of a run: its federation and its jobs."""

    def __init__(self, folder: Path, run: str):
        self.run = check_name("run", run)
        self.folder = folder / "runs" / run
        self.outcome = self.folder / "result"

    @classmethod
    @privately()
    def create(cls, folder: Path, run: str, federation: Federation) -> "RunFolder":
        """A new run; an existing one must be of the same federation."""
        self = cls(folder, run)
        private_folder(self.folder)
        path = self.folder / "federation.toml"
        if path.exists() and path.read_text() != federation.text:
            raise CompositeFLError(f"the run {run} exists with another federation; choose a name")
        path.write_text(federation.text)
        return self

    def federation(self) -> Federation:
        """The federation that the run is of."""
        path = self.folder / "federation.toml"
        if not path.exists():
            raise CompositeFLError(f"there is no run {self.run} in {self.folder.parent}")
        return Federation.read(path)

    def jobs(self) -> list[str]:
        """The jobs of the run, the last one last."""
        path = self.folder / "jobs.json"
        return json.loads(path.read_text()) if path.exists() else []

    def stopped(self) -> str | None:
        """Why the coordinator stopped, as the outcome in the folder says; None without one."""
        path = self.outcome / "config.json"
        return str(json.loads(path.read_text())["stopped"]) if path.exists() else None

    @privately()
    def add_job(self, job: str) -> None:
        """Note a new job of the run."""
        (self.folder / "jobs.json").write_text(json.dumps([*self.jobs(), job]))

    def last_job(self) -> str:
        """The job that was handed in last."""
        if not self.jobs():
            raise CompositeFLError(f"the run {self.run} has no job yet")
        return self.jobs()[-1]


class Feed:
    """The events of a run as they come in, over all its jobs."""

    def __init__(self, engine: Engine, run: RunFolder, show: Show = lambda *_: None):
        self.engine, self.show = engine, show
        self.progress = Progress.of(run.federation().sites)
        self.start = 0  # byte of progress.jsonl that comes next

    def pull(self, job: str) -> None:
        """Take what a running job has to tell."""
        while True:
            text, self.start = self.engine.progress(job, self.start)
            self.show(self.progress, self.progress.read(text))
            if not text:
                return

    def take(self, path: Path) -> None:
        """Take the rest of a file that an ended job has left."""
        data = path.read_bytes()
        rest, last = data[self.start :], data[data.rfind(b"\n", 0, -1) + 1 :]
        self.start += len(rest)
        if b'"refused"' in last:  # beside a job at work, whose file may be longer by now
            rest = last
        self.show(self.progress, self.progress.read(rest.decode(errors="replace")))


def follow(
    engine: Engine,
    run: RunFolder,
    write_job: WriteJob,
    say: Say,
    *,
    resume: bool = True,
    poll: float = 1.0,
    show: Show = lambda *_: None,
    patience: float = AWAY,
) -> Path:
    """Wait for the end of a run, over new jobs where one ended early; returns its outcome.

    show: gets what is known after every look, and what is new. patience: seconds that the server
    may be away.
    """
    federation, feed = run.federation(), Feed(engine, run, show)
    fruitless, reached = 0, -1
    while True:
        job = run.last_job()
        state = wait(engine, job, poll, feed, say, patience)
        stopped = None if state == RESTARTED else _outcome(engine, run, job, feed)
        if stopped in FINAL:
            return run.outcome
        reason, progress = stopped or state, feed.progress
        if reason == "refused" or progress.refusal:
            raise CompositeFLError(refusal(progress))
        if not resume:
            raise CompositeFLError(f"the run {run.run} stopped early ({reason}); resume goes on")
        if reason != RESTARTED:  # a server may come and go as often as it likes
            fruitless = 0 if progress.round > reached else fruitless + 1
        if fruitless >= FRUITLESS:
            raise CompositeFLError(
                f"the run {run.run} stopped early ({reason}), and {FRUITLESS} jobs brought no new "
                "round; see the logs of the server and the sites"
            )
        reached = max(reached, progress.round)
        say(f"the job ended early ({reason}) after round {progress.round}; a new job goes on")
        submit(engine, run, federation, write_job, say, patience)


def refusal(progress: Progress) -> str:
    """Who refuses the run and why, in one line."""
    if progress.refusal:
        return f"the server refuses: {progress.refusal}"
    reasons = [f"{site}: {reason}" for site, reason in progress.missing().items()]
    return (
        f"{len(reasons)} of {len(progress.sites)} sites refuse; when they are mended, resume goes "
        f"on. {'; '.join(reasons)}"
    )


def submit(
    engine: Engine,
    run: RunFolder,
    federation: Federation,
    write_job: WriteJob,
    say: Say = lambda _: None,
    patience: float = AWAY,
) -> str:
    """Hand in a job of a run once the server and enough sites are there."""
    with in_turn(run.folder / "lock"):  # two commands at once
        job = write_job(federation, run.run, run.folder / "jobs")
    end, told = time.monotonic() + patience, ""
    while True:
        try:
            there = engine.system()[0] & set(federation.sites)
            if len(there) >= federation.minimum:
                with in_turn(run.folder / "lock"):
                    run.add_job(handed_in := engine.submit(job))
                return handed_in
            away = [site for site in federation.sites if site not in there]
            waiting = (
                f"waiting for sites: {len(there)} of at least {federation.minimum} connected, "
                f"not {', '.join(away)}"
            )
        except ConnectionError as error:
            waiting = f"waiting for the server: {error}"
        if time.monotonic() > end:
            raise CompositeFLError(waiting)
        if waiting != told:
            say(waiting)
            told = waiting
        time.sleep(1.0)


def wait(
    engine: Engine,
    job: str,
    poll: float,
    feed: Feed | None = None,
    say: Say = lambda _: None,
    patience: float = AWAY,
) -> str:
    """Wait for the end of one job; its state.

    A job that its server forgot in a restart is listed as running for ever: it is aborted when
    the server is at work on nothing.
    """
    idle_since, away_since = 0.0, 0.0
    while True:
        try:
            if feed is not None and feed.progress.stopped is None:
                feed.pull(job)
            state = engine.state(job)
            if away_since:
                say("the server is back")
            away_since = 0.0
            if state.startswith("FINISHED"):
                return state
            busy = state != "RUNNING" or engine.system()[1]
            idle_since = 0.0 if busy else idle_since or time.monotonic()
            if idle_since and time.monotonic() - idle_since > IDLE:
                with suppress(ConnectionError, CompositeFLError):  # it does not run
                    engine.abort(job)
                return RESTARTED
        except ConnectionError as error:
            if not away_since:
                say(f"the server cannot be reached: {error}")
                away_since = time.monotonic()
            if time.monotonic() - away_since > patience:
                raise CompositeFLError(
                    f"the server has been away for {patience:g} s: {error}"
                ) from error
        time.sleep(poll)


@privately()
def _outcome(engine: Engine, run: RunFolder, job: str, feed: Feed) -> str | None:
    """Why the coordinator stopped, with the outcome now in the run's folder; None without one."""
    try:
        left = engine.download(job, run.folder / "downloads")
    except (ConnectionError, CompositeFLError):
        return None
    feed.take(left / "progress.jsonl")
    if not (left / "config.json").exists():
        return None
    if run.outcome.exists():
        for old in run.outcome.iterdir():
            old.unlink()
    run.outcome.mkdir(parents=True, exist_ok=True)
    for path in left.iterdir():
        (run.outcome / path.name).write_bytes(path.read_bytes())
    return run.stopped()
