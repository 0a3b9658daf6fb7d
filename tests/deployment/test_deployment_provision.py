"""Kits are made, or nothing is changed: what FLARE would refuse is refused first."""

import json

import pytest

pytest.importorskip("nvflare", reason="needs pip install 'compositefl[deploy]'")

from compositefl.cli import main
from compositefl.deployment import flare
from tests.deployment.deployment_cases import text

TEXT = text(model="mlp", regularizer="l1:0.01", sites=["north", "east"])
HOST = ("--host", "localhost")


@pytest.fixture
def deploy(tmp_path, capsys):
    """(exit code, what was told on stderr or else on stdout) of a `deploy` command."""

    def call(command, *more, file=TEXT):
        (tmp_path / "federation.toml").write_text(file)
        words = [str(tmp_path / "federation.toml"), *more, "--folder", str(tmp_path / "f")]
        code = main(["deploy", command, *words])
        told = capsys.readouterr()
        return code, told.err or told.out

    return call


def never(*given):
    raise AssertionError("FLARE was run")


REFUSED = [
    (("--host", "a b"), TEXT, "--host 'a b' must be the name of a machine or its address"),
    (("--host", ""), TEXT, "--host '' must be the name"),
    (("--host", "a_b"), TEXT, "--host 'a_b' must be the name"),
    (("--host", "-a"), TEXT, "--host '-a' must be the name"),
    (("--host", "a..b"), TEXT, "--host 'a..b' must be the name"),
    (("--host", "a" * 65), TEXT, "at most 64 characters"),
    (("--host", "north"), TEXT, "--host north is the name of a site too"),
    ((*HOST, "--port", "0"), TEXT, "--port 0 must be in 1..65535"),
    ((*HOST, "--port", "99999"), TEXT, "--port 99999 must be in 1..65535"),
    (HOST, TEXT.replace('"east"', '"Server"'), "sites: 'Server' is what FLARE calls something"),
    (HOST, TEXT.replace('"east"', '"e.st"'), "sites: 'e.st' must be letters, digits, '-' and '_'"),
]


@pytest.mark.parametrize(("options", "file", "said"), REFUSED)
def test_names_and_ports_that_no_kit_can_have(deploy, monkeypatch, tmp_path, options, file, said):
    monkeypatch.setattr(flare, "nvflare", never)
    code, told = deploy("provision", *options, file=file)
    assert code == 2 and told.startswith("error: ") and told.count("\n") == 1
    assert said in told and not (tmp_path / "f").exists()


def broken(home, ending):
    """A FLARE that leaves half of its work behind."""

    def run(words, say, timeout):
        (home / "prod_07" / "north").mkdir(parents=True)
        (home / "state").mkdir(exist_ok=True)
        (home / "state" / "cert.json").write_text("half")
        if ending is None:
            (home / "prod_07" / "north").rmdir()
            (home / "prod_07").rmdir()
            return "an error of which the exit code knows nothing"
        raise ending

    return run


ENDINGS = {
    "error": (ConnectionError("nvflare provision: no"), 1),
    "ctrl-c": (KeyboardInterrupt(), 130),
    "silent": (None, 2),
}


@pytest.mark.parametrize("how", ENDINGS)
def test_a_first_provision_that_fails_leaves_nothing(deploy, monkeypatch, tmp_path, how):
    ending, expected = ENDINGS[how]
    monkeypatch.setattr(flare, "nvflare", broken(tmp_path / "f" / "test", ending))
    assert deploy("provision", *HOST)[0] == expected
    assert list((tmp_path / "f").iterdir()) == []
    code, told = deploy("add")
    assert code == 2 and "holds no kits of test; provision first" in told


@pytest.mark.parametrize("how", ENDINGS)
def test_a_later_one_that_fails_leaves_kits_and_certificates(deploy, monkeypatch, tmp_path, how):
    """Entries of cert.json are taken out before FLARE runs; a site would get new keys unasked."""
    home = tmp_path / "f" / "test"
    (home / "state").mkdir(parents=True)
    (home / "prod_00" / flare.ADMIN).mkdir(parents=True)
    issued = {"root_cert": "c", "localhost": 1, "north": 2, "east": 3}
    people = [{"name": name, "type": "client"} for name in ("north", "east")]
    people.append({"name": "localhost", "type": "server", "fed_learn_port": 8002})
    files = {
        home / "state" / "cert.json": json.dumps(issued),
        tmp_path / "f" / "test.yml": json.dumps({"participants": people}),
    }
    for file, content in files.items():
        file.write_text(content)
    ending, expected = ENDINGS[how]
    monkeypatch.setattr(flare, "nvflare", broken(home, ending))
    for command in (("provision", "--host", "elsewhere", "--authority"), ("renew", "north")):
        assert deploy(*command)[0] == expected
        assert {file: file.read_text() for file in files} == files
        assert [kit.name for kit in home.glob("prod_*")] == ["prod_00"]
        assert flare.provisioned(tmp_path / "f", "test")[0] == "localhost"
