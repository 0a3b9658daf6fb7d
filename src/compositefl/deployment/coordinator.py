"""The server: calls the sites, checks what they send, updates, judges, keeps everything on disk."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

from compositefl import checkpoint
from compositefl.accounting import round_cost
from compositefl.checkpoint import Checkpoint
from compositefl.deployment import compute
from compositefl.deployment.compute import Plan
from compositefl.deployment.federation import Federation
from compositefl.deployment.messages import (
    SLACK,
    Message,
    NotFinite,
    decode,
    encode,
    pack,
    tree_bytes,
    unpack,
    value,
)
from compositefl.deployment.roster import Member, Roster
from compositefl.deployment.store import sync_folder
from compositefl.deployment.transport import Failure, Transport
from compositefl.errors import CompositeFLError
from compositefl.result import Result
from compositefl.run import METRICS
from compositefl.vector import Vector, unwrap

Report = Callable[[dict[str, Any]], None]
LARGEST = 2**53  # of the plain numbers that a site may send
FINAL = ("rounds", "tolerance", "diverged")  # reasons to stop after which nothing is left to do


class Coordinator:
    """One run of a federation, from the checkpoint in `folder` where there is one.

    run: the name of the run; a new name is a new run. report: called with a dict for every event.
    """

    def __init__(
        self,
        federation: Federation,
        transport: Transport,
        folder: Path,
        run: str,
        report: Report = lambda event: None,
    ):
        self.federation = federation
        self.transport = transport
        self.path = folder / run / "server.npz"
        self.name = run
        self.report = report
        self.plan = Plan(federation)
        self.minimum = federation.minimum
        with self.plan.precision():
            self.cost = round_cost(federation.make_algorithm(), self.plan.params)
        self.server = self.plan.server
        self.roster = Roster.of(federation.sites)
        self.round = 0
        self.seconds = 0.0
        self.history: list[dict[str, Any]] = []
        self.work = {"visits": 0, "steps": 0, "bytes_sent": 0, "bytes_received": 0}
        self.diverged = 0  # the round that left the finite numbers, 0 for none
        if self.path.exists():
            self._restore()

    def run(self) -> Result:
        """Rounds until one of the reasons to stop; a run that stopped early can be resumed."""
        self.report({"event": "start", "round": self.round, "rounds": self.federation.rounds})
        self._save()
        reason = ""
        if self._evaluation_due() and self._gather():
            self._evaluate()
        while not reason:
            reason = self._enough() or self._one_round()
        self.report({"event": "stop", "reason": reason, "round": self.round})
        return self.result(reason)

    def result(self, stopped: str) -> Result:
        """The outcome so far. The sites' private states stay with them."""
        config = {
            "federation": self.federation.hash,
            "run": self.name,
            "algorithm": repr(self.federation.make_algorithm()),
            "regularizer": repr(self.federation.make_regularizer()),
            "sites": list(self.federation.sites),
        }
        if self.federation.privacy is not None:
            from compositefl.deployment.privacy import epsilon

            most = max(m.uploads for m in self.roster.members.values())
            privacy = self.federation.privacy
            config |= {"epsilon": epsilon(privacy, most), "delta": privacy.delta}
        return Result(
            params=unwrap(self.model()),
            history=pd.DataFrame(self.history),
            server=unwrap(self.server),
            clients=None,
            stopped=stopped,
            rounds=self.round,
            diverged=[self.diverged],
            config=config,
        )

    def model(self) -> Vector:
        """The post-prox model."""
        with self.plan.precision():
            return jax.device_get(compute.model(self.plan.algorithm, self.server))

    # --- one round -------------------------------------------------------------------------

    def _enough(self) -> str:
        if self.diverged:
            return "diverged"
        tolerance, last = self.federation.tolerance, self.history[-1] if self.history else None
        if (
            tolerance is not None
            and last is not None
            and last["sites"] == len(self.federation.sites)
            and last["natural_residual_sq"] ** 0.5 <= tolerance
        ):
            return "tolerance"
        if self.round >= self.federation.rounds:
            return "rounds"
        patience = self.federation.network.regroup_after
        return "regroup" if 0 < patience <= self.roster.longest_absence() else ""

    def _one_round(self) -> str:
        """Advance by one round, or say why that is not possible now."""
        began = time.perf_counter()
        t, network = self.round, self.federation.network
        uploads: dict[str, Any] = {}
        for attempt in range(network.retries + 1):
            if attempt:
                time.sleep(network.retry_wait)
            sites = self._gather(everyone=attempt > 0)
            if len(sites) >= self.minimum:
                uploads, sick = self._collect(t, sites)
                if len(uploads) >= self.minimum:
                    break
                if len(sick) >= self.minimum and not uploads:
                    self.diverged = t + 1
                    return "diverged"
        else:
            return "too few sites"
        self._update(t, uploads)
        self.seconds += time.perf_counter() - began
        self._save()  # before any site hears of it: an acknowledged round cannot be forgotten
        if self._evaluation_due():
            self._evaluate()
        self.report({"event": "round", "round": self.round, "sites": sorted(uploads)})
        return ""

    def _gather(self, everyone: bool = False) -> list[str]:
        """Sites that can be called now; greets those that have not joined."""
        sites = self.roster.to_call(self.round, everyone or not self.round)
        new = [site for site in sites if not self.roster.members[site].joined]
        if new:
            payload = encode({"federation": self.federation.text, "run": self.name})
            answers = self._call(new, "hello", payload, self.federation.network.join_timeout, SLACK)
            for site, answer in answers.items():
                self._welcome(site, answer)
        ready = self.roster.joined(sites)
        if self.federation.weights == "size":
            unknown = [s for s, m in self.roster.members.items() if not m.samples]
            return [] if unknown else ready  # the weights need every size once
        return ready

    def _welcome(self, site: str, answer: Message) -> None:
        member = self.roster.members[site]
        try:
            self._check_sender(answer, site, None)
            samples = value(answer, "samples", int)
            if not 0 < samples < LARGEST:
                raise CompositeFLError(f"its answer has samples={samples}")
        except CompositeFLError as error:
            self._refuse(site, "hello", Failure(f"refused: {error}"))
            return
        member.joined, member.samples = True, samples
        self.report({"event": "joined", "round": self.round, "site": site})

    def _collect(self, t: int, sites: list[str]) -> tuple[dict[str, Any], list[str]]:
        """The uploads that may be used, and the sites that sent NaN or infinity."""
        with self.plan.precision():
            content = jax.device_get(compute.broadcast(self.plan.algorithm, self.server))
        arrays = pack("message", content)
        shapes, network = self.plan.shapes, self.federation.network
        sick: list[str] = []
        if "mean_full_gradient" in self.plan.algorithm.needs:
            got = self._ask(
                t, sites, "open", arrays, network.round_timeout, "gradient", Vector(shapes.params)
            )
            sites = list(got)
            if len(sites) < self.minimum:
                return {}, sick
            gradients = [tree for _, tree in got.values()]
            arrays |= pack("mean", compute.weighted_mean(gradients, self._weights(sites)))
        uploads = self._ask(
            t, sites, "round", arrays, network.round_timeout, "upload", shapes.upload, sick
        )
        return uploads, sick

    def _update(self, t: int, uploads: dict[str, Any]) -> None:
        sites = list(uploads)
        weights, everything = self._weights(sites), sum(self._weights(list(self.roster.members)))
        mean = compute.weighted_mean([tree for _, tree in uploads.values()], weights)
        share = self.plan.dtype.type(sum(weights) / everything)
        with self.plan.precision():
            server = jax.device_get(compute.update(self.plan.algorithm, self.server, mean, share))
        if all(np.isfinite(a).all() for a in jax.tree.leaves(server)):
            self.server = server
        else:
            self.diverged = t + 1  # the server keeps the state of its last finite round
        self.roster.close_round(t, {s: value(m, "uploads", int) for s, (m, _) in uploads.items()})
        self.work["visits"] += len(uploads)
        self.work["steps"] += sum(value(m, "steps", int) for m, _ in uploads.values())
        self.round = t + 1

    def _weights(self, sites: list[str]) -> list[float]:
        if self.federation.weights == "uniform":
            return [1.0] * len(sites)
        return [float(self.roster.members[site].samples) for site in sites]

    # --- evaluation ------------------------------------------------------------------------

    def _evaluation_due(self) -> bool:
        every, t = self.federation.every, self.round
        done = bool(self.history) and self.history[-1]["round"] == t
        over = t >= self.federation.rounds or self.diverged
        return bool(every and not done and (t % every == 0 or over))

    def _evaluate(self) -> None:
        """A row of the history from what the sites send; saves."""
        federation, plan = self.federation, self.plan
        gamma = plan.dtype.type(federation.eval_gamma)
        x = self.model()
        row: dict[str, Any] = {"round": self.round, "trial": 0}
        got = self._full_gradient(x, self._gather(), accuracy=True)
        measured: dict[str, Any] = {name: float("nan") for name in METRICS[:4]}
        if got:
            loss, gradient = self._mean_gradient(got)
            phi = plan.algorithm.regularizer
            with plan.precision():
                x_z = jax.device_get(compute.prox_point(phi, gamma, x, gradient))
            again = self._full_gradient(x_z, list(got), accuracy=False)
            with plan.precision():
                same = again.keys() == got.keys()
                gradient_z = self._mean_gradient(again)[1] if same else gradient
                measured = jax.device_get(
                    compute.stationarity(phi, gamma, x, loss, gradient, gradient_z)
                )
            if not same:
                measured["normal_map_sq"] = float("nan")
            tests = sum(value(m, "tests", int) for m, _ in got.values())
            if tests:
                right = sum(value(m, "right", float) for m, _ in got.values())
                measured["accuracy"] = right / tests
        row |= {name: float(measured[name]) for name in METRICS if name in measured}
        visits, steps, cost = self.work["visits"], self.work["steps"], self.cost
        row |= {
            "gradients": visits * cost.gradients_visit + steps * cost.gradients_step,
            "prox_clients": visits * cost.prox_visit + steps * cost.prox_step,
            "prox_server": self.round * cost.prox_server,
            "bytes_up": visits * cost.bytes_up,
            "bytes_down": visits * cost.bytes_down,
            "seconds": self.seconds,
            "sites": len(got),  # that these numbers come from
            "bytes_sent": self.work["bytes_sent"],
            "bytes_received": self.work["bytes_received"],
        }
        self.history.append(row)
        self._save()
        self.report({"event": "evaluation", **row})

    def _full_gradient(self, x: Vector, sites: list[str], accuracy: bool) -> dict[str, Any]:
        like = Vector(self.plan.shapes.params)
        timeout = self.federation.network.round_timeout
        arrays = pack("x", x)
        return self._ask(
            self.round, sites, "evaluate", arrays, timeout, "gradient", like, accuracy=accuracy
        )

    def _mean_gradient(self, got: dict[str, Any]) -> tuple[Any, Vector]:
        weights = self._weights(list(got))
        losses = np.array([value(m, "loss", float) for m, _ in got.values()])
        mean = float(losses @ np.array(weights) / sum(weights))
        gradient = compute.weighted_mean([tree for _, tree in got.values()], weights)
        return self.plan.dtype.type(mean), gradient

    # --- calls -----------------------------------------------------------------------------

    def _ask(
        self,
        t: int,
        sites: list[str],
        method: str,
        arrays: dict[str, np.ndarray],
        timeout: float,
        prefix: str,
        like: Any,
        sick: list[str] | None = None,
        **more: Any,
    ) -> dict[str, tuple[Message, Any]]:
        """Call the sites; the answers that are what they should be, in the order of the sites."""
        about = {
            "federation": self.federation.hash,
            "run": self.name,
            "round": t,
            "accepted": self.roster.accepted(),
            **more,
        }
        limit = min(self.federation.network.limit, tree_bytes(like) + SLACK)
        answers = self._call(sites, method, encode(about, arrays), timeout, limit)
        good: dict[str, tuple[Message, Any]] = {}
        for site in sites:
            if site not in answers:
                continue
            message = answers[site]
            try:
                self._check_sender(message, site, t)
                for name, kind in _NUMBERS[method]:
                    if not abs(value(message, name, kind)) < LARGEST:
                        raise NotFinite(f"{name} is NaN, infinite or too large")
                good[site] = (message, unpack(prefix, message.arrays, like, finite=True))
            except CompositeFLError as error:
                if sick is not None and isinstance(error, NotFinite):
                    sick.append(site)
                self._refuse(site, method, Failure(f"refused: {error}"))
        return good

    def _check_sender(self, message: Message, site: str, t: int | None) -> None:
        expected = {"federation": self.federation.hash, "run": self.name, "site": site, "round": t}
        for name, mine in expected.items():
            if message.values.get(name) != mine:
                raise CompositeFLError(
                    f"its answer has {name} {message.values.get(name)!r} instead of {mine!r}"
                )

    def _call(
        self, sites: list[str], method: str, payload: bytes, timeout: float, limit: int
    ) -> dict[str, Message]:
        """Decoded answers; failures are noted with the name of the site."""
        answers: dict[str, Message] = {}
        if not sites:
            return answers
        self.work["bytes_sent"] += len(payload) * len(sites)
        for site, answer in self.transport.call(sites, method, payload, timeout).items():
            if isinstance(answer, Failure):
                self._refuse(site, method, answer)
                continue
            self.work["bytes_received"] += len(answer)
            try:
                answers[site] = decode(answer, limit)
                self.roster.heard(site)
            except CompositeFLError as error:
                self._refuse(site, method, Failure(f"refused: {error}"))
        return answers

    def _refuse(self, site: str, method: str, failure: Failure) -> None:
        self.roster.failed(site, self.round, failure.lost)
        self.report(
            {
                "event": "failure",
                "round": self.round,
                "site": site,
                "call": method,
                "reason": failure.reason,
            }
        )

    # --- disk ------------------------------------------------------------------------------

    def _save(self) -> None:
        """Write everything that a restarted server needs."""
        about = {"roster": {s: asdict(m) for s, m in self.roster.members.items()}}
        about |= {"work": self.work, "diverged": self.diverged, "rows": self.history}
        now = Checkpoint(self.server, self.round, self.seconds, [about])
        checkpoint.save(self.path, self._fingerprint(), now)
        sync_folder(self.path.parent)

    def _restore(self) -> None:
        saved = checkpoint.load(self.path, self._fingerprint(), self.server)
        (about,) = saved.history
        self.server, self.round, self.seconds = saved.state, saved.round, saved.seconds
        self.history, self.work = about["rows"], about["work"]
        self.diverged = about["diverged"]
        for site, member in about["roster"].items():
            fresh = {"joined": False, "lost": 0, "rests_until": 0, "absent": 0}
            self.roster.members[site] = Member(**(member | fresh))

    def _fingerprint(self) -> dict[str, Any]:
        return {"federation": self.federation.hash, "run": self.name}


_NUMBERS: dict[str, tuple[tuple[str, type], ...]] = {
    "open": (),
    "round": (("steps", int), ("uploads", int)),
    "evaluate": (("loss", float), ("tests", int), ("right", float)),
}


def write_progress(path: Path) -> Report:
    """A report that appends every event to a file, one JSON object a line."""
    path.parent.mkdir(parents=True, exist_ok=True)

    def report(event: dict[str, Any]) -> None:
        with path.open("a") as file:
            file.write(json.dumps({"time": round(time.time(), 3), **event}) + "\n")

    return report
