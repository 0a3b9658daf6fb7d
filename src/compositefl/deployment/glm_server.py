"""The server of a generalised linear model's run: asks the sites for sums and adds them up.

What it has been told is kept in a journal. The fit is a function of these sums alone, so a server
that was killed goes through the journal again without asking anybody, and goes on where it ended.
"""

import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from compositefl.core.errors import CompositeFLError, ConvergenceWarning, NotConverged
from compositefl.core.files import private_folder, read_sealed, write_sealed
from compositefl.core.types import PlainValues
from compositefl.deployment.calls import LARGEST, SiteCalls
from compositefl.deployment.glm_checks import SumChecks
from compositefl.deployment.glm_site import LARGEST_LOSS, pack_request
from compositefl.deployment.messages import call_digest, decode, encode
from compositefl.deployment.run_server import RunServer
from compositefl.glm.requests import answer_shapes
from compositefl.glm.site import Request, Sums
from compositefl.glm.sites import add_up, count_bytes
from compositefl.glm.stand_in import StandIn
from compositefl.linear_model.base import GeneralizedLinearModel
from compositefl.linear_model.files import write_fit

Array = np.ndarray
REMEDY = "remove the folder of the run: the fit begins anew"


class TooFewSites(CompositeFLError):
    """Not all sites that are needed have answered; the run can be resumed."""


class SitesLeft(CompositeFLError):
    """A site is gone and the fit begins anew without it."""


@dataclass(frozen=True)
class GLMResult:
    """The fitted model, and how the run went."""

    model: GeneralizedLinearModel | None
    stopped: str
    rounds: int
    config: PlainValues

    def save(self, folder: Path) -> None:
        """model.json, coefficients.csv and config.json; of a path also path.csv and plot.png."""
        about = self.config | {"stopped": self.stopped, "rounds_run": self.rounds}
        if self.model is not None:
            kept: PlainValues = {name: self.config[name] for name in ("target", "categories")}
            write_fit(folder, self.model, self.config["run"], kept, about)
            return
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(about, indent=2) + "\n")


class Shapes(TypedDict):
    """What the shapes of the sites' sums follow from, as `answer_shapes` takes it."""

    features: int
    targets: int
    outputs: int
    scale: bool


class NetworkSites:
    """Sites on a network, as `compositefl.glm.sites.Sites`."""

    def __init__(
        self,
        calls: SiteCalls,
        journal: Path,
        shapes: Shapes,
        names: list[str],
        checks: SumChecks,
    ):
        self.calls, self.journal, self.shapes = calls, private_folder(journal), shapes
        self.checks = checks
        self.names = names  # in the order of the federation: sums do not depend on who is first
        self.rounds = self.bytes_up = self.bytes_down = 0
        self.away: tuple[str, ...] = ()
        self.stood_in: dict[str, int] = {}  # for how many rounds
        self.last = {name: StandIn(shapes["outputs"], shapes["scale"]) for name in names}

    def ask(self, method: str, **request: Any) -> Sums:
        """The sum over all sites, from the journal where it is there."""
        arrays, t = pack_request(method, request), self.rounds
        self.rounds += 1
        digest = call_digest(self.calls.federation.hash, ",".join(self.names), "sums", t, arrays)
        path = self.journal / f"{t:06d}"
        if path.exists():
            kept = decode(read_sealed(path, REMEDY), self.calls.federation.network.limit)
            if kept.values.get("request") == digest and self._knows(method, kept.arrays):
                if method == "evaluate" and not request.get("expected"):
                    self._note(t, tuple(kept.values.get("away", ())))
                return {name: array for name, array in kept.arrays.items() if "/" not in name}
        found = self._from_sites(t, method, request, arrays)
        answers = [found[name] for name in self.names if name in found]
        total = add_up([*answers, *self._stand_ins(t, method, request, found)])
        self.bytes_down += len(answers) * count_bytes(arrays)
        self.bytes_up += sum(map(count_bytes, answers))
        noted = total | (_by_site(found) if method == "describe" else {})
        write_sealed(path, encode({"request": digest, "away": list(self.away)}, noted))
        self.calls.report({"event": "round", "round": t + 1, "sites": sorted(found)})
        return total

    def _knows(self, method: str, kept: dict[str, Array]) -> bool:
        """Whether the journal says what later answers of each site are checked by."""
        if method != "describe":
            return True
        for name in self.names:
            mine = {
                n.removeprefix(f"{name}/"): a for n, a in kept.items() if n.startswith(f"{name}/")
            }
            if not mine:
                return False
            self.checks.described[name] = mine
        return True

    def _stand_ins(
        self, t: int, method: str, request: Request, found: dict[str, Sums]
    ) -> list[Sums]:
        """For the sites that have not answered; what the others said is kept for later."""
        if method == "evaluate":
            for name, sums in found.items():
                self.last[name].keep(request, sums)
        away = tuple(name for name in self.names if name not in found)
        if method == "evaluate" and not request.get("expected"):  # a step of the fit
            self._note(t, away)
        made = [self.last[name].answer(request) for name in away]
        return [sums for sums in made if sums is not None]

    def _note(self, t: int, away: tuple[str, ...]) -> None:
        for name in away:
            self.stood_in[name] = self.stood_in.get(name, 0) + 1
        if away != self.away:
            self.calls.report({"event": "last", "round": t + 1, "sites": list(away)})
        self.away = away

    def _from_sites(
        self, t: int, method: str, request: Request, arrays: dict[str, Array]
    ) -> dict[str, Sums]:
        """The answers by site; those that have not answered are asked again.

        With missing = "last" not: their last answers stand for them, where these are enough.
        """
        shapes = answer_shapes(method, request, **self.shapes)
        like = {name: np.zeros(shape) for name, shape in shapes.items()}
        network, roster = self.calls.federation.network, self.calls.roster

        def check(site: str, sums: Sums) -> None:
            self.checks.check(site, roster.members[site].samples, method, request, sums)

        found: dict[str, Sums] = {}
        for attempt in range(network.retries + 1):
            if attempt:
                time.sleep(network.retry_wait)
            left = [name for name in self.names if name not in found]
            self.calls.join(t, [name for name in left if not roster.members[name].joined])
            there = roster.joined(left)
            largest = LARGEST_LOSS if method == "evaluate" else LARGEST**2
            got = self.calls.ask(
                t, there, "sums", arrays, "sums", like, largest=largest, check=check
            )
            found |= {name: reply.tree for name, reply in got.items()}
            absent = [name for name in self.names if name not in found]
            if not absent or (found and self._can_stand_in(absent, method, request)):
                return found
            if not roster.willing():
                break  # asking again would get the same answer
        glm = self.calls.federation.glm
        if glm is not None and glm.missing == "without" and found:
            raise SitesLeft(",".join(found))
        raise TooFewSites(f"no answer from {', '.join(absent)}; the run can be resumed")

    def _can_stand_in(self, absent: list[str], method: str, request: Request) -> bool:
        glm = self.calls.federation.glm
        asked = glm is not None and glm.missing == "last" and method == "evaluate"
        return asked and all(self.last[name].answer(request) is not None for name in absent)


def _by_site(found: dict[str, Sums]) -> Sums:
    return {f"{site}/{name}": sums[name] for site, sums in found.items() for name in sums}


class GLMCoordinator(RunServer):
    """One fit of a federation with [glm], from the journal in `folder` where there is one."""

    def run(self) -> GLMResult:
        """Fit; a run that stopped early can be resumed."""
        with self.alone():
            return self._run()

    def _run(self) -> GLMResult:
        federation = self.federation
        self.report({"event": "start", "round": 0, "rounds": federation.rounds})
        names, stopped, model = list(federation.sites), "converged", None
        left_out: list[str] = []
        notes: list[str] = []  # what a reader of the result must know
        sites = self._sites(names)
        while model is None and stopped == "converged":
            try:
                model, all_converged = self._fit(sites, notes)
                stopped = "converged" if all_converged else "not converged"
            except SitesLeft as left:  # the samples are others: everything begins anew
                names = str(left).split(",")
                left_out = [name for name in federation.sites if name not in names]
                self.report({"event": "without", "round": sites.rounds, "sites": left_out})
                sites = self._sites(names)
            except TooFewSites as error:
                stopped = "too few sites" if self.roster.willing() else "refused"
                notes.append(str(error))
        if model is not None and sites.away:
            notes.append(
                f"the last sums of {', '.join(sites.away)} stood for it to the end: these are not "
                "the coefficients of all tables"
            )
        ended = {"ended": "; ".join(notes) or "converged", "bad": bool(notes)}
        self.report({"event": "stop", "reason": stopped, "round": sites.rounds, **ended})
        config = {
            "federation": federation.hash,
            "run": self.name,
            "target": federation.data.target if federation.data else "",
            "categories": dict(federation.data.categories) if federation.data else {},
            "sites": list(federation.sites),
            "left_out": left_out,
            "stood_in": sites.stood_in,
            "samples": {name: member.samples for name, member in self.roster.members.items()},
            "bytes_sent": self.calls.bytes_sent,
            "bytes_received": self.calls.bytes_received,
            "rounds_of_sites": dict.fromkeys(sites.names, sites.rounds),
            "ended_badly": bool(notes),
            "summary": "; ".join(notes) or f"converged in {sites.rounds} rounds",
        }
        return GLMResult(model, stopped, sites.rounds, config)

    def first_request(self, site: str) -> Sums:
        """What one site answers first: counts, sums and missing values."""
        glm = self.federation.glm
        return self._sites([site]).ask("describe", problems=1 + (glm.cv or 0 if glm else 0))

    def _sites(self, names: list[str]) -> NetworkSites:
        glm, data = self.federation.glm, self.federation.data
        assert glm is not None and data is not None
        classes = len(data.labels) or 2
        family = glm.family_of(classes)
        shapes = Shapes(
            features=len(data.features),
            targets=classes if family.response == "class" else 1,
            outputs=family.outputs(classes),
            scale=bool(family.has_scale),
        )
        journal = self.folder / ("journal" if len(names) == len(self.federation.sites) else "anew")
        checks = SumChecks(self.federation, family)
        return NetworkSites(self.calls, journal, shapes, names, checks)

    def _fit(self, sites: NetworkSites, notes: list[str]) -> tuple[GeneralizedLinearModel, bool]:
        """The model, and whether all its alphas converged."""
        glm, data = self.federation.glm, self.federation.data
        assert glm is not None and data is not None
        model = glm.estimator(self.federation.seed, self.federation.modules)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", ConvergenceWarning)
            model.fit_over(sites, list(data.features), data.labels or None)
        notes += [str(w.message) for w in told if issubclass(w.category, ConvergenceWarning)]
        return model, not any(issubclass(w.category, NotConverged) for w in told)
