"""`compositefl deploy status` and `check`: how a node is, and what a site would send."""

import shutil
import socket
import ssl
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compositefl.cli.kits import SOON, Kit, Kits, flare
from compositefl.cli.wording import plain

if TYPE_CHECKING:
    from compositefl.deployment.flare_admin import Admin
    from compositefl.deployment.flare_kits import Kit as Found
    from compositefl.deployment.progress import Progress
    from compositefl.deployment.supervise import RunFolder
TAIL = 2**16  # bytes at the end of a log in which its last error is looked for


def status(kits: Kits) -> int:
    """Say how nodes are: running, certificates, runs, disk, last error."""
    wrong = 0
    for number, path in enumerate(kits):
        if number:
            print()
        wrong += _status(path)
    return 1 if wrong else 0


def _status(path: Path) -> int:
    """Print the status of one kit; how many things need somebody."""
    from compositefl.deployment.flare_kits import Kit as Found

    adapter, kit = flare(), Found.read(path)
    lines = [f"{kit.kind} {kit.name}, server at {kit.server}"]
    wrong: list[str] = []
    if kit.kind == "administrator":
        _ask(kit, lines, wrong)
    else:
        process = adapter.running(kit.path)
        if process is None:
            wrong.append("not running")
        else:
            since = time.strftime("%Y-%m-%d %H:%M", time.localtime(process.create_time()))
            lines.append(f"running as process {process.pid} since {since}")
            port = kit.server.rpartition(":")[2]
            if kit.kind == "server" and not adapter.listens(process, int(port)):
                wrong.append(f"its port {port} is not open; see its error_log.txt")
    if kit.kind == "site":
        refusal = _refusal(kit)
        (wrong if refusal else lines).append(refusal or "the server answers at its port")
        if why := adapter.refused(kit.path):
            wrong.append(f"the server lets this site in no more: {why}; ask the coordinator")
        _site_file(kit.path, lines, wrong)
    ends = f"certificates until {min(kit.until, kit.authority_until):%Y-%m-%d}, {kit.days()} days"
    (lines if kit.days() >= SOON else wrong).append(ends)
    free = shutil.disk_usage(kit.path).free / 2**30
    (lines if free > 1 else wrong).append(f"{free:.1f} GB free on its disk")
    lines += _runs(kit, adapter.STATE, adapter.PROGRESS)
    error = _last_error(kit.path / "error_log.txt")
    if error:
        lines.append(f"last error in error_log.txt: {error}")
    told = [lines[0], *(f"  {x}" for x in lines[1:]), *(f"! {x}" for x in wrong)]
    print("\n".join(map(plain, told)))
    return len(wrong)


def _ask(kit: "Found", lines: list[str], wrong: list[str]) -> None:
    from compositefl.deployment.flare_admin import Admin

    try:
        with Admin(kit.path) as admin:
            sites, busy = admin.system()
        lines.append(f"connected sites: {', '.join(sorted(sites)) or 'none'}")
        lines.append(f"the server is {'at work on a job' if busy else 'idle'}")
    except ConnectionError as error:
        wrong.append(f"the server cannot be reached: {error}")


def _refusal(kit: "Found") -> str:
    """Why a site has no connection to its server; "" where it can have one."""
    host, _, port = kit.server.rpartition(":")
    startup, met = kit.path / "startup", False
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False  # by address, as FLARE: whose authority it is counts
    try:
        context.load_verify_locations(startup / "rootCA.pem")
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
        with socket.create_connection((host, int(port)), timeout=3.0) as line:
            met = True
            with context.wrap_socket(line) as door, suppress(TimeoutError):
                door.settimeout(1.0)
                # Of a certificate that it does not take a server tells afterwards, or it hangs up.
                if not door.recv(1):
                    raise ConnectionResetError(0, "it hung up")
    except OSError as error:
        if met and not isinstance(error, TimeoutError):
            why = getattr(error, "reason", None) or error.strerror
            return f"the server and this kit do not know each other ({why}); deploy renew, update"
        return "the server does not answer at its port"
    return ""


def _site_file(path: Path, lines: list[str], wrong: list[str]) -> None:
    from compositefl.core.errors import CompositeFLError
    from compositefl.deployment import Site

    file = path / "local" / "site.toml"
    if not file.exists():
        wrong.append("local/site.toml is missing; local/site.toml.example shows one")
        return
    try:
        site = Site.read(file)
        lines.append(f"site.toml accepts {len(site.accept)} federations; try deploy check")
    except CompositeFLError as error:
        wrong.append(str(error))


def _runs(kit: "Found", state: str, name: str) -> list[str]:
    """A line for every run that a node has a state of."""
    from compositefl.cli.watching import ago, headline
    from compositefl.deployment.progress import Progress

    lines = []
    for folder in sorted((kit.path / state).glob("[!.]*")):  # not .ledger
        log = folder / name
        if log.exists():
            progress = Progress.kept(log, ())
            lines.append(
                f"{headline(folder.name, progress)}, {ago(time.time() - progress.time)} ago"
            )
        elif folder.is_dir() and kit.kind == "site":
            times = [file.stat().st_mtime for file in folder.rglob("*") if file.is_file()]
            if times:
                lines.append(f"run {folder.name}: last round {ago(time.time() - max(times))} ago")
    return lines


def _last_error(path: Path) -> str:
    if not path.exists():
        return ""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        lines = file.read().decode(errors="replace").splitlines()
    errors = [line for line in lines if " - ERROR - " in line or " - CRITICAL - " in line]
    return errors[-1] if errors else ""


def check(
    kit: Kit,
    federation: Annotated[
        Path | None,
        typer.Argument(help="The federation; default local/federation.toml of the kit."),
    ] = None,
) -> int:
    """Dry run at a site: what it would send. Nothing is.

    Its data are read and checked, and one round is computed.
    """
    from compositefl.core.errors import CompositeFLError
    from compositefl.deployment import Federation, Site
    from compositefl.deployment.dry_run import dry_run, shapes

    local = kit / "local"
    path = local / "federation.toml" if federation is None else federation
    if not (local / "site.toml").exists():
        raise CompositeFLError(f"{local} has no site.toml; site.toml.example shows one")
    if not path.exists():
        raise CompositeFLError(f"{path} does not exist")
    site = Site.read(local / "site.toml")
    declared = Federation.read(path)
    accepted = declared.hash in site.accept
    print(f"federation {declared.name}, sha256 {declared.hash}")
    print(f"{'accepted' if accepted else 'NOT accepted'} by {local / 'site.toml'}")
    found = dry_run(site, declared)
    if (kit / "startup").exists():
        from compositefl.deployment.flare_kits import Kit as Found

        if (whose := Found.read(kit).name) != site.name:
            found.wrong.append(f"site.toml is of {site.name}, the certificate of {whose}")
    if found.samples:
        print(f"{found.samples} training and {found.tests} test samples")
    for method, (message, size) in found.answers.items():
        print(f"\nanswer to {method}, {size:,} bytes:")
        for name, what in shapes(message):
            print(plain(f"  {name}: {what}"))
    if found.wrong or found.notes:
        print()
    for line in (*found.wrong, *found.notes):
        print(plain(f"! {line}"))
    if not found.wrong:
        print("\nnothing was sent")
    return 0 if accepted and not found.wrong else 1


def so_far(admin: "Admin", record: "RunFolder") -> "Progress":
    """What a run that goes on has told of itself."""
    from compositefl.deployment.supervise import Feed

    feed = Feed(admin, record)
    feed.pull(record.last_job())
    return feed.progress
