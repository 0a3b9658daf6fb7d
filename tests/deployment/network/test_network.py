"""Real processes, mutual TLS, real faults. Each run ends where it should."""

import json
import os
import signal
import stat

import pytest

pytest.importorskip("nvflare", reason="needs pip install 'compositefl[deploy]'")

import psutil

from tests.deployment.deployment_cases import OWN, centralised, gap, lasso_data, simulate, text
from tests.deployment.test_deployment_door import knock, strangers, wait_for_lines

full = pytest.mark.full
EXACT = 1e-12
PATIENT = "[network]\nround_timeout = 60.0\nretry_wait = 0.5\nretries = 5\n"
HASTY = PATIENT.replace("60.0", "4.0") + "probe_timeout = 2.0\n"
REGROUPING = HASTY + "regroup_after = 60\n"
TWICE = "[limits]\nruns = 2\n"  # under two names
LONG = text(rounds=400, eval_every=100, minimum_sites=3, network=PATIENT, extra=TWICE)


@pytest.fixture(scope="module")
def expected(net):
    """Where an unbroken run ends: the simulation says it."""

    def of(outcome):
        return simulate(outcome.record.federation().trusting([OWN]), lasso_data()).params

    return of


def test_a_worker_killed_alone_is_continued_by_a_new_job(net, expected):
    """FLARE aborts the whole job; the run ends as if nothing had happened."""
    declared = text(rounds=8, eval_every=4, minimum_sites=4, network=PATIENT)
    outcome = net.run("killed-worker", declared, {"east": {"round": 3, "kind": "kill worker"}})
    assert outcome.jobs == 2
    assert outcome.config["stopped"] == "rounds"
    assert gap(outcome.params, expected(outcome)) < 1e-10
    assert outcome.drift() < EXACT


def test_what_provisioning_and_a_run_write_is_for_its_owner_alone(net):
    """The attack: state/cert.json held every private key and all could read it."""
    ours = {"site.toml", "fault.json", "fault.done"}  # written by the tests
    written = [p for p in net.root.rglob("*") if p.name not in ours and not p.is_symlink()]
    names = {path.name for path in written}
    assert {"cert.json", "client.key", "log.txt", "node.log", "server.state", "committed"} <= names
    assert not [str(p) for p in written if stat.S_IMODE(p.stat().st_mode) & 0o077]


def test_strangers_are_noted_with_address_and_reason(net, tmp_path):
    """No certificate, another authority, old TLS, no TLS: each leaves a line in the log."""
    startup = net.nodes["localhost"] / "startup" / "fed_server.json"
    port = int(json.loads(startup.read_text())["servers"][0]["service"]["target"].split(":")[1])
    wanted = [
        f"connection from 127.0.0.1:{knock(port, **how)} refused: {reason}"
        for reason, how in strangers(tmp_path / "evil").items()
    ]
    wait_for_lines(net.nodes["localhost"] / "log.txt", wanted)


@full
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("nan", "NaN or infinity"),
        ("inf", "NaN or infinity"),
        ("shape", "has shape (7,), expected (8,)"),
        ("dtype", "has type float32"),
        ("round", "round 0 instead of 3"),
        ("exception", "RuntimeError in the site's code"),
        ("disk full", "No space left on device"),
    ],
)
def test_a_bad_upload_is_refused_and_the_site_named(net, kind, reason):
    declared = text(rounds=6, eval_every=3, minimum_sites=3, network=PATIENT)
    name = "bad-" + kind.replace(" ", "-")
    outcome = net.run(name, declared, {"south": {"round": 3, "kind": kind}})
    assert outcome.jobs == 1 and outcome.config["rounds_run"] == 6
    assert len(outcome.failures) == 1 and reason in outcome.failures[0]
    assert outcome.failures[0].startswith("south round 3: ") and "42" not in outcome.failures[0]
    assert outcome.drift() < EXACT


@full
def test_a_worker_killed_after_its_upload(net, expected):
    declared = text(rounds=7, eval_every=7, minimum_sites=4, network=PATIENT)
    fault = {"west": {"round": 3, "kind": "kill worker after its upload"}}
    outcome = net.run("killed-after", declared, fault)
    assert outcome.jobs == 2
    assert gap(outcome.params, expected(outcome)) < 1e-10
    assert outcome.drift() < EXACT


@full
def test_a_site_too_slow_for_the_timeout(net):
    declared = LONG.replace(PATIENT, HASTY)
    outcome = net.run("slow", declared, {"north": {"round": 5, "kind": "slow"}})
    assert outcome.jobs == 1
    assert any(f.startswith("north round 5: ") and "timed out" in f for f in outcome.failures)
    assert outcome.drift() < EXACT
    assert gap(outcome.params["w"], centralised(lasso_data(), 0.05)) < 1e-6


@full
def test_a_whole_site_is_lost_and_comes_back(net):
    """The others go on; a new job gathers all sites once it is back."""
    declared = LONG.replace(PATIENT, REGROUPING)
    record = net.submit("lost-site", declared, {"east": {"round": 5, "kind": "kill site"}})
    net.wait_for_round(record, 8)
    net.start("east")
    outcome = net.follow(record)
    assert outcome.jobs >= 2
    assert any(f.startswith("east round 5: ") for f in outcome.failures)
    assert outcome.drift() < EXACT
    assert gap(outcome.params["w"], centralised(lasso_data(), 0.05)) < 1e-6


@full
def test_the_server_is_killed_and_restarted(net, expected):
    declared = LONG.replace("minimum_sites = 3", "minimum_sites = 4").replace("400", "300")
    record = net.submit("killed-server", declared)
    net.wait_for_round(record, 20)
    server = net.flare.running(net.nodes["localhost"])
    for process in [*server.children(recursive=True), server]:
        os.kill(process.pid, signal.SIGKILL)
    psutil.wait_procs([server], timeout=10)
    net.start("localhost")
    net.wait_for({"north", "east", "south", "west"})
    outcome = net.follow(record)
    assert outcome.jobs >= 2
    assert gap(outcome.params, expected(outcome)) < 1e-10
    assert outcome.drift() < EXACT


@full
def test_a_site_that_joins_late(net):
    """The job starts without it; the next one takes it in."""
    net.flare.stop(net.nodes["west"], net.say)
    declared = LONG.replace(PATIENT, REGROUPING)
    record = net.submit("late", declared, heal=False)
    net.wait_for_round(record, 3)
    net.start("west")
    outcome = net.follow(record)
    assert outcome.jobs >= 2
    assert outcome.drift() < EXACT
    assert gap(outcome.params["w"], centralised(lasso_data(), 0.05)) < 1e-6


@full
def test_a_site_refuses_a_federation_that_it_was_not_told_to_accept(net):
    declared = text(rounds=3, eval_every=3, minimum_sites=3, seed=99, network=PATIENT)
    outcome = net.run("refused", declared, accept={"north", "east", "south"})
    assert outcome.config["rounds_run"] == 3
    assert all("west has not been told to accept" in f for f in outcome.failures)
    assert not (net.nodes["west"] / net.flare.STATE / "refused").exists()


@full
def test_shipped_code_is_refused(net):
    """A job that brings its own classes does not run at any node."""
    declared = text(rounds=2, eval_every=2, minimum_sites=3, network=PATIENT)
    from compositefl.deployment import Federation, supervise

    job = net.flare.write_job(Federation.parse(declared), "shipped", net.root / "jobs")
    custom = job / "app" / "custom"
    custom.mkdir()
    (custom / "evil.py").write_text("raise SystemExit('ran')\n")
    submitted = net.admin.submit(job)
    state = supervise.wait(net.admin, submitted, 1.0)
    assert state == "FINISHED:FAILED_TO_RUN"
    assert "BYOC" in (net.nodes["localhost"] / "log.txt").read_text()
    assert not (net.nodes["localhost"] / net.flare.STATE / "shipped").exists()


@full
def test_what_there_is_of_a_run_that_goes_on(net, capsys):
    """`result` during a run, numbers for a monitoring system, and the status of its server."""
    from compositefl.cli import main

    record = net.submit("asked", LONG)
    net.wait_for_round(record, 3)
    capsys.readouterr()
    code = main(["deploy", "result", "--folder", str(net.root), "--run", "asked"])
    told = capsys.readouterr().out
    assert code == 1 and "the run asked goes on" in told and "of 400" in told
    assert all(site in told for site in ("north", "east", "south", "west"))
    outcome = net.follow(record)
    assert outcome.config["rounds_of_sites"]["west"] == 400
    server = net.nodes["localhost"]
    numbers = (server / net.flare.STATE / "asked" / "metrics.prom").read_text()
    assert 'compositefl_round{run="asked"} 400.0' in numbers
    assert 'compositefl_site_in{run="asked",site="west"} 1.0' in numbers
    assert main(["deploy", "status", str(server)]) == 0
    assert "asked: round 400 of 400" in capsys.readouterr().out
