"""A site gives what it agreed to and no more, whatever a server asks."""

import dataclasses

import numpy as np
import pytest

from compositefl.core.errors import CompositeFLError
from compositefl.deployment import Coordinator, InProcess, Site
from compositefl.deployment.ledger import FOLDER, Ledger, SiteLimits, accounts
from tests.deployment.deployment_cases import Local, declare, text, write_sites

NOISE = "[privacy]\nclip = 1.0\nnoise = 2.0\n"


def greedy(local, run="run", **changes):
    """A server that asks for more than the file says, under the file's own hash."""
    federation = dataclasses.replace(local.federation, **changes)
    events = []
    server = Coordinator(
        federation,
        InProcess(local.handlers()),
        local.folder / f"server-{run}",
        run,
        events.append,
    )
    result = server.run()
    return result, {e["reason"] for e in events if e["event"] == "failure"}


def given(local, site="north"):
    """The ledger of a site for its only federation."""
    (account,) = accounts(local.folder / site / "state")
    return account["runs"]


def test_rounds_beyond_the_agreed_number_are_refused(tmp_path):
    """The attack: a server that asked for more rounds got them."""
    local = Local(tmp_path, text(rounds=3, eval_every=0))
    result, told = greedy(local, rounds=9)
    assert result.rounds == 3 and result.stopped == "too few sites"
    assert told == {"round=3: this site agreed to 3 rounds"}
    assert given(local)["run"]["uploads"] == 3


def test_a_run_under_a_new_name_is_refused(tmp_path):
    """The attack: each new name of a run got all rounds again."""
    local = Local(tmp_path, text(rounds=2, eval_every=0))
    assert greedy(local, "first")[0].rounds == 2
    for name in local.sites:
        local.restart(name)  # the ledger is on disk
    result, told = greedy(local, "second")
    assert result.rounds == 0
    assert told == {
        "this site agreed to 1 run of the federation and has answered first; its owner may raise "
        "runs in [limits] of site.toml"
    }
    assert greedy(local, "first")[0].rounds == 2  # the run that it knows may be looked at again


def test_the_federation_or_the_owner_may_allow_more_runs(tmp_path):
    declared = text(rounds=2, eval_every=0, extra="[limits]\nruns = 2\n")
    local = Local(tmp_path, declared)
    assert [greedy(local, run)[0].rounds for run in ("a", "b", "c")] == [2, 2, 0]
    generous = dataclasses.replace(local.sites["north"], limits=SiteLimits(runs=3))
    local.sites["north"] = generous
    local.restart("north")
    _, told = greedy(local, "c", minimum_sites=1)
    assert set(given(local)) == {"a", "b", "c"} and set(given(local, "east")) == {"a", "b"}
    assert len(told) == 1


def test_one_round_asked_again_and_again(tmp_path):
    """Other messages for the same round: the spare ones are few, and none with noise."""
    local = Local(tmp_path, text(rounds=2, eval_every=0))
    ledger = Ledger(tmp_path / "own", local.federation, "run", SiteLimits())
    for number in range(1, 13):
        assert ledger.check("uploads") == number
        ledger.record("uploads", number)
    with pytest.raises(CompositeFLError, match="agreed to 12 uploads in a run and has given them"):
        ledger.check("uploads")
    noisy = declare(text("fedda", rounds=2, eval_every=0, extra=NOISE))
    assert Ledger(tmp_path / "own", noisy, "run", SiteLimits()).most == {
        "uploads": 2,
        "openings": 2,
        "evaluations": 0,
        "curvatures": 0,
    }


def test_evaluations_are_counted_and_may_be_off(tmp_path):
    """The attack: exact gradients at points of the server's choice, also with eval_every = 0."""
    local = Local(tmp_path, text(rounds=3, eval_every=0))
    result, told = greedy(local, eval_every=1)
    assert told == {"this federation has eval_every = 0: nothing is evaluated"}
    assert np.isnan(result.history.psi).all()
    local = Local(tmp_path / "b", text(rounds=3, eval_every=3))
    local.coordinator.run()
    spent = given(local)["run"]["evaluations"]
    assert spent == 2  # the start and the end; FedNMap has a z of its own
    judge = local.coordinator.judge
    for _ in range(40):
        judge.measure(3, local.coordinator.server, list(local.sites))
    assert given(local)["run"]["evaluations"] == 2 * (1 + 2 + 10)
    assert any("agreed to 26 evaluations" in f for f in local.failures())


def test_the_privacy_loss_that_was_agreed_is_not_exceeded(tmp_path):
    """The attack: agreed epsilon 5.98, given 77.4."""
    pytest.importorskip("dp_accounting")
    from compositefl.deployment.privacy import epsilon

    local = Local(tmp_path, text("fedda", rounds=4, eval_every=0, extra=NOISE))
    agreed = epsilon(local.federation.privacy, 4)
    for attempt in range(3):
        greedy(local, f"run-{attempt}", rounds=40)
    uploads = sum(run["uploads"] for run in given(local).values())
    assert uploads == 4 and epsilon(local.federation.privacy, uploads) == agreed


def test_an_epsilon_over_all_runs_and_over_all_federations(tmp_path):
    pytest.importorskip("dp_accounting")
    from compositefl.deployment.privacy import epsilon, epsilon_of

    extra = NOISE + "epsilon = 12.0\n[limits]\nruns = 9\n"
    local = Local(tmp_path, text("fedda", rounds=3, eval_every=0, extra=extra))
    for run in ("a", "b", "c"):
        _, told = greedy(local, run)
    privacy = local.federation.privacy
    uploads = sum(run["uploads"] for run in given(local).values())
    assert epsilon(privacy, uploads) <= 12 < epsilon(privacy, uploads + 1)
    assert any(line.startswith("one more upload would cost this site epsilon") for line in told)
    with pytest.raises(CompositeFLError, match=r"epsilon=12 is less than the .* of 400 rounds"):
        declare(text("fedda", rounds=400, eval_every=0, extra=extra)).check()
    # of its owner: over all federations
    state, own = tmp_path / "north" / "state", SiteLimits(epsilon=13.0)
    other = declare(text("fedda", rounds=30, eval_every=0, seed=9, extra=NOISE))
    ledger, more = Ledger(state, other, "x", own), 0
    with pytest.raises(CompositeFLError, match="it gives 13"):
        while True:
            ledger.record("uploads", ledger.check("uploads"))
            more += 1
    assert epsilon_of([(2.0, uploads), (2.0, more)], 1e-5) <= 13
    assert epsilon_of([(2.0, uploads), (2.0, more + 1)], 1e-5) > 13
    with pytest.raises(CompositeFLError, match="the federation adds no noise"):
        Ledger(state, declare(text()), "x", own)


@pytest.mark.parametrize("part", ["train", "test"])
def test_a_site_with_too_few_people_does_not_take_part(tmp_path, part):
    """The attack: a site with one patient was accepted."""
    federation = declare(text(model="mlp", rounds=2, dtype="float32"))
    rng = np.random.default_rng(0)

    def people(count):
        return rng.normal(size=(count, 4)), rng.integers(0, 3, count)

    data = [people(4 if part == "train" and i == 1 else 9) for i in range(4)]
    sites = write_sites(tmp_path, federation, data, people(4) if part == "test" else None)
    local = Local(tmp_path / "run", federation.text, "mlp")
    local.sites = sites
    for name in sites:
        local.restart(name)
    local.coordinator.run()
    told = [f for f in local.failures() if "samples than the minimum of 5" in f]
    assert told and all(f.startswith("east hello") or part == "test" for f in told)
    assert "4" not in told[0].partition(": ")[2]  # not even how few


def test_the_owner_sets_limits_in_site_toml(tmp_path):
    pathway = tmp_path / "site.toml"
    start = 'name = "n"\nfunction = "a:b"\n[limits]\n'
    pathway.write_text(start + "runs = 2\nuploads = 50\nepsilon = 3.0\nminimum_samples = 20\n")
    assert Site.read(pathway).limits == SiteLimits(2, 50, 3.0, 20)
    for wrong, reason in (("runs = 0", "runs=0 must be"), ("epsilom = 1.0", "did you mean")):
        pathway.write_text(start + wrong)
        with pytest.raises(CompositeFLError, match=reason):
            Site.read(pathway)
    ledger = Ledger(tmp_path, declare(text(rounds=9)), "run", SiteLimits(uploads=2))
    for _ in range(2):
        ledger.record("uploads", ledger.check("uploads"))
    with pytest.raises(CompositeFLError, match="allows 2 uploads of a federation"):
        ledger.check("uploads")


def test_a_damaged_ledger_is_refused_and_the_same_answer_costs_nothing(tmp_path):
    local = Local(tmp_path, text(rounds=2, eval_every=0))
    ledger = Ledger(tmp_path / "own", local.federation, "run", SiteLimits())
    ledger.record("uploads", 1)
    before = ledger.path.read_bytes()
    ledger.record("uploads", 1)  # the pending upload, sent again
    assert ledger.path.read_bytes() == before
    ledger.path.write_bytes(before[:-1] + b"x")
    with pytest.raises(CompositeFLError, match="does not know what it has given"):
        ledger.check("uploads")
    assert ledger.path.parent.name == FOLDER
