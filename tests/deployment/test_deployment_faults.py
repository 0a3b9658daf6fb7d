"""Every fault: the site is named, the run goes on, and the states do not drift."""

import shutil
import threading
import time

import numpy as np
import pytest

from compositefl.deployment.messages import decode, encode
from tests.deployment.deployment_cases import AUTO, FAST, Local, centralised, gap, simulate, text

EXACT = 1e-12
ROUNDS = 6


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """The same run without a fault."""
    return Local(tmp_path_factory.mktemp("unbroken"), text(rounds=ROUNDS)).coordinator.run()


class Once:
    """A fault of one site in one round: `act(call)` replaces the call, the first time."""

    def __init__(self, act, site="east", round_=2):
        self.act, self.site, self.round, self.done = act, site, round_, False

    def __call__(self, site, method, payload, call):
        if method != "round" or site != self.site or self.done:
            return call()
        if decode(payload, len(payload)).values["round"] != self.round:
            return call()
        self.done = True
        return self.act(call)


def lost(call):
    raise ConnectionError("connection lost")


def lost_after(call):
    call()
    raise ConnectionError("connection lost")


def broken(call):
    raise RuntimeError("the data say 42")


def changed(values=None, **arrays):
    """An answer with other values or with arrays that a function has changed."""

    def act(call):
        message = decode(call(), 2**20)
        changes = arrays.get("change")
        new = {n: changes(a.copy()) if changes else a for n, a in message.arrays.items()}
        return encode(message.values | (values or {}), new)

    return act


def nan(a):
    a.flat[0] = np.nan
    return a


def inf(a):
    a.flat[-1] = np.inf
    return a


BAD = {
    "nan": (changed(change=nan), "NaN or infinity"),
    "inf": (changed(change=inf), "NaN or infinity"),
    "shape": (changed(change=lambda a: a[:-1]), "has shape (7,), expected (8,)"),
    "dtype": (changed(change=lambda a: a.astype(np.float32)), "has type float32"),
    "round": (changed({"round": 1}), "round 1 instead of 2"),
    "impostor": (changed({"site": "west"}), "site 'west' instead of 'east'"),
    "too long": (changed(change=lambda a: np.tile(a, 9000)), "above the limit"),
    "not a message": (lambda call: b"\x80\x04pickled", "not a message"),
    "not bytes": (lambda call: {"y": 1}, "must be bytes"),
    "steps": (changed({"steps": float("nan")}), "must be a int"),
    "exception": (broken, "RuntimeError in the site's code"),
    "killed mid-round": (lost, "connection lost"),
    "killed after its upload": (lost_after, "connection lost"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_round_of_one_site(tmp_path, name):
    act, reason = BAD[name]
    local = Local(tmp_path, text(rounds=ROUNDS), fault=Once(act))
    drifts = watch_drift(local)
    result = local.coordinator.run()
    assert result.rounds == ROUNDS
    assert [f for f in local.failures() if f.startswith("east round 2: ") and reason in f]
    assert all(f.startswith("east") for f in local.failures())
    assert "42" not in str(local.failures())  # a foreign error may quote data
    assert len(drifts) == ROUNDS and max(drifts) < EXACT
    member = local.coordinator.roster.members["east"]
    assert member.accepted == ROUNDS - 1  # it is back


def watch_drift(local):
    """|mean of the committed h_i - cbar| after every round."""
    drifts, report = [], local.coordinator.report

    def watch(event):
        report(event)
        if event["event"] == "round":
            drifts.append(local.drift())

    local.coordinator.report = watch
    return drifts


@pytest.mark.parametrize("act", [lost, lost_after, broken])
def test_a_retried_round_changes_nothing(tmp_path, act, unbroken):
    """Where all sites are needed the round is called again, and ends as if nothing had been."""
    local = Local(tmp_path, text(rounds=ROUNDS, minimum_sites=4), fault=Once(act))
    result = local.coordinator.run()
    assert local.failures()
    assert gap(result.params, unbroken.params) == 0


def test_a_method_that_needs_everyone_waits(tmp_path):
    local = Local(tmp_path, text("za1", rounds=ROUNDS), fault=Once(lost_after))
    result = local.coordinator.run()
    assert local.failures()
    assert gap(result.params, simulate(local.federation, local.data).params) < 1e-10


@pytest.mark.parametrize("act", [lost, lost_after])
def test_a_worker_that_restarts_reads_its_state(tmp_path, act, unbroken):
    def kill(call):
        try:
            return act(call)
        finally:
            local.restart("east")

    local = Local(tmp_path, text(rounds=ROUNDS, minimum_sites=4), fault=Once(kill))
    result = local.coordinator.run()
    assert gap(result.params, unbroken.params) == 0
    assert local.drift() < EXACT


def test_a_call_repeated_gets_the_same_answer(tmp_path, unbroken):
    answers = []

    def twice(call):
        answers.extend([call(), call()])
        return answers[1]

    local = Local(tmp_path, text(rounds=ROUNDS), fault=Once(twice))
    result = local.coordinator.run()
    assert answers[0] == answers[1]
    assert gap(result.params, unbroken.params) == 0


def test_overlapping_calls(tmp_path, unbroken):
    answers = []

    def together(call):
        threads = [threading.Thread(target=lambda: answers.append(call())) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers[0]

    local = Local(tmp_path, text(rounds=ROUNDS), fault=Once(together))
    result = local.coordinator.run()
    assert len(answers) == 3 and len(set(answers)) == 1
    assert gap(result.params, unbroken.params) == 0


def test_a_site_too_slow_for_the_timeout(tmp_path):
    """Its late work is rolled back; a stale call that arrives after a newer one is refused."""
    stale = []

    def late(call):
        time.sleep(1.0)
        try:
            return call()
        except Exception as error:
            stale.append(str(error))
            raise

    network = FAST.replace("20.0", "0.5")
    local = Local(tmp_path, text(rounds=12, network=network))
    local.coordinator.run()  # compiles, so that no other call is late
    local = Local(tmp_path / "b", text(rounds=12, network=network), fault=Once(late))
    drifts = watch_drift(local)
    result = local.coordinator.run()
    assert result.rounds == 12
    assert "east round 2: no answer within 0.5 seconds" in local.failures()
    time.sleep(0.7)
    assert max(drifts) < EXACT and local.drift() < EXACT
    assert all("came after" in text for text in stale)


def test_disk_full_on_a_site(tmp_path, unbroken):
    """The state before the round stands, and the round counts once there is space again."""

    def full(call):
        store = local.workers["east"]._session.store
        (store.folder / "pending.part").symlink_to("/dev/full")
        return call()

    local = Local(tmp_path, text(rounds=ROUNDS, minimum_sites=4), fault=Once(full))
    drifts = watch_drift(local)
    result = local.coordinator.run()
    assert local.failures() == ["east round 2: OSError: No space left on device"]
    assert max(drifts) < EXACT
    assert gap(result.params, unbroken.params) == 0


def test_a_site_that_joins_late(tmp_path):
    local = Local(tmp_path, text(rounds=20))
    handlers = local.coordinator.transport.handlers
    west = handlers.pop("west")
    drifts, report = watch_drift(local), local.coordinator.report

    def join(event):
        report(event)
        if event["event"] == "round" and event["round"] == 5:
            handlers["west"] = west

    local.coordinator.report = join
    result = local.coordinator.run()
    assert "west hello 0: ConnectionError: not connected" in local.failures()
    assert result.history.sites.iloc[0] == 3 and result.history.sites.iloc[-1] == 4
    assert max(drifts) < EXACT
    assert local.coordinator.roster.members["west"].accepted == 19


class Killed(Exception):
    pass


@pytest.mark.parametrize("when", ["before the checkpoint", "after the checkpoint"])
def test_the_server_is_killed_and_restarted(tmp_path, when, unbroken):
    local = Local(tmp_path, text(rounds=ROUNDS))
    save = local.coordinator._save

    def dying():
        at = local.coordinator.round == 3
        if at and when.startswith("before"):
            raise Killed
        save()
        if at:
            raise Killed

    local.coordinator._save = dying
    with pytest.raises(Killed):
        local.coordinator.run()
    local.coordinator = local.new_coordinator()
    assert local.coordinator.round == (2 if when.startswith("before") else 3)
    if when.startswith("after"):
        assert local.drift() < EXACT
    result = local.coordinator.run()
    assert not local.failures()
    assert gap(result.params, unbroken.params) == 0
    assert list(result.history["round"]) == list(unbroken.history["round"])
    np.testing.assert_array_equal(result.history.psi, unbroken.history.psi)


def test_too_few_sites_stops_and_can_be_resumed(tmp_path, unbroken):
    local = Local(tmp_path, text(rounds=ROUNDS, minimum_sites=3, network=FAST))
    handlers = local.coordinator.transport.handlers
    gone = {name: handlers.pop(name) for name in ("east", "west")}
    stopped = local.coordinator.run()
    assert (stopped.stopped, stopped.rounds) == ("too few sites", 0)
    handlers.update(gone)
    local.coordinator = local.new_coordinator()
    result = local.coordinator.run()
    assert result.stopped == "rounds"
    assert gap(result.params, unbroken.params) == 0


def test_a_lost_state_is_refused_by_name(tmp_path):
    def lose(call):
        shutil.rmtree(local.workers["east"]._session.store.folder)
        local.restart("east")
        return call()

    local = Local(tmp_path, text(rounds=ROUNDS), fault=Once(lose, round_=3))
    result = local.coordinator.run()
    assert result.rounds == ROUNDS
    assert any("state of round 2, the site has -1" in f for f in local.failures())
    assert local.coordinator.roster.members["east"].accepted == 2


def test_a_site_refuses_what_it_was_not_told_to_accept(tmp_path):
    local = Local(tmp_path, text(rounds=2))
    object.__setattr__(local.sites["east"], "accept", ())
    local.restart("east")
    result = local.coordinator.run()
    assert result.rounds == 2
    assert any("has not been told to accept the federation" in f for f in local.failures())
    assert local.workers["east"]._session is None


def test_divergence_is_told(tmp_path):
    declared = text(rounds=400).replace("local_lr = 0.05", "local_lr = 50.0")
    result = Local(tmp_path, declared).coordinator.run()
    assert result.stopped == "diverged" and result.diverged[0] > 0
    assert all(np.isfinite(v).all() for v in result.params.values())


def test_converges_to_the_centralised_solution_under_many_faults(tmp_path):
    rng = np.random.default_rng(0)
    acts = [lost, lost_after, broken, changed(change=nan), changed({"round": 0})]

    def fault(site, method, payload, call):
        if method != "round" or rng.random() > 0.15:
            return call()
        if rng.random() < 0.3:
            local.restart(site)
        return acts[rng.integers(len(acts))](call)

    declared = text(rounds=400, eval_every=100, minimum_sites=1)
    declared = declared.replace("local_lr = 0.05", "local_lr = 0.1")
    local = Local(tmp_path, declared, fault=fault)
    for stop in (100, 250):  # the server dies too
        local.coordinator._enough = lambda stop=stop: "killed" * (local.coordinator.round >= stop)
        local.coordinator.run()
        local.coordinator = local.new_coordinator()
    result = local.coordinator.run()
    assert len(local.failures()) > 100
    assert local.drift() < 1e-10
    solution = centralised(local.data, 0.05)
    assert gap(result.params["w"], solution) < 1e-6


def test_a_site_that_is_lost_in_a_duel(tmp_path):
    """Numbers set themselves: objectives of other sites are not compared, and the states fit."""

    def fault(site, method, payload, call):
        if site == "east" and 5 <= local.coordinator.round < 9:
            raise ConnectionError("connection lost")
        return call()

    local = Local(tmp_path, AUTO.replace("rounds = 30", "rounds = 24"), fault=fault)
    result = local.coordinator.run()
    assert {f.split()[0] for f in local.failures()} == {"east"}
    assert local.drift() < 1e-12
    assert result.history.psi.iloc[-1] < result.history.psi.iloc[0]
    assert local.coordinator.steered.sites == list(local.sites)
