"""Numbers that set themselves over a network, with the decisions of a simulation.

`solve.steering` decides and carries out, there as here. What it calls a state of the run is the
server's state, and for each site the round that the site's own state is of: sites keep the states
that the run may go back to, and every message says which one counts.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import jax
import numpy as np

from compositefl.algorithms.base import Algorithm, Knobs
from compositefl.core.errors import CompositeFLError, require_integer, require_positive, wrong_value
from compositefl.core.types import Params, PlainValues, PyTree
from compositefl.core.vector import unwrap
from compositefl.deployment import compute
from compositefl.deployment.messages import Message, unpack, value
from compositefl.deployment.store import BEFORE_FIRST
from compositefl.engine.pilot import MOST_STEPS
from compositefl.solve.steering import NAMES, Steering

if TYPE_CHECKING:
    from compositefl.deployment.coordinator import Coordinator


class SteeredRun:
    """A coordinator's run, as `Steering` sees a simulation of one run.

    curvature: the largest that a site has measured.
    """

    work: PyTree = None  # is counted by the coordinator

    def __init__(self, coordinator: "Coordinator", curvature: float):
        self.coordinator, self.found = coordinator, curvature
        plan = coordinator.plan
        noisy = plan.batch_size is not None
        self.steering = Steering(self, [plan.method], noisy, share=1.0, minibatches=noisy)
        self.sites: list[str] = []  # whose psi the pilot compares
        coordinator.calls.steered = self.about

    @classmethod
    def restored(
        cls, coordinator: "Coordinator", saved: PlainValues, arrays: Mapping[str, np.ndarray]
    ) -> "SteeredRun":
        """What `saved` gave, before the coordinator's own state is restored."""
        self = cls(coordinator, saved["curvature"])
        self.steering.restore(unpack("kept", arrays, self.steering.kept), saved)
        self.sites = saved["sites"]
        return self

    def saved(self) -> tuple[PyTree, PlainValues]:
        """(arrays, plain values) of all that a restarted server needs."""
        kept, about = self.steering.saved()
        return kept, about | {"curvature": self.found, "sites": self.sites}

    def begin_anew(self, sites: list[str]) -> bool:
        """Compare from here on, where others answer than before; whether the model has changed.

        The objectives of two sets of sites say nothing about numbers.
        """
        if not sites or sites == self.sites:
            return False
        first, self.sites = not self.sites, sites
        return not first and self.steering.begin_anew()

    @property
    def round(self) -> int:
        """Rounds so far."""
        return self.coordinator.round

    def curvature(self) -> float:
        """The largest curvature of a site's loss at the start."""
        return self.found

    def begin(self, algorithms: Sequence[Algorithm]) -> None:
        """Stand at the start, with these numbers."""
        plan = self.coordinator.plan
        plan.use(algorithms[0])
        self.coordinator.server = plan.start()[0]

    def renumber(self, algorithms: Sequence[Algorithm]) -> None:
        """Go on from the present model with other numbers."""
        plan = self.coordinator.plan
        before = plan.algorithm
        plan.use(algorithms[0])
        with plan.precision():
            server = compute.rescale(before, self.coordinator.server, plan.algorithm)
            self.coordinator.server = jax.device_get(server)

    def models(self) -> Params:
        """The model, with an axis of runs."""
        return jax.tree.map(lambda a: np.asarray(a)[None], unwrap(self.coordinator.model()))

    def state(self) -> PyTree:
        """What `restore` goes back to, with an axis of one run."""
        accepted = list(self.coordinator.roster.accepted().values())
        server = jax.tree.map(lambda a: np.array(a)[None], self.coordinator.server)
        return {"server": server, "accepted": np.array([accepted], np.int64)}

    def restore(self, state: PyTree, _work: PyTree, _round: int) -> None:
        """Stand where `state` was; the rounds go on counting."""
        coordinator = self.coordinator
        coordinator.server = jax.tree.map(lambda a: np.array(a[0]), state["server"])
        members = coordinator.roster.members.values()
        for member, accepted in zip(members, state["accepted"][0], strict=True):
            member.accepted = int(accepted)

    def hold(self, _kept: Sequence[PyTree]) -> None:
        """Nothing: every message tells the sites what to keep."""

    def about(self) -> PlainValues:
        """What every message says: the numbers, and the rounds whose states a site keeps."""
        kept = [self.steering.kept[name]["accepted"][0] for name in NAMES]
        rounds = zip(*(a.tolist() for a in kept), strict=True)
        keep = [sorted({t for t in both if t != BEFORE_FIRST}) for both in rounds]
        sites = self.coordinator.roster.members
        return {
            "numbers": list(self.steering.pilots[0].knobs),
            "keep": dict(zip(sites, keep, strict=True)),
        }


def numbers_of(message: Message) -> Knobs:
    """The numbers that a server asks a site to take, if they are such as a pilot sets."""
    given = value(message, "numbers", list)
    if len(given) != len(Knobs._fields):
        raise wrong_value(
            "numbers", given, f"those of {', '.join(Knobs._fields)}", shown=repr(given)
        )
    knobs = Knobs(*given)
    require_positive(local_lr=knobs.local_lr, server_lr=knobs.server_lr, memory=knobs.memory)
    require_integer(local_steps=knobs.local_steps)
    if knobs.local_steps > MOST_STEPS:
        raise CompositeFLError(
            f"local_steps={knobs.local_steps}: numbers that set themselves are at most "
            f"{MOST_STEPS}",
            parameter="local_steps",
            value=knobs.local_steps,
        )
    return knobs


def rounds_to_keep(message: Message, site: str) -> frozenset[int]:
    """The rounds whose states a site is asked to keep."""
    found = value(message, "keep", dict).get(site)
    if (
        not isinstance(found, list)
        or len(found) > len(NAMES)
        or not all(type(t) is int and t >= 0 for t in found)
    ):
        raise wrong_value(
            "keep", found, f"at most {len(NAMES)} rounds of {site}", shown=repr(found)
        )
    return frozenset(found)
