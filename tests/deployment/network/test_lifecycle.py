"""Sites that come and go, with real processes: revoked, renewed, a new authority, a new server."""

import time

import pytest

pytest.importorskip("nvflare", reason="needs pip install 'compositefl[deploy]'")

from compositefl.cli import main
from tests.deployment.deployment_cases import text

TEXT = text(model="mlp", regularizer="l1:0.01", sites=["north", "east"])


class Town:
    """Kits in use, beside the folder where new ones are made."""

    def __init__(self, root):
        from compositefl.cli.rehearsal import free_port
        from compositefl.deployment import flare

        self.flare, self.root, self.port = flare, root, free_port()
        (root / "federation.toml").write_text(TEXT)
        self.deploy("provision", "--host", "localhost", "--port", str(self.port))
        self.nodes = {name: self.newest(name) for name in ("localhost", "north", "east")}

    def deploy(self, command, *more):
        file, folder = str(self.root / "federation.toml"), str(self.root / "f")
        assert main(["deploy", command, file, *more, "--folder", folder]) == 0

    def newest(self, name):
        return sorted((self.root / "f" / "test").glob("prod_*"))[-1] / name

    def restart(self, *names, update=False):
        """Stop nodes, take the newest kits into them where asked, start them."""
        kits = [self.nodes[name] for name in names]
        self.flare.stop_all(kits)
        for name in names if update else ():
            assert main(["deploy", "update", str(self.nodes[name]), str(self.newest(name))]) == 0
        self.flare.start_all(kits)

    def connected(self, sites, patience=90.0):
        """Whether exactly these sites get connected, and stay so for some seconds."""
        from compositefl.deployment.flare_admin import Admin

        end, good = time.monotonic() + patience, 0
        with Admin(self.newest(self.flare.ADMIN)) as admin:
            while time.monotonic() < end and good < 5:
                try:
                    good = good + 1 if admin.system()[0] == sites else 0
                except ConnectionError:
                    good = 0
                time.sleep(1.0)
        return good == 5


@pytest.mark.full
def test_sites_come_and_go(tmp_path):
    town = Town(tmp_path)
    try:
        town.restart("localhost", "north", "east")
        assert town.connected({"north", "east"})

        town.deploy("revoke", "east")
        town.restart("localhost", "east")  # a restart does not let it in again
        assert town.connected({"north"})
        town.deploy("revoke", "east", "--undo")
        town.restart("east")
        assert town.connected({"north", "east"})

        town.deploy("renew", "east")
        town.restart("east", update=True)
        assert town.connected({"north", "east"})

        town.deploy("provision", "--host", "localhost", "--port", str(town.port), "--authority")
        town.restart("localhost", "east", update=True)
        assert town.connected({"east"})  # north still shows a certificate of the old authority
        town.restart("north", update=True)
        assert town.connected({"north", "east"})

        from compositefl.cli.rehearsal import free_port

        town.deploy("move", "--host", "localhost", "--port", str(free_port()))
        town.restart("localhost", "north", "east", update=True)
        assert town.connected({"north", "east"})
        assert main(["deploy", "status", str(town.nodes["localhost"])]) == 0
    finally:
        town.flare.stop_all(town.nodes.values())
