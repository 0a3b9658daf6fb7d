"""The server of a run: calls the sites round after round, and keeps everything on disk."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.files import open_private, private_folder
from compositefl.core.trees import weighted_mean
from compositefl.core.types import HistoryRow, PlainValues
from compositefl.core.vector import Vector, unwrap
from compositefl.deployment import compute
from compositefl.deployment.calls import Reply, Report
from compositefl.deployment.compute import Plan
from compositefl.deployment.federation import Federation
from compositefl.deployment.judge import Judge, Measured
from compositefl.deployment.messages import pack, unpack
from compositefl.deployment.privacy import epsilon
from compositefl.deployment.progress import Event
from compositefl.deployment.roster import Member
from compositefl.deployment.run_server import RunServer
from compositefl.deployment.steered import SteeredRun
from compositefl.deployment.store import read_state, write_state
from compositefl.deployment.transport import Transport
from compositefl.engine.accounting import round_cost
from compositefl.solve.ending import rose
from compositefl.solve.result import Result
from compositefl.solve.steering import BEFORE

if TYPE_CHECKING:
    from compositefl.deployment.glm_server import GLMCoordinator

# Nothing is left to do after these.
FINAL = ("rounds", "tolerance", "diverged", "converged", "not converged")


class Coordinator(RunServer):
    """Rounds of an algorithm, from the checkpoint in `folder` where there is one."""

    def __init__(
        self,
        federation: Federation,
        transport: Transport,
        folder: Path,
        run: str,
        report: Report = lambda _: None,
        patience: float = 0.0,
    ):
        federation = federation.for_run(run)
        self.plan = plan = Plan(federation)
        super().__init__(federation, transport, folder, run, report, patience, plan.steps_in)
        self.path = self.folder / "server.state"
        self.minimum = federation.minimum
        with self.plan.precision():
            self.cost = round_cost(self.plan.method.at(BEFORE), self.plan.params)
        self.server = self.plan.server
        self.round = 0
        self.seconds = 0.0
        self.history: list[HistoryRow] = []
        self.visits = self.steps = 0
        self.diverged = 0  # the round that left the finite numbers, 0 for none
        self.judge = Judge(self.plan, self.calls, self._weights)
        self.steered: SteeredRun | None = None  # where numbers set themselves, once it has begun
        self._measured: tuple[int, Measured | None] = (-1, None)  # the round of a measurement
        self._restore()

    def run(self) -> Result:
        """Rounds until one of the reasons to stop; a run that stopped early can be resumed."""
        with self.alone():
            self._restore()  # another job may have gone on since
            self.report({"event": "start", "round": self.round, "rounds": self.federation.rounds})
            self._save()
            reason = self._begin()
            if not reason:
                self._look()
                if self._evaluation_due() and self._gather():
                    self._evaluate()
            while not reason:
                reason = self._enough() or self._one_round()
            result = self.result(reason)
            ended = {"ended": result.summary(), "bad": result.ended_badly}
            self.report({"event": "stop", "reason": reason, "round": self.round, **ended})
            return result

    def result(self, stopped: str) -> Result:
        """The outcome so far. The sites' private states stay with them."""
        import pandas as pd  # which sites do without

        config: PlainValues = {
            "federation": self.federation.hash,
            "run": self.name,
            "algorithm": repr(self.plan.method),
            "regularizer": repr(self.federation.make_regularizer()),
            "sites": list(self.federation.sites),
            "rounds_of_sites": self.roster.took_part(),
            "tolerance": self.federation.tolerance,
            "noise": ["minibatches"] if self.plan.batch_size is not None else [],
        }
        if self.federation.privacy is not None:
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

    def _enough(self) -> str:
        """The reason to stop now, or nothing."""
        if self.diverged:
            return "diverged"
        tolerance, last = self.federation.tolerance, self.history[-1] if self.history else None
        if (
            tolerance is not None
            and last is not None
            and last["sites"] == len(self.federation.sites)
            and last["natural_residual_sq"] ** 0.5 <= tolerance
            and not rose([r["psi"] for r in self.history if r["sites"] == last["sites"]])
        ):
            return "tolerance"
        if self.round >= self.federation.rounds:
            return "rounds"
        patience = self.federation.network.regroup_after
        return "regroup" if 0 < patience <= self.roster.longest_absence() else ""

    def _begin(self) -> str:
        """The first guess of numbers that set themselves, or why that is not possible now."""
        if not self.plan.automatic or self.steered is not None:
            return ""
        found = self._answers(self.curvatures)
        if isinstance(found, str):
            return found
        self.steer(found)
        self._save()
        return ""

    def curvatures(self, sites: list[str]) -> dict[str, Reply]:
        """The largest curvature of each site's loss at the start."""
        return self.calls.ask(0, sites, "curvature", {}, "curvature", ())

    def steer(self, curvatures: dict[str, Reply]) -> None:
        """Start to set the numbers, given what the sites measured."""
        found = [answer.number("curvature", float) for answer in curvatures.values()]
        self.steered = SteeredRun(self, float(np.max(found)))

    def _answers(self, ask: Callable[[list[str]], dict[str, Reply]]) -> dict[str, Reply] | str:
        """What at least the minimum of sites answer, or why that is not possible now."""
        network = self.federation.network
        for attempt in range(network.retries + 1):
            if attempt:
                time.sleep(network.retry_wait)
            sites = self._gather(everyone=attempt > 0)
            if len(sites) >= self.minimum:
                found = ask(sites)
                if len(found) >= self.minimum:
                    return found
                if self.diverged:
                    return "diverged"
            if self.roster.willing() < self.minimum:
                return "refused"  # asking again would get the same answer
        return "too few sites"

    def _one_round(self) -> str:
        """Advance by one round, or say why that is not possible now."""
        began = time.perf_counter()
        t = self.round
        uploads = self._answers(lambda sites: self._collect(t, sites))
        if isinstance(uploads, str):
            if uploads != "diverged" or self.steered is None:
                return uploads
            uploads = {}  # the round counts, and other numbers may bring the run back
            self.round = t + 1
        else:
            self._update(t, uploads)
        self.seconds += time.perf_counter() - began
        self._save()  # before any site hears of it: an acknowledged round cannot be forgotten
        self._look()
        if self._evaluation_due():
            self._evaluate()
        self.report({"event": "round", "round": self.round, "sites": sorted(uploads)})
        return ""

    def _look(self) -> None:
        """Let numbers set themselves, where it is time; saves."""
        if self.steered is None:
            return
        t, last = self.round, self.round >= self.federation.rounds
        if not (last or self.diverged or t >= self.steered.steering.next_look or not t):
            return
        measured = self._measure()
        broken = bool(self.diverged) or not measured.finite
        if not broken and self.steered.begin_anew(measured.sites):
            self._measured = (-1, None)
            measured = self._measure()
        if not broken and not measured.sites:
            return  # nobody answered; the next round is looked at instead
        psi = float("inf") if broken else measured.metrics["psi"]
        residual = measured.metrics["natural_residual_sq"] ** 0.5
        if self.steered.steering.look([psi], [residual], last):
            self._measured, self.diverged = (-1, None), 0
        self._save()

    def _gather(self, everyone: bool = False) -> list[str]:
        """Sites that can be called now; lets those join that have not joined."""
        sites = self.roster.to_call(self.round, everyone or not self.round)
        self.calls.join(self.round, [s for s in sites if not self.roster.members[s].joined])
        known = all(member.samples for member in self.roster.members.values())
        if self.federation.weights == "size" and not known:
            return []  # the weights need every size once
        return self.roster.joined(sites)

    def _collect(self, t: int, sites: list[str]) -> dict[str, Reply]:
        """The uploads that may be used. If too many sites send NaN or infinity: diverged."""
        with self.plan.precision():
            content = jax.device_get(compute.broadcast(self.plan.algorithm, self.server))
        arrays, shapes = pack("message", content), self.plan.shapes
        not_finite: list[str] = []
        if "mean_full_gradient" in self.plan.algorithm.needs:
            like = Vector(shapes.params)
            got = self.calls.ask(t, sites, "open", arrays, "gradient", like, not_finite)
            sites = list(got) if len(got) >= self.minimum else []
            if sites:
                gradients = [answer.tree for answer in got.values()]
                arrays |= pack("mean", weighted_mean(gradients, self._weights(sites)))
        uploads = self.calls.ask(t, sites, "round", arrays, "upload", shapes.upload, not_finite)
        if len(not_finite) >= self.minimum and not uploads:
            self.diverged = t + 1
        return uploads

    def _update(self, t: int, uploads: dict[str, Reply]) -> None:
        weights, everything = self._weights(list(uploads)), self._weights(list(self.roster.members))
        mean = weighted_mean([answer.tree for answer in uploads.values()], weights)
        share = self.plan.dtype.type(sum(weights) / sum(everything))
        with self.plan.precision():
            server = jax.device_get(compute.update(self.plan.algorithm, self.server, mean, share))
        if all(np.isfinite(a).all() for a in jax.tree.leaves(server)):
            self.server = server
        else:
            self.diverged = t + 1  # the server keeps the state of its last finite round
        self.roster.close_round(t, {s: a.number("uploads", int) for s, a in uploads.items()})
        self.visits += len(uploads)
        self.steps += sum(answer.number("steps", int) for answer in uploads.values())
        self.round = t + 1

    def _weights(self, sites: list[str]) -> list[float]:
        """The weights of some sites in f."""
        if self.federation.weights != "size":
            return [1.0] * len(sites)
        return [float(self.roster.members[site].samples) for site in sites]

    def _evaluation_due(self) -> bool:
        every, t = self.federation.every, self.round
        done = bool(self.history) and self.history[-1]["round"] == t
        over = t >= self.federation.rounds or self.diverged
        return bool(every and not done and (t % every == 0 or over))

    def _measure(self) -> Measured:
        """What the present model is worth; asked once in a round."""
        t, measured = self._measured
        if t != self.round or measured is None:
            measured = self.judge.measure(self.round, self.server, self._gather())
            self._measured = self.round, measured
        return measured

    def _evaluate(self) -> None:
        """A row of the history from what the sites send; saves."""
        measured = self._measure()
        row = {
            "round": self.round,
            "trial": 0,
            **measured.metrics,
            **self.cost.so_far(self.round, self.visits, self.steps),
            "seconds": self.seconds,
            **({} if self.steered is None else self.steered.steering.numbers(0)),
            "sites": len(measured.sites),  # that these numbers come from
            **{f"rounds_{site}": rounds for site, rounds in self.roster.took_part().items()},
            "bytes_sent": self.calls.bytes_sent,  # all messages, evaluations too
            "bytes_received": self.calls.bytes_received,
        }
        self.history.append(row)
        self._save()
        self.report({"event": "evaluation", **row})

    def _save(self) -> None:
        """Write everything that a restarted server needs."""
        about: PlainValues = {
            **self._fingerprint(),
            "round": self.round,
            "seconds": self.seconds,
            "roster": {site: asdict(member) for site, member in self.roster.members.items()},
            "work": [self.visits, self.steps],
            "bytes": [self.calls.bytes_sent, self.calls.bytes_received],
            "diverged": self.diverged,
            "rows": self.history,
        }
        arrays = pack("server", self.server)
        if self.steered is not None:
            kept, about["steered"] = self.steered.saved()
            arrays |= pack("kept", kept)
        write_state(self.path, about, arrays)

    def _restore(self) -> None:
        """Go on from the checkpoint, where there is one."""
        if self.path.with_suffix(".npz").exists():
            raise CompositeFLError(
                f"{self.path.with_suffix('.npz')} is of an earlier version: end the run with that "
                "version, or start one under a new name"
            )
        if not self.path.exists():
            return
        about, arrays = read_state(self.path)
        for name, mine in self._fingerprint().items():
            if about[name] != mine:
                raise CompositeFLError(
                    f"{self.path} belongs to another run: {name} is {about[name]} there and "
                    f"{mine} here"
                )
        if "steered" in about:
            self.steered = SteeredRun.restored(self, about["steered"], arrays)
        self.server = unpack("server", arrays, self.plan.shapes.server)
        self.round, self.seconds = about["round"], about["seconds"]
        self.history, self.diverged = about["rows"], about["diverged"]
        self.visits, self.steps = about["work"]
        self.calls.bytes_sent, self.calls.bytes_received = about["bytes"]
        fresh = {"joined": False, "lost": 0, "skipped_until": 0, "absent": 0, "refusals": 0}
        for site, member in about["roster"].items():
            self.roster.members[site] = Member(**(member | fresh))

    def _fingerprint(self) -> dict[str, str]:
        return {"federation": self.federation.hash, "run": self.name}


def coordinator_class(federation: Federation) -> "type[Coordinator] | type[GLMCoordinator]":
    """The kind of server that a federation needs."""
    if federation.glm is None:
        return Coordinator
    from compositefl.deployment.glm_server import GLMCoordinator  # loads what others do not need

    return GLMCoordinator


def write_progress(path: Path) -> Report:
    """A report that appends every event to a file, one JSON object per line."""
    private_folder(path.parent)

    def report(event: Event) -> None:
        line = json.dumps({"time": round(time.time(), 3), **event}) + "\n"
        with open_private(path) as file:
            file.write(line.encode())

    return report
