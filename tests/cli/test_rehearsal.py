"""`deploy try` on a federation of one's own: its file with other sites, and data that fit it."""

import numpy as np
import pytest

from compositefl.cli.rehearsal_data import declare, digits, invented, own, write_site
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
    with pytest.raises(CompositeFLError, match="--sites 1000 must be"):
        digits(1000)
