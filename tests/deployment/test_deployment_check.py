"""`deploy check`: a site sees what it would send before anything leaves it."""

import re
import types

import numpy as np
import pytest

from compositefl.deployment.dry_run import dry_run
from compositefl.deployment.health import metrics, report_health
from compositefl.deployment.progress import Progress
from tests.deployment.deployment_cases import (
    AUTO,
    Local,
    declare,
    network_data,
    text,
    write_sites,
)


@pytest.fixture
def kit(tmp_path):
    """The kit of a site with its data and the federation."""
    federation = declare(text(model="mlp", dtype="float32", regularizer="l1:0.01"))
    sites = write_sites(tmp_path, federation, network_data())
    local = tmp_path / "kit" / "local"
    local.mkdir(parents=True)
    for file in sites["north"].folder.iterdir():
        file.rename(local / file.name)
    (local / "federation.toml").write_text(federation.text)
    return local.parent


def check(kit, capsys):
    from compositefl.cli import main

    code = main(["deploy", "check", str(kit)])
    return code, capsys.readouterr().out


def test_what_would_be_sent(kit, capsys):
    code, told = check(kit, capsys)
    assert code == 0 and "nothing was sent" in told
    assert "12 training and 0 test samples" in told
    assert "upload/tree/dense0/kernel: 4 x 5 float32" in told
    assert "gradient/tree/dense0/kernel: 4 x 5 float32" in told
    assert sorted(p.name for p in kit.iterdir()) == ["local"]  # no state is left


def test_a_dry_run_shows_the_curvature(tmp_path):
    """Where numbers set themselves a site sends it first."""
    local = Local(tmp_path, AUTO)
    found = dry_run(local.sites["north"], local.federation)
    assert not found.wrong and {"curvature", "round", "evaluate"} <= found.answers.keys()
    assert found.answers["curvature"][0].values["curvature"] > 0


def test_data_that_do_not_fit_the_model(kit, capsys):
    x, y = network_data()[0]
    np.savez(kit / "local" / "data.npz", x=x[:, :-1], y=y)
    code, told = check(kit, capsys)
    assert code == 1 and "! hello: " in told and "3" in told.splitlines()[-1]
    assert "nothing was sent" not in told


def test_a_site_toml_of_another_name(kit, capsys):
    """It was a traceback, or with the name of another site of the federation not told at all."""
    file = kit / "local" / "site.toml"
    file.write_text(file.read_text().replace('"north"', '"nord"'))
    code, told = check(kit, capsys)
    assert code == 1 and "! nord is not a site of the federation: north, east, south" in told
    assert "nothing was sent" not in told


def test_a_site_toml_of_another_site(kit, capsys, monkeypatch):
    pytest.importorskip("nvflare", reason="needs pip install 'compositefl[deploy]'")
    from compositefl.deployment import flare_kits

    (kit / "startup").mkdir()
    read = lambda _: types.SimpleNamespace(name="east")  # noqa: E731
    monkeypatch.setattr(flare_kits, "Kit", types.SimpleNamespace(read=read))
    code, told = check(kit, capsys)
    assert code == 1 and "! site.toml is of north, the certificate of east" in told


def test_a_federation_that_the_site_does_not_accept(kit, capsys):
    file = kit / "local" / "site.toml"
    file.write_text(re.sub("accept = .*", "accept = []", file.read_text()))
    code, told = check(kit, capsys)
    assert code == 1 and "NOT accepted" in told
    assert "upload/tree/dense0/kernel" in told  # it may look at what it would agree to


def test_numbers_for_a_monitoring_system(tmp_path):
    """Each line is a comment or `name{labels} number`, and the counts are right."""
    path = tmp_path / "metrics.prom"
    report = report_health(path, "first", Progress.of(("a", "b")))
    about = {"site": "b", "call": "round", "round": 1, "reason": "no", "lost": True}
    for event in (
        {"event": "start", "round": 0, "rounds": 8},
        {"event": "round", "round": 1, "sites": ["a", "b"], "time": 10.0},
        {"event": "failure", **about},
        {"event": "round", "round": 2, "sites": ["a"], "time": 10.5},
        {"event": "stop", "reason": "rounds", "round": 2},
    ):
        report(event)
    lines = path.read_text().splitlines()
    numbers = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert all(float(number) is not None for number in numbers.values())
    assert numbers['compositefl_round{run="first"}'] == "2.0"
    assert numbers['compositefl_running{run="first"}'] == "0.0"
    assert numbers['compositefl_sites_in{run="first"}'] == "1.0"
    assert numbers['compositefl_round_seconds{run="first"}'] == "0.5"
    assert numbers['compositefl_site_failures_total{run="first",site="b"}'] == "1.0"
    assert numbers['compositefl_site_rounds_total{run="first",site="a"}'] == "2.0"
    helped = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    assert {name.partition("{")[0] for name in numbers} == helped
    assert "nan" not in metrics("first", Progress.of(("a",))).lower()
