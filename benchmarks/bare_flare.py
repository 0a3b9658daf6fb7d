"""The benchmark's job: bare Collab calls, then the library's rounds, between the same processes."""

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.collab import collab

from compositefl.deployment import Coordinator, Federation, flare

SAMPLES = 4


def __getattr__(name: str) -> Any:
    """`load_25000` and so on: a site's data with that many features."""
    if not name.startswith("load_"):
        raise AttributeError(name)
    features = int(name.removeprefix("load_"))
    rng = np.random.default_rng(os.getpid())
    x = rng.normal(size=(SAMPLES, features)).astype(np.float32) / features**0.5
    return lambda: ((x, rng.normal(size=SAMPLES).astype(np.float32)), None)


class BareClient(flare.Client):
    """A site that also answers a call without any of the library."""

    def __init__(self) -> None:
        super().__init__()
        self.spent: list[float] = []

    @collab.publish
    def echo(self, z: np.ndarray, c: np.ndarray) -> dict[str, np.ndarray]:
        return {"y": z + c}

    @collab.publish
    def handle_call(self, method: str, payload: Any) -> Any:
        began = time.perf_counter()
        out = super().handle_call(method, payload)
        if method == "round":
            self.spent.append(time.perf_counter() - began)
        return out

    @collab.publish
    def local_seconds(self) -> list:
        return self.spent


class BareServer(flare.Server):
    """The two measurements, one after the other; or bare calls alone, to watch the memory."""

    def __init__(self, federation: str, run: str, port: int, bare_only: bool = False):
        super().__init__(federation, run)
        self.port = port
        self.bare_only = bare_only

    @collab.main
    def main(self) -> None:
        federation = Federation.parse(self.federation)
        size = federation.model["input_shape"][0]
        z, c = np.zeros(size, np.float32), np.ones(size, np.float32)
        root = Path(collab.workspace.get_root_dir()) / flare.STATE
        bare = []
        for _ in range(federation.rounds if self.bare_only else min(15, federation.rounds)):
            began = time.perf_counter()
            collab.clients(timeout=120).echo(z, c)
            bare.append(time.perf_counter() - began)
        if self.bare_only:
            self.leave({"bare": float(np.median(bare[1:]))})
            return
        times: list[float] = []

        def report(event: dict[str, Any]) -> None:
            if event["event"] == "round":
                times.append(time.perf_counter())

        before = on_the_wire(self.port)
        coordinator = Coordinator(federation, flare.Calls(), root, self.run, report)
        coordinator.run()
        sent, received = (b - a for a, b in zip(before, on_the_wire(self.port), strict=True))
        local = [seconds for _, seconds in collab.clients(timeout=60).local_seconds()]
        outcome: dict[str, Any] = {
            "bare": float(np.median(bare[1:])),
            "library": float(np.median(np.diff(times[1:]))),
            "local": float(np.median(np.max(local, axis=0))),
            "counted": [coordinator.calls.bytes_sent, coordinator.calls.bytes_received],
            "wire": [sent, received],
        }
        self.leave(outcome)

    def leave(self, outcome: dict[str, Any]) -> None:
        """Put the figures where the job's download finds them."""
        path = Path(collab.workspace.get_run_dir(collab.fl_ctx.get_job_id())) / flare.STATE
        path.mkdir(parents=True)
        (path / flare.PROGRESS).write_text(json.dumps({"event": "stop", "round": 0}))
        (path / "bench.json").write_text(json.dumps(outcome))


def on_the_wire(port: int) -> tuple[int, int]:
    """Bytes (sent, received) so far on the server's open connections, TLS included."""
    out = subprocess.run(
        ["ss", "-tinH", "state", "established", f"( sport = :{port} )"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    sent = sum(map(int, re.findall(r"bytes_sent:(\d+)", out)))
    return sent, sum(map(int, re.findall(r"bytes_received:(\d+)", out)))
