"""The nodes of FLARE on this machine: start and stop them, run its command line."""

import json
import math
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from compositefl.core.errors import CompositeFLError
from compositefl.core.files import PRIVATE, open_private, write_private

Say = Callable[[str], None]
TAIL = 2**16  # bytes at the end of a log that are looked at
FRESH = 30.0  # seconds in which a heartbeat that failed has not been mended
# What FLARE's site says of its server.
REGISTERED = "Successfully registered client"
REJECTED = " - ERROR - registration rejected: "
HEARTBEAT = "Failed to send heartbeat. Will try again."


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
    return start_all([kit], say, patience)[0]


def start_all(kits: Iterable[Path], say: Say = print, patience: float = 60.0) -> list[int]:
    """Start nodes at the same time; returns the ids of their processes once all are up."""
    began, end = time.time(), time.monotonic() + patience
    processes = launch_all(kits, say)
    for kit, process in processes.items():
        while not _writes(kit / "log.txt", began) and time.monotonic() < end:
            if process.poll() is not None:
                raise CompositeFLError(
                    f"{kit.name} ended at once; see the end of {kit / 'node.log'}"
                )
            time.sleep(0.1)
    return [process.pid for process in processes.values()]


def launch_all(kits: Iterable[Path], say: Say = print) -> "dict[Path, subprocess.Popen[bytes]]":
    """Start nodes and do not wait for them."""
    return {kit: _launch(kit, say) for kit in map(Path.resolve, kits)}


def _launch(kit: Path, say: Say) -> "subprocess.Popen[bytes]":
    script = kit / "startup" / "sub_start.sh"
    if not script.is_file():
        raise CompositeFLError(f"{kit} is not the startup kit of a server or a site")
    if running(kit) is not None:
        raise CompositeFLError(f"{kit.name} is already running")
    _check_port(kit)
    _keep_files_inside(kit)
    command = ["bash", str(script), "--once"]
    say(f"$ {shlex.join(command)}")
    _turn(kit / "node.log")
    with open_private(kit / "node.log") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment(),
            umask=PRIVATE,
        )
    about = f"{process.pid} {psutil.Process(process.pid).create_time()}"
    write_private(kit / "node.pid", about.encode())
    return process


def _check_port(kit: Path) -> None:
    """Refuse to start a server whose port is taken.

    FLARE's server would live on without it, try again for ever and say so in its log alone.
    """
    try:
        content = json.loads((kit / "startup" / "fed_server.json").read_text())
        host, _, port = content["servers"][0]["service"]["target"].rpartition(":")
        address = "127.0.0.1" if host == "localhost" else "", int(port)  # as FLARE listens
    except (OSError, ValueError, KeyError, IndexError):
        return  # a site; or a damaged kit, which FLARE refuses
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind(address)
        except OSError as error:
            raise CompositeFLError(
                f"{kit.name}: its port {port} cannot be opened: {error.strerror}"
            ) from None


def listens(process: psutil.Process, port: int) -> bool:
    """Whether a node, or a process that it has started, has a port open."""
    family = [process, *process.children(recursive=True)]
    doors = [door for member in family for door in member.net_connections("tcp")]
    return any(d.status == psutil.CONN_LISTEN and d.laddr.port == port for d in doors)


def _turn(log: Path, largest: int = 2**20) -> None:
    """Put a long file of what a node printed aside; FLARE turns over its logs itself."""
    if log.exists() and log.stat().st_size > largest:
        log.replace(log.with_name(log.name + ".1"))


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


def refused(kit: Path) -> str:
    """Why the server lets a site in no more, as the site's log says; "" where it says nothing.

    Of a site that has been revoked the connection stays, and FLARE says no more than this: its
    heartbeats fail every five seconds, or its registration was rejected when it started.
    """
    try:
        with (kit / "log.txt").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - TAIL))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        if REGISTERED in line:
            return ""
        if REJECTED in line:
            return line.partition(REJECTED)[2].strip()
        if HEARTBEAT in line and _age(line) < FRESH:
            return "it takes no heartbeat of this site"
    return ""


def _age(line: str) -> float:
    """Seconds since a line of a log was written."""
    try:
        return time.time() - time.mktime(time.strptime(line[:19], "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return math.inf


def stop(kit: Path, say: Say = print, patience: float = 10.0) -> None:
    """End the node of a kit and the processes of its jobs."""
    stop_all([kit], say, patience)


def stop_all(kits: Iterable[Path], say: Say = print, patience: float = 10.0) -> None:
    """End nodes and the processes of their jobs, all at the same time."""
    family: list[psutil.Process] = []
    kits = list(kits)
    for kit in kits:
        process = running(kit)
        if process is not None:
            members = [process, *process.children(recursive=True)]
            say(f"$ kill {' '.join(str(p.pid) for p in members)}   # {kit.name}")
            family += members
    for member in family:
        with suppress(psutil.NoSuchProcess):
            member.terminate()
    for member in psutil.wait_procs(family, timeout=patience)[1]:
        with suppress(psutil.NoSuchProcess):
            member.kill()
    for kit in kits:
        (kit / "node.pid").unlink(missing_ok=True)


def nvflare(words: list[str], say: Say, timeout: float) -> str:
    """Run FLARE's command line; its output, or an error in one line."""
    command = [sys.executable, "-m", "nvflare.cli", *words]
    say(f"$ {shlex.join(['nvflare', *words])}")
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=environment(),
            umask=PRIVATE,
        )
    except subprocess.TimeoutExpired:
        raise ConnectionError(f"nvflare {words[0]} gave no answer in {timeout:g} s") from None
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no output"]
        raise ConnectionError(f"nvflare {' '.join(words[:2])}: {' '.join(lines[-4:])}")
    return done.stdout
