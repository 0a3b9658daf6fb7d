"""A node runs what its own files accept, and nothing that a job or a federation only names."""

import hashlib
import sys

import pytest

from compositefl.core.errors import CompositeFLError
from compositefl.deployment import Coordinator, Federation, InProcess
from compositefl.deployment.trust import Trust, server_trust
from compositefl.regularizers import L1
from tests.deployment import trap
from tests.deployment.deployment_cases import OWN, Local, declare, text

TRAP = "tests.deployment.trap"


def naming(model):
    """A federation whose model is "module:name", for a command that leaves a trace."""
    return text().replace(f"{OWN}:lasso_model", model)


def with_hash(declared):
    return hashlib.sha256(declared.encode()).hexdigest()


def test_reading_a_federation_calls_nothing(tmp_path):
    """The attack: [model] name = "subprocess:run" ran a command wherever the file was read."""
    mark = tmp_path / "ran"
    declared = naming("subprocess:run").replace(
        "[algorithm]", f'args = ["touch", "{mark}"]\n[algorithm]'
    )
    trap.SPRUNG.clear()
    assert Federation.parse(declared).model["args"] == ["touch", str(mark)]
    Federation.parse(naming(f"{TRAP}:spring"))
    assert not mark.exists() and not trap.SPRUNG
    sys.modules.pop("antigravity", None)
    Federation.parse(naming("antigravity:fly"))
    assert "antigravity" not in sys.modules  # nor is anything imported


@pytest.mark.parametrize(
    ("model", "modules", "reason"),
    [
        ("subprocess:run", [TRAP], "the module subprocess is not accepted here"),
        (f"{TRAP}:run", [TRAP], "comes from subprocess, which is not accepted"),
        (f"{TRAP}:spring", [TRAP], "is not declared as a Model"),
        (f"{TRAP}:honest", [], "the module tests.deployment.trap is not accepted here"),
        (f"{TRAP}:honest", ["tests.deployment.tra"], "is not accepted here"),
        (f"{TRAP}:not_a_model", [TRAP], "must return Model, it returned dict"),
        (f"{TRAP}:SPRUNG", [TRAP], "not a list"),
        ("compositefl.core.resolve:resolve", [TRAP], "is not accepted here"),
        ("compositefl.models:build", [TRAP], "is not accepted here"),
        ("compositefl.models.zoo:_own", [TRAP], "is private to its module"),
        (f"{TRAP}:build", [TRAP], "comes from compositefl.models.zoo, which is not accepted"),
        (f"{TRAP}:_private", [TRAP], "is private to its module"),
    ],
)
def test_only_declared_factories_of_accepted_modules_are_called(model, modules, reason):
    trap.SPRUNG.clear()
    with pytest.raises(CompositeFLError) as error:
        Federation.parse(naming(model)).trusting(modules).check()
    assert reason in str(error.value) and not trap.SPRUNG


def test_no_model_of_the_library_runs_what_its_options_name(tmp_path):
    """The helper behind models.build took "module:name" again, of any module."""
    for helper in ("compositefl.models.zoo:_own", "compositefl.models.zoo:build"):
        mark = tmp_path / "ran"
        options = 'reference = "subprocess:getoutput"\nshape = [2]\nclasses = 2\n'
        options += f'options = {{cmd = "touch {mark}"}}'
        declared = naming(helper).replace("[algorithm]", f"{options}\n[algorithm]")
        with pytest.raises(CompositeFLError):
            Federation.parse(declared).check()
        assert not mark.exists()


def test_a_factory_of_an_accepted_module_is_used():
    accepted = Federation.parse(naming(f"{TRAP}:honest")).trusting([TRAP])
    assert accepted.check().make_model().name == "lasso"


@pytest.mark.parametrize("table", ["algorithm", "regularizer"])
def test_algorithms_and_regularizers_too(table):
    if table == "algorithm":
        declared = text().replace('"fednmap"', '"subprocess:Popen"')
    else:
        declared = text(regularizer="subprocess:Popen:1")
    with pytest.raises(CompositeFLError, match="the module subprocess is not accepted"):
        Federation.parse(declared).trusting([OWN]).check()


def test_a_regularizer_that_an_accepted_module_only_imports(monkeypatch):
    """It is defined elsewhere, where nobody has accepted anything; it is not even called."""

    class Imported(L1):
        def __init__(self, *numbers):
            trap.SPRUNG.append(numbers)

    monkeypatch.setattr(Imported, "__module__", "elsewhere")
    monkeypatch.setattr(trap, "Imported", Imported, raising=False)
    trap.SPRUNG.clear()
    declared = Federation.parse(text(regularizer=f"{TRAP}:Imported:1"))
    with pytest.raises(CompositeFLError, match="comes from elsewhere, which is not accepted"):
        declared.trusting([TRAP, OWN]).check()
    assert not trap.SPRUNG


def test_the_text_cannot_say_what_is_trusted():
    with pytest.raises(CompositeFLError, match="unknown entry 'modules'"):
        Federation.parse('modules = ["subprocess"]\n' + text())


def test_the_server_runs_only_what_its_own_file_accepts(tmp_path):
    pytest.importorskip("nvflare")
    from compositefl.deployment.flare import SERVER_FILE, admit

    local = tmp_path / "local"
    local.mkdir()
    with pytest.raises(CompositeFLError, match="the server has not been told to accept"):
        admit(tmp_path, text(), "run")  # no file: nothing
    (local / SERVER_FILE).write_text(f'accept = ["{with_hash(text())}"]\nmodules = ["{OWN}"]\n')
    federation, run = admit(tmp_path, text(), "run")
    assert run == "run" and federation.check().modules == (OWN,)
    with pytest.raises(CompositeFLError, match="has not been told"):
        admit(tmp_path, "not even TOML [", "run")  # refused before it is parsed
    for bad in ("../../..", "a/b", "..", "", "x" * 64, 7, None, ".hidden"):
        with pytest.raises(CompositeFLError, match="must be a name"):
            admit(tmp_path, text(), bad)
    with pytest.raises(CompositeFLError, match="must be text"):
        admit(tmp_path, {"path": "subprocess.Popen"}, "run")


@pytest.mark.parametrize("run", ["../../..", "a/../../b", "/etc/cron.d/x", ".."])
def test_a_run_cannot_leave_its_folder(tmp_path, run):
    """The attack: run = "../../.." made the server write outside its kit."""
    server = tmp_path / "a" / "b" / "c"
    with pytest.raises(CompositeFLError, match="must be a name"):
        Coordinator(declare(text()), InProcess({}), server, run).run()
    assert not list(tmp_path.rglob("*.npz"))


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('accept = ["x"]', "sha256 hashes of 64 digits"),
        ("accept = 3", "must be a list of names"),
        ("acept = []", "did you mean 'accept'"),
        ("accept = [", "not TOML"),
    ],
)
def test_a_wrong_server_file(tmp_path, content, reason):
    (tmp_path / "server.toml").write_text(content)
    with pytest.raises(CompositeFLError, match=r"server\.toml") as error:
        server_trust(tmp_path / "server.toml")
    assert reason in str(error.value)


def test_a_site_checks_the_hash_before_it_reads(tmp_path):
    local = Local(tmp_path, text(rounds=2))
    broken = "not even TOML ["
    with pytest.raises(CompositeFLError, match="north has not been told to accept"):
        local.sites["north"].admit(broken)
    with pytest.raises(CompositeFLError, match="not TOML"):
        Trust((with_hash(broken),)).admit(broken, "x", "y")
