"""`deploy try` on a federation of one's own: its file with other sites, and data that fit it."""

import numpy as np
import pytest

from compositefl.cli.rehearsal_data import LARGEST, declare, digits, invented, own, write_site
from compositefl.cli.rehearsal_tables import apart, fit_here, invented_tables
from compositefl.core.errors import CompositeFLError
from compositefl.deployment import InProcess, Site, Worker
from compositefl.deployment.dry_run import dry_run
from compositefl.deployment.glm_server import GLMCoordinator

NAMED = """name = "mine"
sites = [
  "a",  # the first
  "b",
]
rounds = 500
batch_size = 16
minimum_sites = 2
eval_every = 5

[data]
features = ["age", "smoker", "visits"]
target = "ill"
labels = ["no", "yes"]
kinds = {smoker = "binary", visits = "whole"}

[model]
name = "mlp"
hidden = [4]

[algorithm]
name = "fednmap"
local_steps = 2
local_lr = 0.1
"""
SHAPED = NAMED.partition("[data]")[0] + (
    '[model]\nname = "mlp"\ninput_shape = [3, 2]\nclasses = 3\nhidden = [4]\n[algorithm]'
    + NAMED.partition("[algorithm]")[2]
)


def test_other_sites_and_rounds_in_the_same_file(tmp_path):
    (tmp_path / "f.toml").write_text(NAMED)
    federation = own(tmp_path / "f.toml", 3, 7, ())
    assert federation.sites == ("site-1", "site-2", "site-3") and federation.rounds == 7
    assert federation.batch_size == 16 and federation.minimum == 2
    same = own(tmp_path / "f.toml", None, None, ())
    assert same.text == NAMED
    (tmp_path / "g.toml").write_text(NAMED.replace("rounds =", '"rounds" ='))
    with pytest.raises(CompositeFLError, match="edit a copy of it"):
        own(tmp_path / "g.toml", None, 7, ())


def test_invented_data_pass_the_checks_of_a_site(tmp_path):
    (tmp_path / "f.toml").write_text(NAMED)
    federation = own(tmp_path / "f.toml", 2, 3, ())
    clients, tests = invented(federation)
    write_site(tmp_path, "site-1", federation, clients[0], tests[0])
    found = dry_run(Site.read(tmp_path / "site.toml"), federation)
    assert found.wrong == [] and (found.samples, found.tests) == (200, 40)
    assert {"hello", "round", "evaluate"} == found.answers.keys()


def test_invented_data_of_a_shape(tmp_path):
    (tmp_path / "f.toml").write_text(SHAPED)
    federation = own(tmp_path / "f.toml", None, None, ())
    clients, tests = invented(federation)
    assert [c.x.shape for c in clients] == [(200, 3, 2)] * 2
    assert set(np.unique(clients[0].y)) == {0, 1, 2}
    write_site(tmp_path, "a", federation, clients[0], tests[0])
    train, test = Site.read(tmp_path / "site.toml").load(classes=3)
    assert train.x.shape == (200, 3, 2) and len(test.y) == 40


@pytest.mark.parametrize(
    ("target", "glm"),
    [
        ('target = "ill"\nlabels = ["yes", "no"]', 'family = "binomial"\ncv = 3\nalphas = 5'),
        ('target = "days"', 'family = "cox"\nalpha = 0.01\nevent = "died"\nweight = "w"'),
    ],
)
def test_invented_tables_of_a_linear_model(tmp_path, target, glm):
    named = NAMED.partition("[data]")[0].replace("batch_size = 16\n", "")
    named = named.replace("minimum_sites = 2\neval_every = 5\n", "")
    columns = '[data]\nfeatures = ["age", "smoker", "visits"]\nkinds = {smoker = "binary"}\n'
    (tmp_path / "f.toml").write_text(f"{named}{columns}{target}\n[glm]\n{glm}\n")
    federation = own(tmp_path / "f.toml", None, None, ())
    tables, handlers = invented_tables(federation), {}
    for name, table in zip(federation.sites, tables, strict=True):
        (tmp_path / name).mkdir()
        write_site(tmp_path / name, name, federation, table, None)
        site = Site.read(tmp_path / name / "site.toml")
        handlers[name] = Worker(site, tmp_path / name / "state").handle
    assert dry_run(site, federation).wrong == []
    server = GLMCoordinator(federation, InProcess(handlers), tmp_path / "server", "run")
    assert apart(server.run().model, fit_here(federation, tables)) < 1e-10


def test_digits_in_equal_shares():
    federation = declare(3, 4, "fednmap", 0)
    clients, tests = digits(len(federation.sites))
    assert len({len(c.y) for c in clients}) == len({len(t.y) for t in tests}) == 1


def never(*given, **more):
    raise AssertionError("a node was made")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--sites 0", "--sites 0 must be a whole number >= 1"),
        ("--rounds 0", "--rounds 0 must be a whole number >= 1"),
        ("--sites -3", "--sites -3 must be a whole number >= 1"),
        ("--sites 361", "--sites 361 must be at most 360 on digits"),
        ("--algorithm fednmpa", "--algorithm fednmpa: unknown algorithm"),
        ("--federation nothere.toml", "nothere.toml is not a file"),
        ("--federation f.toml --sites 0", "--sites 0 must be a whole number >= 1"),
        ("--federation f.toml --rounds 0", "--rounds 0 must be a whole number >= 1"),
    ],
)
def test_wrong_words_are_refused_before_a_node_is_made(cli, tmp_path, monkeypatch, words, said):
    rehearsal = pytest.importorskip("compositefl.cli.rehearsal", reason="needs FLARE")
    monkeypatch.setattr(rehearsal.flare, "provision", never)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.toml").write_text(NAMED)
    answer = cli("deploy", "try", "--folder", tmp_path / "new", *words.split())
    assert answer.code == 2 and answer.err.startswith(f"error: {said}"), answer.err
    assert answer.err.count("\n") == 1 and not (tmp_path / "new").exists()


def test_every_number_of_sites_that_is_taken_has_tests():
    assert all(len(part.y) == 1 for part in digits(LARGEST)[1])
    assert len(declare(LARGEST, None, "fednmap", 0).sites) == LARGEST


@pytest.mark.parametrize("folder", [True, False])
def test_what_is_left_after_ctrl_c_is_told(cli, tmp_path, monkeypatch, folder):
    rehearsal = pytest.importorskip("compositefl.cli.rehearsal", reason="needs FLARE")

    def interrupted(federation, root, *given):
        (root / "keys").mkdir(parents=True)
        raise KeyboardInterrupt

    monkeypatch.setattr(rehearsal, "_deployed", interrupted)
    answer = cli("deploy", "try", *(["--folder", tmp_path / "new"] if folder else []))
    left = f"keys, kits and what there is of the run lie in {tmp_path / 'new'}\n" if folder else ""
    assert (answer.code, answer.err) == (130, f"{left}interrupted\n")
    assert (tmp_path / "new" / "keys").is_dir() == folder


def test_ctrl_c_before_there_are_kits_tells_of_none(cli, tmp_path, monkeypatch):
    rehearsal = pytest.importorskip("compositefl.cli.rehearsal", reason="needs FLARE")

    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(rehearsal, "_deployed", interrupted)
    answer = cli("deploy", "try", "--folder", tmp_path)
    assert (answer.code, answer.err) == (130, "interrupted\n")


@pytest.mark.parametrize("command", ["provision --host h", "add", "move --host h", "submit"])
def test_a_federation_that_is_not_there_is_wrong_input(cli, command):
    pytest.importorskip("nvflare", reason="needs pip install 'compositefl[deploy]'")
    name, *more = command.split()
    answer = cli("deploy", name, "nothere.toml", *more)
    assert (answer.code, answer.err) == (2, "error: nothere.toml is not a file\n")
