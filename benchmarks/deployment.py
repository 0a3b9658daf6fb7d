"""What a round over the network costs: `python benchmarks/deployment.py`; `--soak` for memory.

Seconds a round against a bare FLARE Collab call of the same payload in the same job, and bytes
counted by the library against bytes on the wire (`ss`). Needs `compositefl[deploy]`.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from nvflare.collab import CollabRecipe

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from bare_flare import BareClient, BareServer  # noqa: E402

from compositefl.cli.rehearsal import free_port  # noqa: E402
from compositefl.deployment import Federation, flare, supervise  # noqa: E402
from compositefl.deployment.flare_admin import Admin  # noqa: E402

DECLARATION = """name = "bench"
sites = {sites}
rounds = {rounds}
batch_size = 2
regularizer = "l1:0.001"
eval_every = 0
[model]
name = "linear"
input_shape = [{size}]
classes = 2
[algorithm]
name = "fednmap"
local_steps = 2
local_lr = 0.01
[network]
round_timeout = 120.0
"""


def declare(sites: int, size: int, rounds: int) -> Federation:
    names = json.dumps([f"site-{i + 1}" for i in range(sites)])
    return Federation.parse(DECLARATION.format(sites=names, rounds=rounds, size=size))


class Nodes:
    """A server and sites as processes of this machine."""

    def __init__(self, sites: int, size: int, rounds: int, bare_only: bool = False):
        self.bare_only = bare_only
        self.root = Path(tempfile.mkdtemp(prefix="compositefl-bench-"))
        self.federation = declare(sites, size, rounds)
        self.port = free_port()
        quiet = lambda line: None  # noqa: E731
        self.kits = flare.provision(self.federation, self.root, "localhost", self.port, quiet)
        self.nodes = {n: k for n, k in self.kits.items() if n != flare.ADMIN}
        os.environ["PYTHONPATH"] = str(HERE)
        os.environ["COMPOSITEFL_DEVICES"] = "1"
        for name, kit in self.nodes.items():
            path = kit / "local" / "resources.json"
            resources = json.loads(path.read_text())
            resources["class_allow_list"] += ["bare_flare.BareServer", "bare_flare.BareClient"]
            path.write_text(json.dumps(resources))
            if name != "localhost":
                (kit / "local" / "site.toml").write_text(
                    f'name = "{name}"\naccept = ["{self.federation.hash}"]\n'
                    f'function = "bare_flare:load_{size}"\n'
                )
            flare.start(kit, quiet)
        self.admin = Admin(self.kits[flare.ADMIN], quiet)
        self.run = supervise.RunFolder.create(self.root, "bench", self.federation)

    def submit(self) -> str:
        def write_job(federation: Federation, run: str, folder: Path) -> Path:
            server = BareServer(federation.text, run, self.port, self.bare_only)
            recipe = CollabRecipe(
                run, server=server, client=BareClient(), min_clients=len(federation.sites)
            )
            recipe.export(str(folder))
            for custom in (folder / run).rglob("custom"):
                shutil.rmtree(custom)
            return folder / run

        everyone = set(self.federation.sites)
        while True:
            try:
                if self.admin.system()[0] >= everyone:
                    break
            except ConnectionError:
                pass
            time.sleep(1)
        return supervise.submit(self.admin, self.run, self.federation, write_job)

    def close(self) -> None:
        for kit in self.nodes.values():
            flare.stop(kit, lambda line: None)
        shutil.rmtree(self.root, ignore_errors=True)


def measure(sites: int, size: int, rounds: int) -> dict[str, Any]:
    nodes = Nodes(sites, size, rounds)
    try:
        job = nodes.submit()
        state = supervise.wait(nodes.admin, job, 1.0)
        left = nodes.admin.download(job, nodes.root / "downloads")
        if not (left / "bench.json").exists():
            raise RuntimeError(f"the job ended as {state}")
        return json.loads((left / "bench.json").read_text())
    finally:
        nodes.close()


def show(sites: int, size: int, found: dict[str, Any]) -> None:
    allowed = 1.3 * found["bare"] + found["local"]
    (sent, received), (wire_sent, wire_received) = found["counted"], found["wire"]
    print(
        f"{sites:3d} sites {size:9,d} parameters: bare {found['bare']:.3f} s, local compute "
        f"{found['local']:.3f} s, a round {found['library']:.3f} s (1.3 bare + local = "
        f"{allowed:.3f} s); wire / counted: down {wire_sent / sent:.3f}, "
        f"up {wire_received / received:.3f}",
        flush=True,
    )


def soak(rounds: int, bare_only: bool) -> None:
    """Memory of the job's processes while it runs: the library's rounds, or bare calls of FLARE."""
    print("bare calls" if bare_only else "rounds")
    nodes = Nodes(4, 25_000, rounds, bare_only)
    try:
        job = nodes.submit()
        seen: list[tuple[float, float, float]] = []
        began = time.monotonic()
        while True:
            time.sleep(5)
            server = flare.running(nodes.nodes["localhost"])
            site = flare.running(nodes.nodes["site-1"])
            at_work = [_memory(node) for node in (server, site)]
            if all(at_work):
                seen.append((time.monotonic() - began, *at_work))
                print(
                    f"{seen[-1][0]:6.0f} s: server job {at_work[0]:.0f} MB, site {at_work[1]:.0f}"
                )
            elif seen and nodes.admin.state(job).startswith("FINISHED"):
                break
        tenth = max(1, len(seen) // 10)
        for name, column in (("server's job process", 1), ("site's worker", 2)):
            early = statistics.median(row[column] for row in seen[tenth : 2 * tenth + 1])
            late = statistics.median(row[column] for row in seen[-tenth - 1 :])
            print(f"{name}: {early:.0f} MB after a tenth of the rounds, {late:.0f} MB at the end")
    finally:
        nodes.close()


def _memory(node: psutil.Process | None) -> float:
    """MB of a node's job process, 0 if it has none."""
    try:
        children = node.children(recursive=True) if node is not None else []
        return max((child.memory_info().rss / 2**20 for child in children), default=0.0)
    except psutil.NoSuchProcess:
        return 0.0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, nargs="*", default=[4, 10])
    parser.add_argument("--parameters", type=int, nargs="*", default=[25_000, 1_500_000])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--soak", type=int, metavar="ROUNDS", help="watch the memory instead")
    given = parser.parse_args()
    if given.soak:
        for bare_only in (True, False):
            soak(given.soak, bare_only)
    else:
        for count in given.sites:
            for parameters in given.parameters:
                show(count, parameters, measure(count, parameters, given.rounds))
