"""Startup kits over the years: certificates that end, sites that come and go, logs that grow."""

import json
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import PlainValues

KINDS = {"fed_server.json": "server", "fed_client.json": "site", "fed_admin.json": "administrator"}
AUTHORITY = ("root_cert", "root_pri_key")  # entries of FLARE's cert.json that are no participant
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


def forget(state: Path, keep: Collection[str], authority: bool) -> None:
    """Make FLARE issue new keys and certificates to all but `keep`; with `authority`, to all anew.

    It reuses what it finds in its state, whatever its age.
    """
    path = state / "cert.json"
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
