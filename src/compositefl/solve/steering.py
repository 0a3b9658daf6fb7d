"""Pilots at work in a simulation: one a run, with the states that they go back to."""

from collections.abc import Callable, Sequence
from typing import Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from compositefl.algorithms.base import Algorithm, Knobs, automatic
from compositefl.core.types import Array, Number, Params, PlainValues, PyTree
from compositefl.engine.pilot import Order, Pilot, longest_path
from compositefl.regularizers.base import Regularizer

BEFORE = Knobs(1e-6, 1)  # numbers before the first guess: gamma so small that x_0 = z_0
NAMES = ("mark", "champion")  # of the states that are kept
TAKES = 0.7  # share of a model's norm that one prox may take; less slows networks without a trap
PATHS = 2.0 ** np.arange(-20, 15)


class Steerable(Protocol):
    """Runs whose numbers can change: those of a simulation, or the one of a network.

    Models and states have an axis of runs in front.
    """

    @property
    def round(self) -> int:
        """Rounds so far."""

    @property
    def work(self) -> PyTree:
        """What the clients have computed so far."""

    def curvature(self) -> float:
        """The largest curvature of a client's loss at the start."""

    def begin(self, algorithms: Sequence[Algorithm]) -> None:
        """Stand at the start, with these numbers."""

    def renumber(self, algorithms: Sequence[Algorithm]) -> None:
        """Go on from the present models with other numbers."""

    def models(self) -> Params:
        """The present models."""

    def state(self) -> PyTree:
        """What `restore` goes back to."""

    def restore(self, state: PyTree, work: PyTree, round_: int, /) -> None:
        """Stand where `state` was, after this work and so many rounds."""

    def hold(self, states: Sequence[PyTree], /) -> None:
        """The states that `restore` may be asked for from now on."""


class Steering:
    """Sets the numbers of a simulation's runs. Runs look together, whenever one of them wants to.

    methods: one a run, with "auto" where a number is to set itself. share: of the clients in a
    round.
    """

    def __init__(
        self,
        simulation: Steerable,
        methods: Sequence[Algorithm],
        noisy: bool,
        share: float,
        minibatches: bool = False,
    ):
        self.simulation, self.methods = simulation, methods
        about = simulation.curvature(), noisy, share, minibatches
        self.pilots = [Pilot.of(method, *about) for method in methods]
        first = self.algorithms()
        start = [
            a if a.regularizer.constrains else m.at(BEFORE)
            for a, m in zip(first, methods, strict=True)
        ]
        simulation.begin(start)
        self._stay_gentle()
        simulation.renumber(self.algorithms())
        self.kept = {name: simulation.state() for name in NAMES}
        self.under = {name: [p.knobs for p in self.pilots] for name in NAMES}  # numbers of states
        simulation.hold(list(self.kept.values()))

    def algorithms(self) -> list[Algorithm]:
        """The methods with the numbers in use."""
        return [m.at(pilot.knobs) for m, pilot in zip(self.methods, self.pilots, strict=True)]

    def numbers(self, run: int) -> dict[str, float]:
        """The numbers of one run that set themselves, for its history."""
        now = self.methods[run].at(self.pilots[run].knobs)
        return {name: float(getattr(now, name)) for name in automatic(self.methods[run])}

    @property
    def next_look(self) -> int:
        """The round after which psi is wanted next."""
        return min(pilot.next_look for pilot in self.pilots)

    def look(self, psi: Sequence[float], residual: Sequence[float], last: bool = False) -> bool:
        """Show the pilots what there is of every run, do what they say.

        Returns whether a model has changed.
        """
        orders, before = [], [pilot.knobs for pilot in self.pilots]
        round_ = self.simulation.round
        for run, pilot in enumerate(self.pilots):
            if last:
                self.pilots[run], order = pilot.end(round_, psi[run])
            else:
                seen = psi[run], residual[run]
                self.pilots[run], order = pilot.look(round_, *seen, self._same(run))
            orders.append(order)
        if any(order.keep == "mark" for order in orders):
            self._stay_gentle()
        return self._carry_out(orders, before)

    def begin_anew(self) -> bool:
        """Other clients count from now on; returns whether a model has changed."""
        before = [pilot.knobs for pilot in self.pilots]
        begun = [pilot.begin_anew(self.simulation.round) for pilot in self.pilots]
        self.pilots = [pilot for pilot, _ in begun]
        return self._carry_out([order for _, order in begun], before)

    def _stay_gentle(self) -> None:
        """Tell the pilots how long a path may be for a prox to leave most of the present model.

        A model that a prox has emptied is a trap: for a network it is almost stationary, and its
        psi is lower than that of a random start, so that no duel would lead out. Only with noise:
        without it duels tell so much that a longer path is worth the risk.
        """
        if not any(pilot.noisy for pilot in self.pilots):
            return
        models = self.simulation.models()
        for run, (method, pilot) in enumerate(zip(self.methods, self.pilots, strict=True)):
            model = jax.tree.map(lambda a, run=run: a[run], models)
            steps = np.minimum(PATHS * pilot.memory, longest_path(method))
            taken = np.asarray(_taken(method.regularizer, model, steps))
            fine = taken <= TAKES
            # No limit where there is nothing to lose, or any prox takes it: one onto a set.
            limited = fine[0] and not fine.all()
            path = float(PATHS[np.argmin(fine) - 1]) if limited else np.inf
            if np.isfinite(taken).all() or not pilot.begun:  # not finite: zero, or diverged
                self.pilots[run] = pilot.gentler(path)

    def _same(self, run: int) -> Callable[[Knobs, Knobs], bool]:
        method = self.methods[run]
        return lambda a, b: repr(method.at(a)) == repr(method.at(b))

    def _carry_out(self, orders: Sequence[Order], before: list[Knobs]) -> bool:
        if not any(any(order) for order in orders):
            return False
        simulation, under = self.simulation, list(before)
        state = simulation.state()
        for run, order in enumerate(orders):
            if order.keep:
                _copy_run(state, self.kept[order.keep], run)
                self.under[order.keep][run] = before[run]
            if order.back:
                _copy_run(self.kept[order.back], state, run)
                under[run] = self.under[order.back][run]
            if order.same:
                _copy_run(self.kept[order.same], self.kept["mark"], run)
                self.under["mark"][run] = self.under[order.same][run]
        if any(order.back for order in orders):
            pairs = zip(self.methods, under, strict=True)
            simulation.renumber([m.at(knobs) for m, knobs in pairs])  # those of the old states
            simulation.restore(state, simulation.work, simulation.round)
        simulation.hold(list(self.kept.values()))
        simulation.renumber(self.algorithms())
        return any(order.back for order in orders)

    def saved(self) -> tuple[dict[str, PyTree], PlainValues]:
        """(arrays, plain values) of all that a resumed run needs."""
        about = {"pilots": [p.saved() for p in self.pilots], "under": self.under}
        return self.kept, about

    def restore(self, kept: PyTree, about: PlainValues) -> None:
        """Take back what `saved` gave, before the simulation's own state is restored."""
        self.kept = jax.tree.map(np.array, kept)
        self.simulation.hold(list(self.kept.values()))
        self.pilots = [Pilot.restored(p) for p in about["pilots"]]
        self.under = {name: [Knobs(*k) for k in about["under"][name]] for name in NAMES}
        self.simulation.renumber(self.algorithms())


def _copy_run(source: PyTree, target: PyTree, run: int) -> None:
    """Copy one run's part of a state into another."""
    jax.tree.map(lambda a, b: b.__setitem__(run, a[run]), source, target)


@jax.jit
def _taken(phi: Regularizer, x: PyTree, steps: Array) -> Array:
    """The share of the norm of x that prox_t takes, for every t of `steps`."""

    def norm(tree: PyTree) -> jax.Array:
        return jnp.sqrt(sum(jnp.sum(jnp.square(a)) for a in jax.tree.leaves(tree)))

    def share(t: Number) -> Array:
        return norm(jax.tree.map(jnp.subtract, x, phi.prox(x, t))) / norm(x)

    return lax.map(share, steps)
