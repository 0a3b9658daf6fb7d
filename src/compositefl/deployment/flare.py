"""NVIDIA FLARE 2.9, which only the files flare*.py know.

In the processes of a job: `Server` and `Client`, named by a job that ships no code. For the people:
`provision` here, `start` and `stop` (flare_nodes.py), `Admin` (flare_admin.py). They say which
command of FLARE they run, or which does the same.
"""

import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.collab import collab
from nvflare.fuel.f3.mpm import MainProcessMonitor

from compositefl.core.errors import CompositeFLError
from compositefl.core.files import PRIVATE, make_private, private_folder, privately
from compositefl.core.types import PlainValues
from compositefl.deployment.coordinator import coordinator_class, write_progress
from compositefl.deployment.federation import Federation
from compositefl.deployment.flare_kits import (
    all_or_nothing,
    check_participants,
    forget,
    write_log_config,
)
from compositefl.deployment.flare_nodes import (
    Say,
    launch_all,
    listens,
    nvflare,
    refused,
    running,
    start,
    start_all,
    stop,
    stop_all,
)
from compositefl.deployment.health import FILE as METRICS
from compositefl.deployment.health import report_health
from compositefl.deployment.progress import Event, Progress
from compositefl.deployment.site import Site
from compositefl.deployment.transport import Failure, failure_text
from compositefl.deployment.trust import check_name, server_trust
from compositefl.deployment.worker import Worker

__all__ = [
    "Client",
    "Server",
    "launch_all",
    "listens",
    "provision",
    "refused",
    "running",
    "start",
    "start_all",
    "stop",
    "stop_all",
    "write_job",
]

# A job's messages are bytes and arrays. Where PyTorch is installed, FLARE would load it in every
# process of a job to be ready for tensors: seconds, and memory.
sys.modules.setdefault("nvflare.app_opt.pt", None)  # type: ignore[arg-type]

STATE = "compositefl"  # folder of a node that holds what must survive a job
PROGRESS = "progress.jsonl"
SERVER_FILE = "server.toml"  # in local/ of the server's kit: what it accepts
FORWARD = "compositefl.progress"  # an administrator's question to a running job
CHUNK = 2**18  # bytes of progress in one answer
ORPHAN = 60.0  # seconds in which a job whose server has died ends
ASKING = 0.5  # seconds between two questions of a site for a job's next step, 2 by default
GRACE = 0.2  # seconds before a process of an ended job is gone, 3 by default
STREAMED = 2**20  # bytes from which on a message is streamed
ADMIN = "admin@coordinator.org"
SERVER_ORG = "coordinator"
SERVER = "server"  # what the Collab API calls the coordinator in a job, whatever its machine's name
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


def to_wire(payload: bytes) -> bytes | np.ndarray:
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
        os.umask(PRIVATE)
        _end_soon()
        root = Path(collab.workspace.get_root_dir())
        folder = root / STATE
        outcome = Path(collab.workspace.get_run_dir(collab.fl_ctx.get_job_id())) / STATE
        there = write_progress(outcome / PROGRESS)
        try:
            federation, run = admit(root, self.federation, self.run)
            kept = folder / run / PROGRESS  # of all jobs of the run
            here = write_progress(kept)
            if kept.exists():
                shutil.copyfile(kept, outcome / PROGRESS)
            collab.fl_ctx.get_engine().register_app_command(FORWARD, _forward, kept)
            health = report_health(
                kept.with_name(METRICS), run, Progress.kept(kept, federation.sites)
            )

            def report(event: Event) -> None:
                stamped = {"time": round(time.time(), 3), **event}
                here(stamped)
                there(stamped)
                health(stamped)

            kind = coordinator_class(federation)
            server = kind(federation, Calls(), folder, run, report, ORPHAN)
            server.run().save(outcome)
        except CompositeFLError as error:
            there({"event": "refused", "reason": str(error)})
            raise


def admit(root: Path, text: object, run: object) -> tuple[Federation, str]:
    """What a job asks the server in the kit `root` to run, if its own server.toml accepts it.

    A job comes from whoever holds an administrator's key: all that it says is checked first.
    """
    name = check_name("run", run)
    return server_trust(root / "local" / SERVER_FILE).admit(text, "the server", SERVER_FILE), name


def _forward(_topic: str, asked: object, _fl_ctx: object, path: Path) -> PlainValues:
    """What the administrator gets of the progress: whole lines from byte `start` on."""
    start = asked.get("start") if isinstance(asked, dict) else 0
    start = start if isinstance(start, int) and start >= 0 else 0
    if not path.exists():
        return {"text": "", "next": start}
    with path.open("rb") as file:
        file.seek(start)
        lines = file.read(CHUNK)
    lines = lines[: lines.rfind(b"\n") + 1]
    return {"text": lines.decode(errors="replace"), "next": start + len(lines)}


class Client:
    """The worker in a site's process of a job, made at the first call.

    What goes wrong is sent as one line: FLARE itself would send the traceback too.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._worker: Worker | None = None

    @collab.publish
    def handle_call(self, method: str, payload: Any) -> Any:
        """The reply to one call of the coordinator: FLARE lets sites of a job call each other."""
        try:
            if collab.caller != SERVER:
                raise CompositeFLError(f"a site answers the server alone, not {collab.caller}")
            with self._lock:
                if self._worker is None:
                    os.umask(PRIVATE)
                    _end_soon()
                    root = Path(collab.workspace.get_root_dir())
                    site = Site.read(root / "local" / "site.toml")
                    if site.name != collab.site_name:
                        raise CompositeFLError(
                            f"site.toml is of {site.name}, the certificate of {collab.site_name}"
                        )
                    self._worker = Worker(site, root / STATE)
            return to_wire(self._worker.handle(method, from_wire(payload)))
        except Exception as error:
            logging.getLogger(__name__).exception("call %.80r failed", method)  # the server's word
            return failure_text(error)


def _end_soon() -> None:
    """Let this process go when its connections are closed; FLARE would sleep first."""
    shut_down = getattr(MainProcessMonitor, "_start_shutdown", None)
    if shut_down is not None and not hasattr(shut_down, "soon"):

        def soon(_cls: object, _grace: float, cleanup: float) -> None:
            shut_down(GRACE, cleanup)

        soon.soon = True  # type: ignore[attr-defined]
        MainProcessMonitor._start_shutdown = classmethod(soon)


@privately()
def write_job(federation: Federation, run: str, folder: Path) -> Path:
    """A job that names `Server` and `Client` of the installed library and ships no code."""
    from nvflare.collab import CollabRecipe  # loads much that the processes of a job do not need

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
    path = job / "app" / "config" / "config_fed_server.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"server": {"task_request_interval": ASKING}}, indent=2))
    return job


# --- nodes -------------------------------------------------------------------------------------


@privately()
def provision(
    federation: Federation,
    folder: Path,
    host: str,
    port: int,
    say: Say = print,
    keep: Collection[str] = (),
    authority: bool = False,
) -> dict[str, Path]:
    """Make certificates and startup kits; returns the kit of each participant.

    Every kit gets a policy that refuses shipped code and names the few classes that a job may use.
    Where there are kits already, all but those of `keep` get new keys and certificates; with
    `authority` those are of a new authority, and nothing of the old one is good any more.
    """
    check_participants(host, port, federation.sites)
    if not folder.exists():
        private_folder(folder)
    people: list[PlainValues] = [
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
    path, home = folder / f"{federation.name}.yml", folder / federation.name
    with all_or_nothing(path, home):
        forget(home / "state", keep, authority)
        path.write_text(json.dumps(project, indent=2) + "\n")  # JSON is YAML
        made = _make_kits(path, home, say)
        kits = {person["name"]: made / person["name"] for person in people}
        for name, kit in kits.items():
            if name != ADMIN:
                _set_policy(kit)
        accept = f'accept = ["{federation.hash}"]  # sha256 of federations that this server runs\n'
        (kits[host] / "local" / SERVER_FILE).write_text(
            accept + "modules = []  # of your own, whose functions a federation may name\n"
        )
        make_private(home)  # FLARE writes every private key, for all to read
    return kits


def _make_kits(project: Path, home: Path, say: Say) -> Path:
    """Let FLARE make the kits; their folder. It may fail and exit as if it had not."""
    before = set(home.glob("prod_*"))
    told = nvflare(["provision", "-p", str(project), "-w", str(home.parent), "--force"], say, 120)
    made = set(home.glob("prod_*")) - before
    if not made:
        lines = " ".join(told.split()[-60:])
        raise CompositeFLError(f"nvflare provision has made no kits in {home}: {lines}")
    return max(made)


def provisioned(folder: Path, name: str) -> tuple[str, int, set[str]]:
    """(host, port, participants that have a certificate) of a federation in a folder."""
    path = folder / f"{name}.yml"
    if not path.exists():
        raise CompositeFLError(f"--folder {folder} holds no kits of {name}; provision first")
    people = json.loads(path.read_text())["participants"]
    server = next(person for person in people if person["type"] == "server")
    return server["name"], server["fed_learn_port"], {person["name"] for person in people}


def admin_kit(folder: Path, name: str) -> Path:
    """The newest kit of the administrator of a federation in a folder."""
    kits = sorted((folder / name).glob(f"prod_*/{ADMIN}"))
    if not kits:
        raise CompositeFLError(f"--folder {folder} holds no kits of {name}; provision first")
    return kits[-1]


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
    if (kit / "startup" / "fed_server.json").exists():  # it notes connections that are refused
        door = {"id": "compositefl_door", "path": "compositefl.core.door.Door", "args": {}}
        resources["components"].append(door)
    (local / "resources.json").write_text(json.dumps(resources, indent=2) + "\n")
    rights = json.loads((local / "authorization.json.default").read_text())
    lead = rights["permissions"]["lead"] | {"byoc": "none", "shell_commands": "none"}
    lead["app_command"] = "n:submitter"  # to see the progress of one's own jobs
    rights["permissions"] |= {"lead": lead, "project_admin": lead}
    (local / "authorization.json").write_text(json.dumps(rights, indent=2) + "\n")
    write_log_config(local)
