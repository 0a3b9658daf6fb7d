"""NVIDIA FLARE 2.9: the only file that knows it.

In the processes of a job: `Server` and `Client`, named by a job that ships no code. For the people:
`provision`, `start`, `stop`, and `Admin` with submit, state, abort and download. These run
FLARE's own command line and say which command.
"""

import json
import logging
import os
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from nvflare.collab import CollabRecipe, collab

from compositefl.core.errors import CompositeFLError
from compositefl.deployment.coordinator import Coordinator, write_progress
from compositefl.deployment.federation import Federation
from compositefl.deployment.site import Site
from compositefl.deployment.transport import Failure, failure_text
from compositefl.deployment.trust import check_name, server_trust
from compositefl.deployment.worker import Worker

Say = Callable[[str], None]
STATE = "compositefl"  # folder of a node that holds what must survive a job
PROGRESS = "progress.jsonl"
SERVER_FILE = "server.toml"  # in local/ of the server's kit: what it accepts
STREAMED = 2**20  # bytes from which on a message is streamed
ADMIN = "admin@coordinator.org"
SERVER_ORG = "coordinator"
ALLOWED = [  # all that a job may name at a node
    "nvflare.collab.runtime.controller.CollabController",
    "nvflare.collab.runtime.executor.CollabExecutor",
    "compositefl.deployment.flare.Server",
    "compositefl.deployment.flare.Client",
]


# --- inside a job ------------------------------------------------------------------------------


class Calls:
    """The transport: group calls of the Collab API from the job's server process."""

    def call(
        self, sites: Iterable[str], method: str, payload: bytes, timeout: float
    ) -> dict[str, bytes | Failure]:
        """As `Transport.call`; a site that was not there when the job began counts as lost."""
        present = {proxy.name for proxy in collab.context.clients}
        answers: dict[str, bytes | Failure] = {
            site: Failure("not connected when this job began", lost=True)
            for site in sites
            if site not in present
        }
        asked = [site for site in sites if site in present]
        if not asked:
            return answers
        got = collab.get_clients(asked)(timeout=timeout).handle_call(method, to_wire(payload))
        for site, answer in got:
            answers[site] = Failure(answer) if isinstance(answer, str) else from_wire(answer)
        for site, error in got.failures.items():
            lost = getattr(error, "cause_type", "") == "TimeoutError" or "rc=" in str(error)
            answers[site] = Failure(str(getattr(error, "cause", error)), lost)
        return answers

    def close(self) -> None:
        """The job closes the connection, not the transport."""


def to_wire(payload: bytes) -> Any:
    """A long message as an array: FLARE streams arrays, once for all sites, but not bytes."""
    return np.frombuffer(payload, np.uint8) if len(payload) > STREAMED else payload


def from_wire(received: Any) -> Any:
    """The bytes of a message; anything else stays what it is, to be refused."""
    if isinstance(received, np.ndarray) and received.dtype == np.uint8:
        return received.tobytes()
    return received


class Server:
    """The coordinator in the server's process of a job."""

    def __init__(self, federation: str, run: str):
        self.federation = federation  # FLARE writes these two into the job by their names
        self.run = run

    @collab.main
    def main(self) -> None:
        """Run to the end; the checkpoint outlives the job, the result comes with its download."""
        root = Path(collab.workspace.get_root_dir())
        folder = root / STATE
        outcome = Path(collab.workspace.get_run_dir(collab.fl_ctx.get_job_id())) / STATE
        there = write_progress(outcome / PROGRESS)
        try:
            federation, run = admit(root, self.federation, self.run)
        except CompositeFLError as error:
            there({"event": "refused", "reason": str(error)})
            raise
        here = write_progress(folder / run / PROGRESS)

        def report(event: dict[str, Any]) -> None:
            here(event)
            there(event)

        Coordinator(federation, Calls(), folder, run, report).run().save(outcome)


def admit(root: Path, text: Any, run: Any) -> tuple[Federation, str]:
    """What a job asks the server in the kit `root` to run, if its own server.toml accepts it.

    A job comes from whoever holds an administrator's key: all that it says is checked first.
    """
    name = check_name("run", run)
    return server_trust(root / "local" / SERVER_FILE).admit(text, "the server", SERVER_FILE), name


class Client:
    """The worker in a site's process of a job, made at the first call.

    What goes wrong is sent as one line: FLARE itself would send the traceback too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: Worker | None = None

    @collab.publish
    def handle_call(self, method: str, payload: Any) -> Any:
        """The reply to one call of the coordinator."""
        try:
            with self._lock:
                if self._worker is None:
                    root = Path(collab.workspace.get_root_dir())
                    site = Site.read(root / "local" / "site.toml")
                    if site.name != collab.site_name:
                        raise CompositeFLError(
                            f"site.toml is of {site.name}, the certificate of {collab.site_name}"
                        )
                    self._worker = Worker(site, root / STATE)
            return to_wire(self._worker.handle(method, from_wire(payload)))
        except Exception as error:
            logging.getLogger(__name__).exception("call %s failed", method)
            return failure_text(error)


def write_job(federation: Federation, run: str, folder: Path) -> Path:
    """A job that names `Server` and `Client` of the installed library and ships no code."""
    recipe = CollabRecipe(
        run,
        server=Server(federation.text, run),
        client=Client(),
        min_clients=federation.minimum,
        sync_task_timeout=max(60, int(federation.network.join_timeout)),
    )
    recipe.export(str(folder))
    job = folder / run
    for custom in job.rglob("custom"):
        shutil.rmtree(custom)
    return job


# --- nodes -------------------------------------------------------------------------------------


def provision(
    federation: Federation, folder: Path, host: str, port: int, say: Say = print
) -> dict[str, Path]:
    """Make certificates and startup kits; returns the kit of each participant.

    Every kit gets a policy that refuses shipped code and names the few classes that a job may use.
    """
    folder.mkdir(parents=True, exist_ok=True)
    people: list[dict[str, Any]] = [
        {"name": host, "type": "server", "org": SERVER_ORG, "fed_learn_port": port},
        *({"name": s, "type": "client", "org": _org(s)} for s in federation.sites),
        {"name": ADMIN, "type": "admin", "org": SERVER_ORG, "role": "lead"},
    ]
    impl = "nvflare.lighter.impl"
    project = {
        "api_version": 3,
        "name": federation.name,
        "description": "compositefl",
        "participants": people,
        "builders": [
            {
                "path": f"{impl}.workspace.WorkspaceBuilder",
                "args": {"template_file": ["master_template.yml"]},
            },
            {
                "path": f"{impl}.static_file.StaticFileBuilder",
                "args": {"config_folder": "config"},
            },
            {"path": f"{impl}.cert.CertBuilder"},
            {"path": f"{impl}.signature.SignatureBuilder"},
        ],
    }
    path = folder / "project.yml"
    path.write_text(json.dumps(project, indent=2) + "\n")  # JSON is YAML
    _nvflare(["provision", "-p", str(path), "-w", str(folder), "--force"], say, 120)
    made = sorted((folder / federation.name).glob("prod_*"))[-1]
    kits = {person["name"]: made / person["name"] for person in people}
    for name, kit in kits.items():
        if name != ADMIN:
            _set_policy(kit)
    accept = f'accept = ["{federation.hash}"]  # sha256 of federations that this server runs\n'
    (kits[host] / "local" / SERVER_FILE).write_text(
        accept + "modules = []  # of your own, whose functions a federation may name\n"
    )
    return kits


def _org(site: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in site)


def _set_policy(kit: Path) -> None:
    """No shipped code, no streamed logs, only our classes."""
    local = kit / "local"
    resources = json.loads((local / "resources.json.default").read_text())
    resources["class_allow_list"] = ALLOWED
    if "allow_log_streaming" in resources:
        resources["allow_log_streaming"] = False
    resources["components"] = [
        part for part in resources["components"] if part["id"] != "site_log_streamer"
    ]
    (local / "resources.json").write_text(json.dumps(resources, indent=2) + "\n")
    rights = json.loads((local / "authorization.json.default").read_text())
    lead = rights["permissions"]["lead"] | {"byoc": "none", "shell_commands": "none"}
    rights["permissions"] |= {"lead": lead, "project_admin": lead}
    (local / "authorization.json").write_text(json.dumps(rights, indent=2) + "\n")


def environment() -> dict[str, str]:
    """The environment of FLARE's processes: this Python first."""
    here = str(Path(sys.executable).parent)
    return os.environ | {"PATH": here + os.pathsep + os.environ.get("PATH", "")}


def _keep_files_inside(kit: Path) -> None:
    """FLARE wants absolute paths for the server's files, and a kit may have been moved."""
    path = kit / "local" / "resources.json"
    resources = json.loads(path.read_text())
    for part in resources["components"]:
        if part["id"] == "job_manager":
            part["args"]["uri_root"] = str(kit / "jobs-storage")
    if "snapshot_persistor" in resources:
        storage = resources["snapshot_persistor"]["args"]["storage"]["args"]
        storage["root_dir"] = str(kit / "snapshot-storage")
    path.write_text(json.dumps(resources, indent=2) + "\n")


def start(kit: Path, say: Say = print, patience: float = 60.0) -> int:
    """Start the node of a kit as a process of its own; returns its id once the node is up."""
    kit = kit.resolve()
    script = kit / "startup" / "sub_start.sh"
    if not script.is_file():
        raise CompositeFLError(f"{kit} is not the startup kit of a server or a site")
    if running(kit) is not None:
        raise CompositeFLError(f"{kit.name} is already running")
    _keep_files_inside(kit)
    command = ["bash", str(script), "--once"]
    say(f"$ {shlex.join(command)}")
    began, end = time.time(), time.monotonic() + patience
    with (kit / "node.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment(),
        )
    (kit / "node.pid").write_text(f"{process.pid} {psutil.Process(process.pid).create_time()}")
    while not _writes(kit / "log.txt", began) and time.monotonic() < end:
        if process.poll() is not None:
            raise CompositeFLError(f"{kit.name} ended at once; see the end of {kit / 'node.log'}")
        time.sleep(0.1)
    return process.pid


def _writes(log: Path, since: float) -> bool:
    """Whether a node has written to its log."""
    return log.exists() and log.stat().st_mtime >= since


def running(kit: Path) -> psutil.Process | None:
    """The process that `start` started for a kit, if it still runs."""
    try:
        pid, created = (kit / "node.pid").read_text().split()
        process = psutil.Process(int(pid))
        alive = abs(process.create_time() - float(created)) < 1 and process.is_running()
        return process if alive and process.status() != psutil.STATUS_ZOMBIE else None
    except (OSError, ValueError, psutil.NoSuchProcess):
        return None


def stop(kit: Path, say: Say = print, patience: float = 10.0) -> None:
    """End the node of a kit and the processes of its jobs."""
    process = running(kit)
    if process is not None:
        family = [process, *process.children(recursive=True)]
        say(f"$ kill {' '.join(str(p.pid) for p in family)}   # {kit.name}")
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.terminate()
        for member in psutil.wait_procs(family, timeout=patience)[1]:
            with suppress(psutil.NoSuchProcess):
                member.kill()
    (kit / "node.pid").unlink(missing_ok=True)


def _nvflare(words: list[str], say: Say, timeout: float) -> str:
    """Run FLARE's command line; its output, or an error in one line."""
    command = [sys.executable, "-m", "nvflare.cli", *words]
    say(f"$ {shlex.join(['nvflare', *words])}")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout, env=environment()
        )
    except subprocess.TimeoutExpired:
        raise ConnectionError(f"nvflare {words[0]} gave no answer in {timeout:g} s") from None
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise ConnectionError(f"nvflare {' '.join(words[:2])}: {' '.join(lines[-4:])}")
    return done.stdout


# --- jobs --------------------------------------------------------------------------------------


class Admin:
    """Jobs, with the startup kit of an administrator."""

    def __init__(self, kit: Path, say: Say = print):
        self.kit = kit
        self.say = say

    def submit(self, job: Path) -> str:
        """Hand in a job; returns its id."""
        return str(self._job("submit", "-j", str(job))["job_id"])

    def state(self, job: str) -> str:
        """What FLARE says of a job, such as RUNNING or FINISHED:COMPLETED."""
        return str(self._job("meta", job)["status"])

    def system(self) -> tuple[set[str], bool]:
        """The connected sites, and whether the server is at work on some job."""
        kit = ["--startup-kit", str(self.kit)]
        status = _answer(_nvflare(["--format", "json", "system", "status", *kit], self.say, 120))
        return {client["client_name"] for client in status["clients"]}, bool(status["jobs"])

    def abort(self, job: str) -> None:
        """End a job."""
        self._job("abort", job, "--force")

    def download(self, job: str, folder: Path) -> Path:
        """Fetch the outcome of a job: history.csv, model.safetensors, config.json, progress."""
        self._job("download", job, "-o", str(folder), "--force")
        found = sorted((folder / job).rglob(f"{STATE}/{PROGRESS}"))
        if not found:
            raise CompositeFLError(f"the job {job} has left no outcome")
        return found[0].parent

    def _job(self, *words: str) -> dict[str, Any]:
        kit = ["--startup-kit", str(self.kit)]
        return _answer(_nvflare(["--format", "json", "job", *words, *kit], self.say, 120))


def _answer(out: str) -> dict[str, Any]:
    """The data in what FLARE's command line prints."""
    answer = json.loads(out[out.index("{") :])
    return answer.get("data", answer)
