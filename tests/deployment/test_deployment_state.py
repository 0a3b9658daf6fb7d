"""State on disk: damage is seen, others cannot read it, and two jobs cannot share it."""

import os
import stat
import threading
import time

import numpy as np
import pytest

from compositefl.core.errors import CompositeFLError
from compositefl.core.files import Damaged, make_private, read_sealed, unseal, write_sealed
from compositefl.deployment import Coordinator, InProcess
from compositefl.deployment.coordinator import write_progress
from compositefl.deployment.store import Entry, Store
from tests.deployment.deployment_cases import Local, gap, text

ROUNDS = 6
H = np.array([0.25, -1.5])


def flip(data, bit):
    """The same bytes with one bit turned."""
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def kept(folder, which="committed"):
    """A store with one state on disk, and the path of that file."""
    store = Store(folder, {"h": 0 * H}, {"y": H})
    with store.locked():
        store.keep(Entry(0, "d", 1, 1, {"y": H}, {"h": H}))
    if which == "committed":
        store.settle(0, 1)
    return folder / which


def harmless(content):
    """The bits that can be turned without notice."""
    found = []
    for bit in range(8 * len(content)):
        try:
            unseal(flip(content, bit), "a state", "")
        except Damaged:
            continue
        found.append(bit)
    return found


@pytest.mark.parametrize("which", ["committed", "pending"])
def test_every_flipped_bit_of_a_sites_state_is_refused(tmp_path, which):
    """The attack: 415 of 600 single flipped bits loaded with other content."""
    path = kept(tmp_path / "s", which)
    good = path.read_bytes()
    assert harmless(good) == []
    wrong = [flip(good, bit) for bit in range(0, 8 * len(good), 97)]
    wrong += [good[:cut] for cut in (0, 1, 30, len(good) - 1)] + [good + b"x"]
    for content in wrong:
        path.write_bytes(content)
        with pytest.raises(Damaged) as error:
            getattr(Store(tmp_path / "s", {"h": 0 * H}, {"y": H}), which)
        assert f"s/{which} is damaged" in str(error.value)
        assert "start a new run" in str(error.value)
    path.write_bytes(good)
    found = getattr(Store(tmp_path / "s", {"h": 0 * H}, {"y": H}), which)
    assert found.round == 0 and np.array_equal(found.state["h"], H)


def test_every_flipped_bit_of_the_servers_state_is_refused(tmp_path):
    local = Local(tmp_path, text(rounds=2))
    local.coordinator.run()
    path = local.coordinator.path
    good = path.read_bytes()
    assert harmless(good) == []
    path.write_bytes(flip(good, 8 * len(good) - 1))
    with pytest.raises(CompositeFLError, match=r"run/server\.state is damaged, its sha256"):
        local.new_coordinator()
    path.write_bytes(good)
    assert local.new_coordinator().round == 2


def test_a_state_of_an_earlier_version_says_what_to_do(tmp_path):
    local = Local(tmp_path, text(rounds=2))
    local.coordinator.path.parent.mkdir(parents=True)
    local.coordinator.path.with_suffix(".npz").write_bytes(b"PK")
    with pytest.raises(CompositeFLError, match="of an earlier version: end the run with that"):
        local.new_coordinator()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    return Local(tmp_path_factory.mktemp("unbroken"), text(rounds=ROUNDS)).coordinator.run()


class Harm:
    """Before round 3 of east: restart its worker, and turn a bit of one of its files."""

    def __init__(self, which):
        self.which, self.done, self.local = which, False, None

    def __call__(self, site, method, payload, call):
        if site == "east" and method == "round" and self.local.coordinator.round == 3:
            if not self.done:
                self.done = True
                store = self.local.workers["east"]._session.store
                path = store.folder / self.which
                path.write_bytes(flip(path.read_bytes(), 8 * path.stat().st_size - 1))
                self.local.restart("east")
                self.local.workers["east"].handle("hello", self.hello)
        elif site == "east" and method == "hello":
            self.hello = payload
        return call()


def test_a_damaged_state_that_does_not_count_is_replaced_by_the_other(tmp_path, unbroken):
    """Before round 3 the accepted state is the pending one: a damaged committed one is no harm."""
    harm = Harm("committed")
    harm.local = local = Local(tmp_path, text(rounds=ROUNDS, eval_every=0), fault=harm)
    result = local.coordinator.run()
    assert harm.done and not local.failures()
    assert gap(result.params, unbroken.params) == 0 and local.drift() < 1e-12


def test_a_damaged_state_that_counts_is_refused_by_name(tmp_path):
    harm = Harm("pending")
    harm.local = local = Local(tmp_path, text(rounds=ROUNDS, eval_every=0), fault=harm)
    result = local.coordinator.run()
    assert result.rounds == ROUNDS  # the others go on
    told = [f for f in local.failures() if f.startswith("east round 3: ")]
    assert told and "pending is damaged" in told[0] and "restore it from a backup" in told[0]


def test_a_damaged_pending_state_that_was_not_accepted_is_dropped(tmp_path):
    store = Store(tmp_path / "s", {"h": 0 * H}, {"y": H})
    path = kept(tmp_path / "s", "pending")
    path.write_bytes(flip(path.read_bytes(), 999))
    store.settle(-1, 0)
    assert store.pending is None and store.committed.round == -1


def test_two_live_jobs_of_one_run(tmp_path, unbroken):
    """The attack: the older job put the checkpoint back, and all sites refused for good."""
    local = Local(tmp_path, text(rounds=ROUNDS))
    refused = []

    def second():
        other = Coordinator(
            local.federation, InProcess(local.handlers()), tmp_path / "server", "run"
        )
        with pytest.raises(CompositeFLError) as error:
            other.run()
        refused.append(str(error.value))

    report = local.coordinator.report

    def watch(event):
        report(event)
        if event["event"] == "round" and event["round"] == 3:
            thread = threading.Thread(target=second)
            thread.start()
            thread.join(60)

    local.coordinator.report = watch
    result = local.coordinator.run()
    assert refused == [f"the run run is at work already, as process {os.getpid()}"]
    assert not local.failures() and gap(result.params, unbroken.params) == 0
    again = local.new_coordinator()  # the lock is free again
    assert again.run().rounds == ROUNDS


def test_a_job_waits_for_one_whose_server_has_died(tmp_path):
    """FLARE ends such a job within seconds; a new one must not be refused meanwhile."""
    local = Local(tmp_path, text(rounds=ROUNDS))
    late = local.new_coordinator()
    late.patience = 30.0
    thread = threading.Thread(target=local.coordinator.run)
    thread.start()
    while not (tmp_path / "server" / "run" / "lock").exists():
        time.sleep(0.01)
    assert late.run().rounds == ROUNDS
    thread.join(30)


def test_a_job_that_waited_goes_on_from_the_newest_state(tmp_path):
    """Made before the other job ended, run after it: it must not put the run back."""
    local = Local(tmp_path, text(rounds=ROUNDS))
    late = local.new_coordinator()
    local.coordinator.run()
    assert late.run().rounds == ROUNDS and not local.failures()


@pytest.fixture
def careless():
    """A user whose files all may read and write."""
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder):
    """Files and folders that others than their owner may read, write or enter."""
    return [
        str(path)
        for path in [folder, *folder.rglob("*")]
        if not path.is_symlink() and stat.S_IMODE(path.stat().st_mode) & 0o077
    ]


def test_what_a_run_writes_is_for_its_owner_alone(tmp_path, careless):
    local = Local(tmp_path, text(rounds=2))
    local.coordinator.report = write_progress(tmp_path / "server" / "run" / "progress.jsonl")
    local.coordinator.run()
    folders = [tmp_path / "server", *(tmp_path / name / "state" for name in local.sites)]
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert len(files) >= 3 + 2 * len(local.sites)
    assert not [path for folder in folders for path in open_to_others(folder)]


def test_make_private(tmp_path, careless):
    folder = tmp_path / "kit" / "startup"
    folder.mkdir(parents=True)
    (folder / "client.key").write_text("secret")
    (folder / "start.sh").write_text("#!/bin/sh")
    (folder / "start.sh").chmod(0o755)
    make_private(tmp_path / "kit")
    assert not open_to_others(tmp_path / "kit")
    assert os.access(folder / "start.sh", os.X_OK)


def test_sealed_files(tmp_path):
    path = tmp_path / "a"
    write_sealed(path, b"one")
    write_sealed(path, b"two")
    assert read_sealed(path, "") == b"two" and list(tmp_path.iterdir()) == [path]
