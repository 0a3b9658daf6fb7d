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
from typing import Any, Protocol

from compositefl.core.errors import CompositeFLError
from compositefl.deployment.coordinator import FINAL
from compositefl.deployment.federation import Federation
from compositefl.deployment.trust import check_name

FRUITLESS = 3  # jobs in a row without a new round before a run is given up
AWAY = 600.0  # seconds that the server may be unreachable


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
    def create(cls, folder: Path, run: str, federation: Federation) -> "RunFolder":
        """A new run; an existing one must be of the same federation."""
        self = cls(folder, run)
        self.folder.mkdir(parents=True, exist_ok=True)
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

    def add_job(self, job: str) -> None:
        """Note a new job of the run."""
        (self.folder / "jobs.json").write_text(json.dumps([*self.jobs(), job]))

    def last_job(self) -> str:
        """The job that was handed in last."""
        if not self.jobs():
            raise CompositeFLError(f"the run {self.run} has no job yet")
        return self.jobs()[-1]


def follow(
    engine: Engine,
    run: RunFolder,
    write_job: Callable[[Federation, str, Path], Path],
    say: Callable[[str], None],
    *,
    resume: bool = True,
    poll: float = 5.0,
    look: Callable[[], bool] = lambda: False,
) -> Path:
    """Wait for the end of a run, over new jobs where one ended early; returns its outcome.

    look: a quicker way to know that a job has come to its end, where there is one.
    """
    federation = run.federation()
    fruitless, reached = 0, -1
    while True:
        job = run.last_job()
        state = wait(engine, job, poll, look)
        found, round_ = _outcome(engine, run, job)
        if found is not None and found["stopped"] in FINAL:
            return run.outcome
        reason = found["stopped"] if found is not None else state
        if not resume:
            raise CompositeFLError(f"the run {run.run} stopped early ({reason}); resume goes on")
        fruitless = 0 if round_ > reached else fruitless + 1
        if fruitless >= FRUITLESS:
            raise CompositeFLError(
                f"the run {run.run} stopped early ({reason}), and {FRUITLESS} jobs brought no new "
                "round; see the logs of the server and the sites"
            )
        reached = max(reached, round_)
        say(f"the job ended early ({reason}) after round {max(round_, 0)}; a new job goes on")
        submit(engine, run, federation, write_job, say)


def submit(
    engine: Engine,
    run: RunFolder,
    federation: Federation,
    write_job: Callable[[Federation, str, Path], Path],
    say: Callable[[str], None] = lambda _: None,
) -> str:
    """Hand in a job of a run once the server and enough sites are there."""
    job = write_job(federation, run.run, run.folder / "jobs")
    end, told = time.monotonic() + AWAY, ""
    while True:
        try:
            there = engine.system()[0] & set(federation.sites)
            if len(there) >= federation.minimum:
                run.add_job(engine.submit(job))
                return run.last_job()
            waiting = f"waiting for sites: {len(there)} of at least {federation.minimum} connected"
        except ConnectionError as error:
            waiting = f"waiting for the server: {error}"
        if time.monotonic() > end:
            raise CompositeFLError(waiting)
        if waiting != told:
            say(waiting)
            told = waiting
        time.sleep(2.0)


def wait(engine: Engine, job: str, poll: float, look: Callable[[], bool]) -> str:
    """Wait for the end of one job; its state.

    A job that its server forgot in a restart is listed as running for ever: it is aborted when
    the server is at work on nothing.
    """
    idle, polls, last = 0, 0, time.monotonic()
    while True:
        polls += 1
        end = time.monotonic() + poll
        while time.monotonic() < end and not look():
            time.sleep(0.2)
        try:
            state = engine.state(job)
            if state.startswith("FINISHED"):
                return state
            if idle or polls % 4 == 0:  # now and then, and again when there is a suspicion
                idle = idle + 1 if state == "RUNNING" and not engine.system()[1] else 0
            if idle > 2:
                with suppress(ConnectionError):  # some servers refuse to abort what does not run
                    engine.abort(job)
                return "the server was restarted"
            last = time.monotonic()
        except ConnectionError as error:
            idle = 1  # the server may come back without the job
            if time.monotonic() - last > AWAY:
                raise CompositeFLError(
                    f"the server has been away for {AWAY:g} s: {error}"
                ) from error


def _outcome(engine: Engine, run: RunFolder, job: str) -> tuple[dict[str, Any] | None, int]:
    """(the outcome that a job left in the run's folder or None, the last round that it reached)."""
    try:
        left = engine.download(job, run.folder / "downloads")
    except (ConnectionError, CompositeFLError):
        return None, -1
    events = [json.loads(line) for line in (left / "progress.jsonl").read_text().splitlines()]
    round_ = max((event.get("round", -1) for event in events), default=-1)
    if not (left / "config.json").exists():
        return None, round_
    if run.outcome.exists():
        for old in run.outcome.iterdir():
            old.unlink()
    run.outcome.mkdir(parents=True, exist_ok=True)
    for path in left.iterdir():
        (run.outcome / path.name).write_bytes(path.read_bytes())
    return json.loads((run.outcome / "config.json").read_text()), round_
