"""What the server may read of a site's errors: their kind, and nothing of the site."""

import errno
import types

import pytest

from compositefl.core.errors import CompositeFLError
from compositefl.deployment import InProcess, Site, flare
from compositefl.deployment.messages import decode, encode, value
from compositefl.deployment.transport import failure_text
from tests.deployment.deployment_cases import Local, text

SECRET = "https://ehr.local/export?patient=4711&token=s3cret"


class RequestException(OSError):
    """As that of requests, whose text quotes the address."""


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (RequestException(f"401 for url: {SECRET}"), "RequestException in the site's code"),
        (FileNotFoundError(f"no record at {SECRET}"), "FileNotFoundError in the site's code"),
        (OSError(None, SECRET), "OSError in the site's code"),
        (OSError(10**20, SECRET), "OSError in the site's code"),
        (OSError(errno.ENOENT, SECRET, SECRET), "FileNotFoundError: No such file or directory"),
        (PermissionError(errno.EACCES, "x", SECRET), "PermissionError: Permission denied"),
    ],
)
def test_of_an_oserror_only_the_systems_words_are_sent(error, told):
    """The attack: a loader's error told the server addresses and tokens."""
    assert failure_text(error).removesuffix("; see its log") == told


def test_a_sites_lost_connection_is_not_that_to_the_server():
    """A loader that cannot reach its own archive: the site is there, and its text stays there."""

    def handle(_method, _payload):
        raise ConnectionResetError(SECRET)

    answers = InProcess({"north": handle}).call(["north", "east"], "hello", b"", 10.0)
    assert answers["north"] == ("ConnectionResetError in the site's code; see its log", False)
    assert answers["east"] == ("ConnectionError: not connected", True)


def test_a_loader_that_fails_names_its_site_and_no_address(tmp_path, monkeypatch):
    local = Local(tmp_path, text(rounds=2))

    def load(*_):
        raise RequestException(f"GET {SECRET}")

    monkeypatch.setattr(type(local.sites["east"]), "load", load)
    local.coordinator.calls.join(0, ["east"])
    (told,) = local.failures()
    assert told == "east hello 0: RequestException in the site's code; see its log"


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ('name = "north"\naccept = []\nmueller = "x"\n[train]\nfile = "a.csv"\n', "mueller"),
        ('name = "north"\n[train]\nfile = "a\n', "not TOML"),
        ('name = "north"\naccept = ["x"]\n[train]\nfile = "a.csv"\n', "sha256"),
        ('name = "north"\naccept = "Patient Mueller"\n[train]\nfile = "a.csv"\n', "Mueller"),
        ('name = "north"\nfunction = "a:b"\n[limits]\nuploads = "many"\n', "many"),
        ('name = "Dr. Mueller"\nfunction = "a:b"\n', "Mueller"),
        ('function = "a:b"\n', "name"),
        ('name = "north"\n[train]\nfile = 4711\n', "[train] file=4711 must be"),
        ('name = "north"\ntrain = 4711\n', "train=4711 must be a table"),
        ('name = "north"\nfunction = 4711\n', "function=4711 must be"),
        ("a = " + 5000 * "[", "not TOML"),
        ("a = " + 5000 * "9", "not TOML"),
    ],
)
def test_a_wrong_site_toml_is_told_at_the_site_alone(tmp_path, monkeypatch, content, word):
    """The attack: the coordinator read the path of site.toml, its entries and values."""
    (tmp_path / "local").mkdir()
    path = tmp_path / "local" / "site.toml"
    path.write_text(content)
    with pytest.raises(CompositeFLError) as error:
        Site.read(path)
    assert str(error.value).startswith(f"{path}: ") and word in str(error.value)  # deploy check
    put_at_a_node(monkeypatch, tmp_path, "server")
    sent = flare.Client().handle_call("hello", b"")
    assert sent == "its site.toml is not what it must be; its log says more"


def test_words_of_the_server_are_no_lines_of_the_sites_log(tmp_path, monkeypatch, caplog):
    """The attack: a method's name with line feeds wrote lines of its own into the site's log."""
    local = Local(tmp_path, text())
    put_at_a_node(monkeypatch, tmp_path, "server")
    client = flare.Client()
    client._worker = local.workers["north"]
    hello = encode({"federation": local.federation.text, "run": "run"})
    assert isinstance(client.handle_call("hello", hello), bytes)
    word = "x\n2026-01-01 - CRITICAL - all is lost\x1b[2J" + 1000 * "x"
    told = client.handle_call(word, encode({}))
    assert told.startswith("there is no method 'x\\n2026") and told.isprintable()
    assert (
        "\n2026" not in caplog.text and "\x1b" not in caplog.text and 200 * "x" not in caplog.text
    )


def put_at_a_node(monkeypatch, folder, caller):
    """Let this be the process of a site's job, which `caller` calls."""
    workspace = types.SimpleNamespace(get_root_dir=lambda: str(folder))
    node = types.SimpleNamespace(workspace=workspace, site_name="north", caller=caller)
    monkeypatch.setattr(flare, "collab", node)
    monkeypatch.setattr(flare.os, "umask", lambda _: None)
    monkeypatch.setattr(flare, "_end_soon", lambda: None)


@pytest.mark.parametrize("caller", ["server", "east"])
def test_a_site_answers_the_server_alone(tmp_path, monkeypatch, caller):
    """The attack: a site of the job asked another one for its loss and gradient, and got them."""
    local = Local(tmp_path, text())
    put_at_a_node(monkeypatch, tmp_path, caller)
    client = flare.Client()
    client._worker = local.workers["north"]
    hello = encode({"federation": local.federation.text, "run": "run"})
    answer = client.handle_call("hello", hello)
    if caller == "server":
        assert value(decode(answer, 2**20), "site", str) == "north"
    else:
        assert answer == "a site answers the server alone, not east"
