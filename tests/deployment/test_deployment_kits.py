"""Startup kits: certificates that are renewed, sites that are added, federations side by side."""

import contextlib
import json
import shutil
import socket
import ssl
import threading
import time

import pytest

pytest.importorskip("nvflare", reason="needs pip install 'compositefl[deploy]'")

import psutil

from compositefl.cli import main
from compositefl.core.errors import CompositeFLError
from compositefl.deployment import flare
from compositefl.deployment.flare_kits import Kit, update
from tests.deployment.deployment_cases import MODELS, text

TEXT = text(model="mlp", regularizer="l1:0.01", sites=["north", "east"])
assert "tests." not in MODELS["mlp"]  # so that no module must be named


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A provisioned federation."""
    folder = tmp_path_factory.mktemp("kits")
    (folder / "federation.toml").write_text(TEXT)
    assert deploy(folder, "provision", "--host", "localhost", "--port", "8999") == 0
    return folder


def deploy(folder, command, *more, file="federation.toml"):
    """The exit code of `compositefl deploy command file ...`."""
    return main(["deploy", command, str(folder / file), *more, "--folder", str(folder / "f")])


def certificates(folder, name="test"):
    """{participant: its certificate} of the newest kits, and the authority's."""
    newest = sorted((folder / "f" / name).glob("prod_*"))[-1]
    found = {
        kit.name: next((kit / "startup").glob("*.crt")).read_bytes() for kit in newest.iterdir()
    }
    return found, (newest / "north" / "startup" / "rootCA.pem").read_bytes()


def test_provisioning_again_renews(folder):
    """All keys and certificates are new; the authority stays unless it is asked for."""
    before, root = certificates(folder)
    assert deploy(folder, "provision", "--host", "localhost", "--port", "8999") == 0
    after, same = certificates(folder)
    assert after.keys() == before.keys() and same == root
    assert all(after[name] != before[name] for name in before)
    kit = Kit.read(sorted((folder / "f" / "test").glob("prod_*"))[-1] / "north")
    assert (kit.kind, kit.name, kit.server) == ("site", "north", "localhost:8999")
    assert 300 < kit.days() < 400


def test_a_site_is_renewed_and_one_is_added_alone(folder, capsys):
    before, _ = certificates(folder)
    assert deploy(folder, "renew", "east") == 0
    after, _ = certificates(folder)
    assert [name for name in before if after[name] != before[name]] == ["east"]
    (folder / "more.toml").write_text(TEXT.replace('"east"]', '"east", "south"]'))
    capsys.readouterr()
    assert deploy(folder, "add", file="more.toml") == 0
    told = capsys.readouterr().out
    more, _ = certificates(folder)
    assert more.keys() - after.keys() == {"south"}
    assert all(more[name] == after[name] for name in after)
    assert "south: " in told and "north: " not in told
    assert deploy(folder, "renew", "souht", file="more.toml") == 2
    assert "did you mean 'south'" in capsys.readouterr().err


def test_a_server_that_moves_and_a_kit_that_follows(folder, tmp_path):
    """Only the server's certificate is new; a kit in use takes the address over, not more."""
    newest = sorted((folder / "f" / "test").glob("prod_*"))[-1]
    used = tmp_path / "north"
    shutil.copytree(newest / "north", used)
    (used / "local" / "site.toml").write_text("mine")
    before, _ = certificates(folder)
    assert deploy(folder, "move", "--host", "elsewhere.example.org", "--port", "8123") == 0
    after, _ = certificates(folder)
    assert all(after[name] == before[name] for name in ("north", "east", flare.ADMIN))
    assert "elsewhere.example.org" in after
    moved = sorted((folder / "f" / "test").glob("prod_*"))[-1]
    assert main(["deploy", "update", str(used), str(moved / "north")]) == 0
    assert Kit.read(used).server == "elsewhere.example.org:8123"
    assert (used / "local" / "site.toml").read_text() == "mine"
    with pytest.raises(CompositeFLError, match="is the kit of the site east"):
        update(used, moved / "east")


def test_two_federations_in_one_folder_do_not_mix(folder):
    before, root = certificates(folder)
    (folder / "other.toml").write_text(TEXT.replace('"test"', '"zebra"'))
    assert deploy(folder, "provision", "--host", "localhost", file="other.toml") == 0
    assert certificates(folder) == (before, root)
    assert certificates(folder, "zebra")[1] != root
    assert flare.admin_kit(folder / "f", "test").parents[1].name == "test"
    assert flare.admin_kit(folder / "f", "zebra").parents[1].name == "zebra"
    with pytest.raises(CompositeFLError, match="holds no kits of lion"):
        flare.admin_kit(folder / "f", "lion")


def test_logs_rotate_and_none_goes_to_the_terminal(folder):
    local = folder / "f" / "test" / "prod_00" / "north" / "local"
    config = json.loads((local / "log_config.json").read_text())
    assert config["loggers"]["root"]["handlers"] == ["logFileHandler", "errorFileHandler"]
    for handler in config["handlers"].values():
        assert handler["class"].endswith("RotatingFileHandler") and handler["maxBytes"] < 2**25


def test_status_of_a_node_that_does_not_run(folder, capsys):
    kits = folder / "f" / "test" / "prod_00"
    assert main(["deploy", "status", str(kits / "north"), str(kits / "localhost")]) == 1
    told = capsys.readouterr().out
    assert "site north, server at localhost:8999" in told
    assert "! not running" in told and "! the server does not answer at its port" in told
    assert "! local/site.toml is missing" in told
    assert "certificates until" in told
    assert main(["deploy", "status", str(folder)]) == 2
    assert "is not a startup kit" in capsys.readouterr().err


def test_a_server_does_not_start_without_its_port(folder, capsys):
    """FLARE's server lived on without it, and start and status called it running."""
    kit = folder / "f" / "test" / "prod_00" / "localhost"
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 8999))
        other.listen()
        assert main(["deploy", "start", str(kit)]) == 2
        told = capsys.readouterr().err
        assert "localhost: its port 8999 cannot be opened: Address already in use" in told
        assert not (kit / "node.pid").exists()
        assert flare.listens(psutil.Process(), 8999)
    assert not flare.listens(psutil.Process(), 8999)


def test_the_ledger_of_a_site_is_no_run(folder, tmp_path, capsys):
    kit = tmp_path / "north"
    shutil.copytree(folder / "f" / "test" / "prod_00" / "north", kit)
    for name in (".ledger", "first"):
        (kit / flare.STATE / name).mkdir(parents=True)
        (kit / flare.STATE / name / "lock").touch()
    main(["deploy", "status", str(kit)])
    told = capsys.readouterr().out
    assert "run first: last round" in told and "ledger" not in told


def test_status_of_a_server_whose_port_is_not_open(folder, capsys, monkeypatch):
    kit = folder / "f" / "test" / "prod_00" / "localhost"
    monkeypatch.setattr(flare, "running", lambda _: psutil.Process())
    assert main(["deploy", "status", str(kit)]) == 1
    assert "! its port 8999 is not open; see its error_log.txt" in capsys.readouterr().out


def served(kit, port, hangs_up=False):
    """A server with the certificate of a kit; ends with the socket."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(kit / "startup" / "rootCA.pem")
    context.load_cert_chain(kit / "startup" / "server.crt", kit / "startup" / "server.key")
    door, met = socket.create_server(("127.0.0.1", port)), []

    def serve():
        with contextlib.suppress(OSError):
            while True:
                line, _ = door.accept()
                with contextlib.suppress(ssl.SSLError):
                    met.append(context.wrap_socket(line, server_side=True))
                    if hangs_up:
                        met[-1].close()

    threading.Thread(target=serve, daemon=True).start()
    return door


def test_status_of_a_site_that_its_server_does_not_know(folder, tmp_path, capsys):
    """The server's port was open, and so status said that all was well."""
    kits = folder / "f" / "test" / "prod_00"
    site, stranger = tmp_path / "north", tmp_path / "stranger"
    for kit in (site, stranger):
        shutil.copytree(kits / "north", kit)
    (folder / "lynx.toml").write_text(TEXT.replace('"test"', '"lynx"'))
    assert deploy(folder, "provision", "--host", "localhost", file="lynx.toml") == 0
    lynx = folder / "f" / "lynx" / "prod_00" / "north" / "startup"
    for name in ("client.crt", "client.key"):
        shutil.copy(lynx / name, stranger / "startup" / name)
    capsys.readouterr()
    with served(kits / "localhost", 8999) as door:
        main(["deploy", "status", str(site)])
        assert "  the server answers at its port" in capsys.readouterr().out
        main(["deploy", "status", str(stranger)])
        assert "! the server and this kit do not know each other" in capsys.readouterr().out
        shutil.copy(lynx / "rootCA.pem", stranger / "startup" / "rootCA.pem")
        main(["deploy", "status", str(stranger)])
        told = "! the server and this kit do not know each other (CERTIFICATE_VERIFY_FAILED)"
        assert told in capsys.readouterr().out
        door.shutdown(socket.SHUT_RDWR)
    with served(kits / "localhost", 8999, hangs_up=True) as door:  # as FLARE's
        main(["deploy", "status", str(site)])
        assert "do not know each other (it hung up)" in capsys.readouterr().out
        door.shutdown(socket.SHUT_RDWR)


REGISTERED = "FederatedClient - INFO - Successfully registered client:north for project test."
HEARTBEAT = (
    "Communicator - INFO - Failed to send heartbeat. Will try again. Exception: "
    "FLCommunicationError: error:client_quit"
)
REJECTED = "Authenticator - ERROR - registration rejected: Client 'north' is\x1b[2J disabled"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ([(60, REGISTERED), (1, HEARTBEAT)], "no more: it takes no heartbeat of this site; ask"),
        ([(60, REGISTERED), (40, HEARTBEAT), (35, "CoreCell - INFO - fine")], ""),  # since undone
        (
            [(60, HEARTBEAT), (9, REJECTED), (8, "MPM - ERROR - Traceback")],
            "is\\x1b[2J disabled; ask",
        ),
        ([(60, REJECTED), (9, REGISTERED)], ""),
        ([(60, REGISTERED), (1, f"x{HEARTBEAT}")], "it takes no heartbeat"),
        ([], ""),
    ],
)
def test_status_of_a_revoked_site(folder, tmp_path, capsys, log, said):
    """Its connection stays and the port is open, and so status said that all was well."""
    site = tmp_path / "north"
    shutil.copytree(folder / "f" / "test" / "prod_00" / "north", site)
    stamps = (time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - s)) for s, _ in log)
    lines = [f"{stamp},123 - {line}\n" for stamp, (_, line) in zip(stamps, log, strict=True)]
    (site / "log.txt").write_text("".join(lines))
    main(["deploy", "status", str(site)])
    told = capsys.readouterr().out
    assert ("! the server lets this site in no more: " in told) == bool(said) and said in told


@pytest.mark.parametrize("who", ["server", "administrator"])
@pytest.mark.parametrize("undo", [(), ("--undo",)])
def test_only_sites_are_revoked(folder, capsys, monkeypatch, who, undo):
    """The administrator was locked out for good: who cannot connect cannot undo it."""
    from compositefl.deployment import flare_admin

    monkeypatch.setattr(flare_admin.Admin, "_ask", lambda *_: pytest.fail("the server was asked"))
    name = flare.ADMIN if who == "administrator" else flare.provisioned(folder / "f", "test")[0]
    assert deploy(folder, "revoke", name, *undo) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {name} is the {who}") and "only a site can be revoked" in told
    assert deploy(folder, "revoke", "nroth") == 2
    assert "did you mean 'north'" in (told := capsys.readouterr().err) and flare.ADMIN not in told


def test_watch_does_not_wait_for_ever(tmp_path, capsys):
    assert main(["deploy", "watch", "--folder", str(tmp_path), "--patience", "nan"]) == 2
    assert "patience=nan must be a finite number > 0" in capsys.readouterr().err


class Session:
    """A session whose questions end with one error of FLARE."""

    def __init__(self, error):
        self.error, self.closed = error, False

    def close(self):
        self.closed = True

    def __getattr__(self, name):
        def fail(*given):
            raise self.error("x")

        return fail


@pytest.mark.parametrize(
    ("error", "question", "expected"),
    [
        ("JobNotDone", "download", CompositeFLError),  # forgotten by a server that was restarted
        ("JobNotFound", "download", CompositeFLError),
        ("NoConnection", "download", ConnectionError),
        ("SessionClosed", "system", ConnectionError),
        ("InternalError", "system", ConnectionError),
        ("ClientsStillRunning", "system", ConnectionError),
        ("AuthorizationError", "submit", CompositeFLError),
        ("JobNotFound", "state", "FINISHED:UNKNOWN"),
        ("NoReply", "progress", ("", 7)),
        ("InternalError", "progress", ("", 7)),
    ],
)
def test_errors_of_flare_become_words(tmp_path, error, question, expected):
    """Nothing of FLARE's own comes through; a lost session is closed and made anew."""
    from nvflare.fuel.flare_api import api_spec

    from compositefl.deployment.flare_admin import Admin

    admin = Admin(tmp_path, lambda line: None)
    session = admin._session = Session(getattr(api_spec, error))
    given = {
        "download": ("job", tmp_path),
        "submit": (tmp_path,),
        "state": ("job",),
        "progress": ("job", 7),
        "system": (),
    }[question]
    if isinstance(expected, type):
        with pytest.raises(expected):
            getattr(admin, question)(*given)
        assert session.closed == (expected is ConnectionError)
    else:
        assert getattr(admin, question)(*given) == expected and not session.closed
