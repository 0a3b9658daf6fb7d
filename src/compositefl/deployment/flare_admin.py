"""An administrator's session with a FLARE server: jobs, sites, and the progress of a run.

One connection serves all questions: FLARE's own command line would start a process of seconds for
each of them. Every method says which command of FLARE does the same.
"""

import logging
import shlex
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import TypeVar

from nvflare.fuel.flare_api.api_spec import (
    AuthorizationError,
    InternalError,
    InvalidJobDefinition,
    JobNotDone,
    JobNotFound,
    JobNotRunning,
    NoReply,
)
from nvflare.fuel.flare_api.flare_api import Session

from compositefl.core.errors import CompositeFLError
from compositefl.core.files import privately
from compositefl.deployment.flare import ADMIN, FORWARD, PROGRESS, STATE
from compositefl.deployment.flare_nodes import Say

T = TypeVar("T")
PATIENCE = 10.0  # seconds for a connection
NOT_YET = (JobNotRunning, JobNotFound, NoReply, InternalError)  # a job that does not answer
LOST = (OSError, RuntimeError)  # after these, and all of FLARE's own, a new session may help


class Admin:
    """Jobs, with the startup kit of an administrator.

    Methods raise ConnectionError while the server cannot be reached, and connect anew the next
    time. Close it: an open session keeps the process alive.
    """

    def __init__(self, kit: Path, say: Say = print):
        self.kit = kit.resolve()
        self.say = say
        self._session: Session | None = None

    def __enter__(self) -> "Admin":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @privately()  # FLARE writes its signature and certificate into the job's folder
    def submit(self, job: Path) -> str:
        """Hand in a job; returns its id."""
        self._told("job", "submit", "-j", str(job))
        return str(self._ask(lambda session: session.submit_job(str(job.resolve()))))

    def state(self, job: str) -> str:
        """What FLARE says of a job, such as RUNNING or FINISHED:COMPLETED."""
        try:
            return str(self._ask(lambda session: session.get_job_meta(job))["status"])
        except JobNotFound:
            return "FINISHED:UNKNOWN"

    def system(self) -> tuple[set[str], bool]:
        """The connected sites, and whether the server is at work on some job."""
        found = self._ask(lambda session: session.get_system_info())
        return {client.name for client in found.client_info}, bool(found.job_info)

    def progress(self, job: str, start: int) -> tuple[str, int]:
        """Lines of a run's progress.jsonl from byte `start` on, and where the next ones start.

        A running job answers; nothing new where it does not run (yet).
        """
        try:
            got = self._ask(
                lambda session: session.do_app_command(job, FORWARD, {"start": start}), NOT_YET
            )
            return str(got["text"]), int(got["next"])
        except NOT_YET:
            return "", start

    def abort(self, job: str) -> None:
        """End a job."""
        self._told("job", "abort", job)
        self._ask(lambda session: session.abort_job(job))

    def download(self, job: str, folder: Path) -> Path:
        """Fetch the outcome of a job: history.csv, model.safetensors, config.json, progress."""
        self._told("job", "download", job, "-o", str(folder))
        shutil.rmtree(folder / job, ignore_errors=True)
        try:
            left = Path(
                self._ask(
                    lambda session: session.download_job_result(job, str(folder)), (JobNotDone,)
                )
            )
        except JobNotFound:
            raise CompositeFLError(f"the server does not know the job {job}") from None
        except JobNotDone:  # listed as running for ever, after a restart of its server
            raise CompositeFLError(f"the job {job} has left no outcome") from None
        found = sorted(left.rglob(f"{STATE}/{PROGRESS}"))
        if not found:
            raise CompositeFLError(f"the job {job} has left no outcome")
        return found[0].parent

    def disable(self, site: str) -> None:
        """Let a site connect no more, whatever certificate it shows."""
        self._told("system", "disable-client", site)
        self._ask(lambda session: session.disable_client(site))

    def enable(self, site: str) -> None:
        """Let a disabled site connect again."""
        self._told("system", "enable-client", site)
        self._ask(lambda session: session.enable_client(site))

    def close(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                session.close()

    def _told(self, *words: str) -> None:
        self.say(f"$ {shlex.join(['nvflare', *words, '--startup-kit', str(self.kit)])}")

    def _ask(
        self, question: Callable[[Session], T], passing: tuple[type[Exception], ...] = ()
    ) -> T:
        """The answer to a question; what FLARE raises becomes an error of Python or of ours.

        passing: errors that the caller wants to see as they are.
        """
        try:
            if self._session is None:
                self._session = self._connect()
            return question(self._session)
        except (AuthorizationError, InvalidJobDefinition) as error:
            raise CompositeFLError(f"the server refuses: {error}") from error
        except (JobNotFound, *passing):
            raise
        except Exception as error:
            if not isinstance(error, LOST) and not type(error).__module__.startswith("nvflare"):
                raise
            self.close()
            raise ConnectionError(str(error) or type(error).__name__) from error

    def _connect(self) -> Session:
        _off_the_terminal(self.kit)
        session = Session(username=ADMIN, startup_path=str(self.kit))
        session.api.auto_login_max_tries = 1
        session.api._print_hci = lambda _: None
        try:
            session.try_connect(PATIENCE)
        except Exception:
            with suppress(Exception):
                session.close()
            raise
        return session


@cache
def _off_the_terminal(kit: Path) -> None:
    """FLARE's own words about a connection go into a file of the kit."""
    log = logging.getLogger("nvflare")
    handler = RotatingFileHandler(kit / "admin.log", maxBytes=2**20, backupCount=1, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(name)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.propagate = False
