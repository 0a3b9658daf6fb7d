"""A federation of real processes on this machine, shared by the tests."""

import json
import os
import shutil
import sys
import time
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]


def pytest_configure(config):
    config.addinivalue_line("markers", "network: real processes on the loopback interface")
    config.addinivalue_line("markers", "full: only in make test-network and make test-full")


def pytest_collection_modifyitems(items):
    everything = os.environ.get("COMPOSITEFL_NETWORK_TESTS") == "all"
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.network)
        if "full" in item.keywords and not everything:
            item.add_marker(pytest.mark.skip(reason="only in make test-network and make test-full"))


class Net:
    """A provisioned federation with its nodes, and runs of lasso federations on it."""

    def __init__(self, root):
        from compositefl.cli.rehearsal import free_port
        from compositefl.deployment import flare
        from compositefl.deployment.flare_admin import Admin
        from tests.deployment.deployment_cases import declare, text

        self.flare, self.root = flare, root
        self.first = declare(text())
        self.kits = flare.provision(self.first, root, "localhost", free_port(), self.say)
        self.admin = Admin(self.kits[flare.ADMIN], self.say)
        self.nodes = {n: k for n, k in self.kits.items() if n != flare.ADMIN}
        self.start(*self.nodes)

    def say(self, line):
        print(line, file=sys.stderr)

    def start(self, *names):
        """Start nodes and wait until they are connected."""
        if not names:
            return
        with pytest.MonkeyPatch.context() as patch:  # of the nodes alone
            paths = [str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
            patch.setenv("PYTHONPATH", os.pathsep.join(paths))
            patch.setenv("COMPOSITEFL_DEVICES", "1")
            self.flare.start_all([self.nodes[name] for name in names], self.say)
        self.wait_for(set(names))

    def heal(self):
        """Start what an earlier test has left dead."""
        self.start(*(n for n, kit in self.nodes.items() if self.flare.running(kit) is None))

    def wait_for(self, sites, patience=90):
        end = time.monotonic() + patience
        while time.monotonic() < end:
            try:
                if self.admin.system()[0] >= sites - {"localhost"}:
                    return
            except ConnectionError:
                pass
            time.sleep(1)
        raise AssertionError(f"{sites} did not connect")

    def stop(self):
        self.admin.close()
        self.flare.stop_all(self.nodes.values(), self.say)

    def submit(self, run, declared, faults=None, accept=None, heal=True):
        """Start a run; `faults` maps sites to what befalls them."""
        from compositefl.deployment import supervise
        from tests.deployment.deployment_cases import OWN, declare

        if heal:
            self.heal()
        federation = declare(declared)
        (self.nodes["localhost"] / "local" / self.flare.SERVER_FILE).write_text(
            f'accept = ["{federation.hash}"]\nmodules = ["{OWN}"]\n'
        )
        for site in federation.sites:
            local = self.nodes[site] / "local"
            accepted = federation.hash if accept is None or site in accept else "0" * 64
            (local / "site.toml").write_text(
                f'name = "{site}"\naccept = ["{accepted}"]\nmodules = ["{OWN}"]\n'
                f'function = "tests.deployment.network.network_faults:load_{site}"\n'
                "[limits]\nruns = 20\n"  # some tests have a federation in common
            )
            (local / "fault.json").unlink(missing_ok=True)
            if faults and site in faults:
                (local / "fault.json").write_text(json.dumps(faults[site]))
        record = supervise.RunFolder.create(self.root, run, federation)
        supervise.submit(self.admin, record, federation, self.flare.write_job, self.say)
        return record

    def follow(self, record):
        from compositefl.deployment import supervise

        outcome = supervise.follow(self.admin, record, self.flare.write_job, self.say, poll=0.3)
        return Outcome(self, record, outcome)

    def run(self, run, declared, faults=None, **more):
        return self.follow(self.submit(run, declared, faults, **more))

    def progress(self, record):
        return self.nodes["localhost"] / self.flare.STATE / record.run / self.flare.PROGRESS

    def events(self, record):
        path = self.progress(record)
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for_round(self, record, round_, patience=120):
        end = time.monotonic() + patience
        while time.monotonic() < end:
            if any(e["event"] == "round" and e["round"] >= round_ for e in self.events(record)):
                return
            time.sleep(0.1)
        raise AssertionError(f"round {round_} was not reached")


class Outcome:
    """The end of a run: what was downloaded, and what lies on the disks."""

    def __init__(self, net, record, folder):
        from safetensors.numpy import load_file

        self.net, self.record = net, record
        self.params = load_file(folder / "model.safetensors")
        self.config = json.loads((folder / "config.json").read_text())
        self.failures = [
            "{site} {call} {round}: {reason}".format(**e)
            for e in net.events(record)
            if e["event"] == "failure"
        ]
        self.jobs = len(record.jobs())

    def drift(self):
        """|mean of the committed h_i - cbar| from the files of the server and the sites."""
        from compositefl.deployment import Coordinator
        from compositefl.deployment.store import Store
        from tests.deployment.deployment_cases import OWN

        federation, run = self.record.federation().trusting([OWN]), self.record.run
        folder = self.net.nodes["localhost"] / self.net.flare.STATE
        server = Coordinator(federation, None, folder, run)
        states = []
        for site, accepted in server.roster.accepted().items():
            kept = self.net.nodes[site] / self.net.flare.STATE / run / federation.hash[:16]
            store = Store(kept, server.plan.client, server.plan.shapes.upload)
            entry = store.committed if store.committed.round == accepted else store.pending
            assert entry.round == accepted
            states.append(entry.state.h.tree["w"])
        return np.abs(np.mean(states, axis=0) - server.server.cbar.tree["w"]).max()


@pytest.fixture(scope="session")
def net(tmp_path_factory):
    pytest.importorskip("nvflare", reason="needs pip install 'compositefl[deploy]'")
    root = tmp_path_factory.mktemp("net")
    made = Net(root)
    yield made
    made.stop()
    shutil.rmtree(root, ignore_errors=True)
