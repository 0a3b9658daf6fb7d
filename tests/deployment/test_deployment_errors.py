"""What the server may read of a site's errors: their kind, and nothing of the site."""

import errno

import pytest

from compositefl.deployment import InProcess
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
