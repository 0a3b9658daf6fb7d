"""Startup kits over the years: certificates that end, sites that come and go, logs that grow."""

import json
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from compositefl.core.errors import CompositeFLError
from compositefl.core.files import write_private
from compositefl.core.types import PlainValues

KINDS = {"fed_server.json": "server", "fed_client.json": "site", "fed_admin.json": "administrator"}
AUTHORITY = ("root_cert", "root_pri_key")  # entries of FLARE's cert.json that are no participant
CERTIFICATES = "cert.json"  # in the folder state/: what FLARE has issued
# What FLARE and a certificate take as names; the host is a name in the net, or an address.
SITE = re.compile(r"[A-Za-z0-9_-]+")
LABEL = r"[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?"
HOST = re.compile(rf"({LABEL}\.)*{LABEL}")
TAKEN = ("server", "all")  # in a job and in FLARE's commands; "server" is whom sites answer
LONGEST = 64  # characters of a name in a certificate
LAST_PORT = 65535
LOG_BYTES, LOG_FILES = 10 * 2**20, 5  # of each log of a node, before the oldest is dropped
# Lines of FLARE that frighten and mean nothing; docs/operating.md says when they come.
HARMLESS = {
    "jax._src.xla_bridge": "WARNING",  # "Unable to initialize backend 'tpu'"
    # "no app command func": `watch` asks a job that is still starting
    "nvflare.private.fed.server.server_commands.AppCommandProcessor": "CRITICAL",
}


@dataclass(frozen=True)
class Kit:
    """A startup kit: whose it is and how long its certificates are good."""

    path: Path
    kind: str  # server, site or administrator
    name: str
    until: datetime
    authority_until: datetime
    server: str  # host:port

    @classmethod
    def read(cls, path: Path) -> "Kit":
        """The kit in a folder."""
        path = path.resolve()
        startup = path / "startup"
        found = [(file, kind) for file, kind in KINDS.items() if (startup / file).is_file()]
        if not found:
            raise CompositeFLError(f"{path} is not a startup kit")
        ((file, kind),) = found
        base = "server" if kind == "server" else "client"
        mine, authority = (
            _certificate(startup / f"{base}.crt"),
            _certificate(startup / "rootCA.pem"),
        )
        (name,) = mine.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        return cls(
            path,
            kind,
            str(name.value),
            mine.not_valid_after_utc,
            authority.not_valid_after_utc,
            _endpoint(json.loads((startup / file).read_text())),
        )

    def days(self) -> int:
        """Days until the first of its two certificates ends."""
        return (min(self.until, self.authority_until) - datetime.now(UTC)).days


def _certificate(path: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CompositeFLError(f"{path} is not a certificate: {error}") from None


def _endpoint(config: PlainValues) -> str:
    """host:port of the server in one of FLARE's start files."""
    if "admin" in config:
        return f"{config['admin']['host']}:{config['admin']['port']}"
    return str(config["servers"][0]["service"]["target"])


def check_participants(host: str, port: int, sites: Collection[str]) -> None:
    """Refuse what no certificate can be made for, before anything is written."""
    if not HOST.fullmatch(host) or len(host) > LONGEST:
        raise CompositeFLError(
            f"--host {host!r} must be the name of a machine or its address: letters, digits, '-' "
            f"and '.', at most {LONGEST} characters"
        )
    if not 1 <= port <= LAST_PORT:
        raise CompositeFLError(f"--port {port} must be in 1..{LAST_PORT}")
    for site in sites:
        if not SITE.fullmatch(site):
            raise CompositeFLError(
                f"sites: '{site}' must be letters, digits, '-' and '_' for its certificate"
            )
        if site.lower() in TAKEN:
            raise CompositeFLError(f"sites: '{site}' is what FLARE calls something else; rename it")
    if host in sites:
        raise CompositeFLError(f"--host {host} is the name of a site too; they must differ")


@contextmanager
def all_or_nothing(project: Path, home: Path) -> Iterator[None]:
    """Where making kits fails, leave everything as it was.

    `project`, the file with the participants, the certificates issued, and the kits in `home`: else
    later commands believe in kits that nobody has made, or issue keys anew that are in use.
    """
    new = not home.exists()
    kits = set(home.glob("prod_*"))
    files = project, home / "state" / CERTIFICATES
    before = {file: file.read_bytes() if file.exists() else None for file in files}
    try:
        yield
    except BaseException:
        for made in set(home.glob("prod_*")) - kits:
            shutil.rmtree(made, ignore_errors=True)
        for file, content in before.items():
            if content is None:
                file.unlink(missing_ok=True)
            else:
                write_private(file, content)
        if new:
            shutil.rmtree(home, ignore_errors=True)
        raise


def forget(state: Path, keep: Collection[str], authority: bool) -> None:
    """Make FLARE issue new keys and certificates to all but `keep`; with `authority`, to all anew.

    It reuses what it finds in its state, whatever its age.
    """
    path = state / CERTIFICATES
    if not path.exists():
        return
    if authority:
        path.unlink()
        return
    content = json.loads(path.read_text())
    kept = {name: v for name, v in content.items() if name in AUTHORITY or name in keep}
    path.write_text(json.dumps(kept))


def update(kit: Path, new: Path) -> None:
    """Take the keys, certificates and addresses of a new kit into one that is in use.

    What the node's people wrote into `local/` and the states in `compositefl/` stay.
    """
    old, fresh = Kit.read(kit), Kit.read(new)
    if old.kind != fresh.kind or (old.kind != "server" and old.name != fresh.name):
        raise CompositeFLError(
            f"{new} is the kit of the {fresh.kind} {fresh.name}, {kit} of the {old.kind} {old.name}"
        )
    kept, incoming = kit / "startup.old", kit / "startup.new"
    for leftover in (kept, incoming):
        shutil.rmtree(leftover, ignore_errors=True)
    shutil.copytree(new / "startup", incoming)
    (kit / "startup").rename(kept)
    incoming.rename(kit / "startup")
    shutil.rmtree(kept)


def write_log_config(local: Path) -> None:
    """Logs that rotate, once instead of three times, without FLARE's harmless lines."""
    config = json.loads((local / "log_config.json.default").read_text())
    for handler in config["handlers"].values():
        if "maxBytes" in handler:
            handler |= {"maxBytes": LOG_BYTES, "backupCount": LOG_FILES}
    config["loggers"]["root"]["handlers"] = ["logFileHandler", "errorFileHandler"]
    config["handlers"] = {
        name: config["handlers"][name] for name in ("logFileHandler", "errorFileHandler")
    }
    config["loggers"] |= {name: {"level": level} for name, level in HARMLESS.items()}
    (local / "log_config.json").write_text(json.dumps(config, indent=2) + "\n")
