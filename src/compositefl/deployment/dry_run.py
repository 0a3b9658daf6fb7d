"""A dry run at a site: its data are read and one round is computed, and nothing leaves.

The server of the dry run is an object of this process, so that what is shown is what a real one
would be sent.
"""

import dataclasses
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from compositefl.deployment.coordinator import Coordinator, coordinator_class
from compositefl.deployment.federation import Federation
from compositefl.deployment.messages import Message, decode
from compositefl.deployment.site import Site
from compositefl.deployment.transport import InProcess
from compositefl.deployment.worker import Worker


@dataclass
class DryRun:
    """What a site would answer to each call of a server, and what went wrong."""

    samples: int = 0
    tests: int = 0
    answers: dict[str, tuple[Message, int]] = field(default_factory=dict)  # and bytes
    wrong: list[str] = field(default_factory=list)
    notes: tuple[str, ...] = ()  # what the owner of the data should know


def dry_run(site: Site, federation: Federation) -> DryRun:
    """Join, compute the first round and an evaluation, all inside this process."""
    found = DryRun()
    if site.name not in federation.sites:
        found.wrong.append(
            f"{site.name} is not a site of the federation: {', '.join(federation.sites)}"
        )
        return found
    willing = dataclasses.replace(site, accept=(federation.hash,))
    federation = federation.trusting(site.modules)
    with tempfile.TemporaryDirectory(prefix="compositefl-check-") as folder:
        worker = Worker(willing, Path(folder) / "site")

        def handle(method: str, payload: bytes) -> bytes:
            try:
                answer = worker.handle(method, payload)
            except Exception as error:  # here, at the site, all of it may be said
                found.wrong.append(f"{method}: {_words(error)}")
                raise
            found.answers.setdefault(method, (decode(answer, len(answer)), len(answer)))
            return answer

        transport = InProcess({site.name: handle})
        run = "check-w0" if federation.path else "check"  # a path has a run for each weight
        kind = coordinator_class(federation)
        server = kind(federation, transport, Path(folder) / "server", run)
        server.calls.join(0, [site.name])
        found.notes = worker.notes
        if server.roster.joined([site.name]):
            hello = found.answers["hello"][0].values
            found.samples, found.tests = hello["samples"], hello["tests"]
            if not isinstance(server, Coordinator):
                server.first_request(site.name)
                return found
            if server.plan.automatic:
                measured = server.curvatures([site.name])
                if not measured:
                    return found
                server.steer(measured)
            server._collect(0, [site.name])
            if federation.every:
                server.judge.measure(0, server.server, [site.name])
    return found


def _words(error: Exception) -> str:
    """The first line of an error, with its kind where it is not one of ours."""
    text = next(iter(str(error).splitlines()), "")
    return (
        text
        if type(error).__module__.startswith("compositefl")
        else (f"{type(error).__name__}: {text}")
    )


def shapes(message: Message) -> list[tuple[str, str]]:
    """(name, what it is) of everything in a message."""
    values = sorted(message.values.items())
    arrays = [(name, _kind(array)) for name, array in message.arrays.items()]
    return [*((name, f"{value}") for name, value in values), *arrays]


def _kind(array: np.ndarray) -> str:
    shape = " x ".join(map(str, array.shape)) or "one number"
    return f"{shape} {array.dtype}"
