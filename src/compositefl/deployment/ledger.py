"""What a site has given, over all runs and on its own disk, and what it may still give.

By the sha256 of a federation a site agrees to its rounds, its number of runs and its privacy loss.
A server may ask for more; the ledger is why it does not get it. An answer is written down before it
leaves the site. The same answer sent again costs nothing.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from compositefl.algorithms.base import automatic
from compositefl.core.errors import CompositeFLError
from compositefl.core.files import in_turn, private_folder, read_sealed, write_sealed
from compositefl.deployment.entries import positive, whole
from compositefl.deployment.federation import Federation
from compositefl.deployment.privacy import epsilon_of

FOLDER = ".ledger"  # beside the runs, whose names do not begin with a dot
REMEDY = "restore it from a backup; without it this site does not know what it has given"
IN_WORDS = {
    "uploads": "uploads",
    "openings": "full gradients",
    "evaluations": "evaluations",
    "curvatures": "curvatures",
}


class Account(TypedDict):
    """What a site has given of one federation."""

    federation: str  # its sha256
    name: str
    noise: float | None  # on every upload
    runs: dict[str, dict[str, int]]  # by run: how many answers of each kind


@dataclass(frozen=True)
class SiteLimits:
    """The table [limits] of site.toml: what its owner allows, whatever a federation says."""

    runs: int | None = None  # of one federation; default what the federation says
    uploads: int | None = None  # over all runs of one federation
    epsilon: float | None = None  # over all federations; those without noise are refused
    minimum_samples: int = 1  # the federation's own minimum holds too

    def __post_init__(self) -> None:
        whole(self, "minimum_samples", "runs", "uploads")
        positive(self, "epsilon")


class Ledger:
    """The account of one site for one run; `folder` holds those of all federations."""

    def __init__(self, folder: Path, federation: Federation, run: str, own: SiteLimits):
        self.folder = private_folder(folder / FOLDER)
        self.path = self.folder / federation.hash
        self.federation, self.run, self.own = federation, run, own
        agreed = federation.limits.runs * max(1, len(federation.path))
        self.runs = agreed if own.runs is None else own.runs
        self.most = budget(federation)
        if own.epsilon is not None and federation.privacy is None:
            raise CompositeFLError(
                f"this site gives at most epsilon {own.epsilon:g}, and the federation adds no noise"
            )
        self._check_runs(self._read())

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else gives anything of this federation meanwhile."""
        with in_turn(self.folder / "lock"):
            yield

    def check(self, kind: str) -> int:
        """The number of the next answer of a kind; refused if it was not agreed to."""
        account = self._read()
        self._check_runs(account)
        number = account["runs"].get(self.run, {}).get(kind, 0) + 1
        if number > self.most[kind]:
            raise CompositeFLError(
                f"this site agreed to {self.most[kind]} {IN_WORDS[kind]} in a run and has given "
                "them"
            )
        if kind == "uploads":
            self._check_uploads(account)
        return number

    def record(self, kind: str, number: int) -> None:
        """Write down that this run has been given `number` answers of a kind."""
        account = self._read()
        mine = account["runs"].setdefault(self.run, dict.fromkeys(IN_WORDS, 0))
        if number > mine.get(kind, 0):
            mine[kind] = number
            write_sealed(self.path, json.dumps(account).encode())

    def _check_runs(self, account: Account) -> None:
        others = [name for name in account["runs"] if name != self.run]
        if len(others) >= self.runs:
            raise CompositeFLError(
                f"this site agreed to {self.runs} run{'s' * (self.runs > 1)} of the federation and "
                f"has answered {', '.join(others)}; its owner may raise runs in [limits] of "
                "site.toml"
            )

    def _check_uploads(self, account: Account) -> None:
        given = sum(run["uploads"] for run in account["runs"].values())
        if self.own.uploads is not None and given >= self.own.uploads:
            raise CompositeFLError(
                f"this site allows {self.own.uploads} uploads of a federation and has given them"
            )
        privacy = self.federation.privacy
        if privacy is None:
            return
        if privacy.epsilon is not None:
            self._check_epsilon([(privacy.noise, given + 1)], privacy.epsilon)
        if self.own.epsilon is not None:
            spent = [
                (other["noise"], sum(run["uploads"] for run in other["runs"].values()))
                for other in accounts(self.folder.parent)
                if other["noise"] is not None
            ]
            self._check_epsilon([*spent, (privacy.noise, 1)], self.own.epsilon)

    def _check_epsilon(self, events: list[tuple[float, int]], most: float) -> None:
        assert self.federation.privacy is not None
        cost = epsilon_of(events, self.federation.privacy.delta)
        if cost > most:
            raise CompositeFLError(
                f"one more upload would cost this site epsilon {cost:.4g}, it gives {most:g}"
            )

    def _read(self) -> Account:
        if self.path.exists():
            return json.loads(read_sealed(self.path, REMEDY))
        federation = self.federation
        noise = None if federation.privacy is None else federation.privacy.noise
        return {
            "federation": federation.hash,
            "name": federation.name,
            "noise": noise,
            "runs": {},
        }


def accounts(folder: Path) -> list[Account]:
    """What a site has given: for each federation its name, its noise and its runs."""
    files = sorted(path for path in (folder / FOLDER).glob("*") if len(path.name) == 64)
    return [json.loads(read_sealed(path, REMEDY)) for path in files]


def budget(federation: Federation) -> dict[str, int]:
    """Answers of each kind in one run.

    A round is answered once. Without noise a few may be asked again with another message, as after
    a fault; with noise each answer costs, and there are as many as rounds. Where numbers set
    themselves the server may look at the objective after every round.
    """
    rounds, every = federation.rounds, federation.every
    steered = federation.glm is None and bool(automatic(federation.make_algorithm()))
    spare = 0 if federation.privacy is not None else max(10, rounds // 10)
    looks = rounds // every + 2 + spare + steered * (rounds + 2) if every else 0
    return {
        "uploads": rounds + spare,
        "openings": rounds + spare,
        "evaluations": 2 * looks,  # at the model and at the normal map's point
        "curvatures": steered * (1 + spare),
    }
