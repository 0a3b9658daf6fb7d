"""Steps that set themselves: duels between numbers, from the same state and over as many rounds.

A pilot looks at psi now and then and says what to do next: go on, keep the present state, or go
back to one that was kept, and with which numbers. It is a small state machine of plain numbers, the
same for every method and every engine, without randomness, and saved with a run.

    rest   the champion, the best numbers so far, runs
    run    the champion runs `length` rounds from a mark
    cool   where noise hides its progress: then a few with the calmer numbers of the two
    duel   the challenger, with a longer or a shorter path, runs from the same mark
    calm   after `cool`: then a few with the calmer numbers of the two

Where noise hides the champion's progress, both sides of a duel end with the same, calmer numbers:
what is compared then is how far they got and not how much their noise lifts psi.

The path is eta_a Q, how far a client goes in a round. The challenger becomes the champion if it
gets lower than the champion did. Otherwise the run goes on from where the champion was, and the
rounds of the challenger are the price. Duels grow longer with the run, so that their share of the
rounds stays bounded and late decisions are about late progress.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from compositefl.algorithms.base import WITHIN, Algorithm, Knobs

MOST_STEPS = 100  # local steps that are ever tried
SHORTEST = 3  # rounds of a duel
SHARE = 0.08  # of the rounds so far, the length of a duel
LOOKS = 8  # at most, in a duel
REST = 3.0  # rounds between two duels once no move has won, in lengths of a duel
NOISY_REST = 2.0  # the same with noise
HIDDEN_REST = 3.5  # the same where noise hides the progress
BETTER = 0.02  # share of the champion's progress by which a challenger must exceed it
ROUNDING = 4e-7  # of psi, what float32 cannot tell apart
RISE = 0.1  # with noise: share of the progress so far that psi may rise before it counts as failure
CERTAIN = 2.0  # with noise: progress of fewer standard deviations of psi is none
CALMLY_BETTER = 0.1  # as BETTER, for a shorter path: it is calmer at once, and slower for long
MUCH_BETTER = 0.3  # the same with noise
CATCHING_UP = 0.8  # without noise: share of its gap at the look before that a challenger may keep
MOVING = 0.95  # a residual below this share of that of the mark is progress where psi shows none
SOLVED = 1e-3  # of the residual of the start: below it no progress is no reason to go another way
GIVE_UP = 6  # failures in a row after which psi is taken as it comes
MEMORY = 4.0  # with minibatches: gamma / eta_hat
OLD = (0.4, 0.7)  # shares of the rounds so far: what was then is compared with what is now
CREEPING = 4.0  # as CERTAIN, for the progress since then
EARLY = 20  # rounds before which creeping is not told from the start
LEAST = 1e-5  # of a step of 1/L, below which no path is set: in float32 the model would stand still
COOL = 0.5  # of the rounds of a side of a duel, how many it ends with calmer numbers
COOLING = 2  # at least so many
PATIENCE = 0.3  # of the rounds so far, the rest after a step down at the floor of the noise

# What a challenger changes, in powers of the factor: the path, and the server's step.
MOVES = {"longer": (1, 0), "shorter": (-1, 0), "less drift": (-1, 1), "more drift": (1, -1)}
CALMER = ("shorter", "less drift")  # moves that show less noise at once


class Order(NamedTuple):
    """What an engine does after a look, in this order."""

    keep: str = ""  # a name for the present state
    back: str = ""  # the name of a kept state to go back to
    same: str = ""  # the name of the kept state that from now on is the mark too
    changed: bool = False  # other numbers


class Scale(NamedTuple):
    """How far a client goes in a round, and the server's factor on it."""

    path: float  # eta_a Q
    server: float = 1.0


@dataclass(frozen=True)
class Pilot:
    """The state of one run; every field is a plain number or word."""

    scale: Scale  # of the champion
    curvature: float  # L: local steps are about 1/L where the path is short
    noisy: bool
    local_lr: float | None = None  # where the user gave it
    local_steps: int | None = None
    server_free: bool = False
    memory: float = 1.0  # of the knobs
    most: float = math.inf  # path times the server's step stays below, for 1/rho
    gentle: float = math.inf  # and below this, so that a prox leaves most of the model
    factor: float = 4.0  # of the moves; 2 once none has won
    shortest: int = SHORTEST
    phase: str = "run"
    challenger: Scale | None = None
    calmer: Scale | None = None  # while a side of a duel cools: the numbers in use
    before: float = math.nan  # psi of the champion before it cooled
    lift: float = math.nan  # of its psi by its noise, where noise hides its progress
    since: int = 0  # round in which the phase began
    length: int = SHORTEST  # of the present duel
    move: str = "longer"  # the next to try
    lost: int = 0  # duels lost since the last one that was won
    first: float = math.nan  # psi of the start
    mark: float = math.nan  # psi of the mark
    champion: float = math.nan  # psi of the champion at the end of its rounds
    progress: float = 0.0  # of the champion, for the margin by which it must be beaten
    first_residual: float = math.nan  # norm of the natural residual at the start
    mark_residual: float = math.nan  # at the mark
    failures: int = 0  # in a row
    good: Scale | None = None  # the scale before the first of them
    wait: int = 0  # rounds of the rest, where they are more than usual
    recent: tuple[float, ...] = ()  # psi at the looks of this phase
    rival: tuple[float, ...] = ()  # in a duel: those of the champion
    course: tuple[tuple[int, float], ...] = ()  # with noise: rounds and psi of its looks

    @classmethod
    def of(
        cls,
        method: Algorithm,
        curvature: float,
        noisy: bool,
        share: float,
        minibatches: bool = False,
    ) -> "Pilot":
        """The first guess: local steps of 1/L, L the largest curvature of a client, many of them.

        method: with "auto" where a number is to set itself. share: of the clients in a round.
        minibatches: whether these are the noise, or a part of it.
        """
        most = longest_path(method)
        known = math.isfinite(curvature) and curvature > 0
        curvature = float(f"{curvature:.3g}") if known else 1.0
        given: dict[str, Any] = {
            name: getattr(method, name, None) for name in ("local_lr", "local_steps")
        }
        given = {name: None if isinstance(v, str) else v for name, v in given.items()}
        server = getattr(method, "server_lr", 1.0)
        path = (given["local_lr"] or 1 / curvature) * (given["local_steps"] or MOST_STEPS)
        shortest = max(SHORTEST, math.ceil(2 / share))
        server_lr = 1.0 if isinstance(server, str) else server
        return cls(
            Scale(min(path, most / max(1.0, server_lr)), server_lr),
            curvature,
            noisy,
            **given,
            most=most,
            server_free=isinstance(server, str),
            memory=MEMORY if minibatches else 1.0,
            shortest=shortest,
            length=shortest,
        )

    @property
    def begun(self) -> bool:
        """Whether it has seen the start."""
        return not math.isnan(self.first)

    def gentler(self, path: float) -> "Pilot":
        """Take no longer path than this one, at least a step of 1/L, times the server's step.

        The first call sets the limit, later ones can only raise it: as a model grows.
        """
        path = max(path, 1 / self.curvature)
        if self.begun:
            return replace(self, gentle=max(path, self.gentle))
        within = min(self.scale.path, path / max(1.0, self.scale.server))
        return replace(self, gentle=path, scale=Scale(within, self.scale.server))

    @property
    def knobs(self) -> Knobs:
        """The numbers in use."""
        return self._knobs(self.calmer or self.challenger or self.scale)

    def _knobs(self, scale: Scale) -> Knobs:
        """As many steps as the path needs; with noise as many as may be, to average it."""
        steps, lr = self.local_steps, self.local_lr
        if steps is None:
            wanted = scale.path * (1 / lr if lr else self.curvature)
            most = MOST_STEPS if self.noisy and lr is None else math.ceil(wanted - 1e-9)
            steps = min(max(1, most), MOST_STEPS)
        return Knobs(lr or scale.path / steps, steps, scale.server, self.memory)

    @property
    def next_look(self) -> int:
        """The round after which the pilot wants to see psi."""
        if self.phase == "rest" and not self.noisy:
            return self._last_look
        length = self._last_look - self.since
        return self.since + min(length, (len(self.recent) + 1) * math.ceil(length / LOOKS))

    @property
    def _last_look(self) -> int:
        """The round in which the phase ends."""
        noisy = NOISY_REST if math.isnan(self.lift) else HIDDEN_REST
        rest = max(1, round((noisy if self.noisy else REST) * self.length), self.wait)
        lengths = {"rest": rest, "cool": self._cooling, "calm": self._cooling}
        return self.since + lengths.get(self.phase, self.length)

    @property
    def _cooling(self) -> int:
        """Rounds of both sides of a duel with the calmer numbers."""
        return max(COOLING, round(COOL * self.length))

    def saved(self) -> dict[str, Any]:
        """All of it as plain values."""
        return asdict(self)

    @classmethod
    def restored(cls, saved: dict[str, Any]) -> "Pilot":
        """The pilot that `saved` was."""
        other, calmer = saved["challenger"], saved.get("calmer")
        there: dict[str, Any] = {"scale": Scale(*saved["scale"]), "recent": tuple(saved["recent"])}
        there |= {"rival": tuple(saved.get("rival", ()))}  # older checkpoints have neither
        there |= {"course": tuple((int(r), psi) for r, psi in saved.get("course", ()))}
        good = saved["good"]
        there |= {"good": Scale(*good) if good else None}
        there |= {"challenger": Scale(*other) if other else None}
        return cls(**(saved | there | {"calmer": Scale(*calmer) if calmer else None}))

    def look(
        self, round_: int, psi: float, residual: float, same: Callable[[Knobs, Knobs], bool]
    ) -> tuple["Pilot", Order]:
        """The pilot after it has seen psi and the residual at `round_`, and what is to be done.

        same: whether two sets of numbers make the same method, for instance at the limit 1/rho.
        """
        if math.isnan(self.first):  # the start
            begun = replace(self, first=psi, mark=psi, since=round_)
            begun = replace(begun, first_residual=residual, mark_residual=residual)
            return begun, Order(keep="mark")
        if round_ < self.next_look and math.isfinite(psi):
            return self, Order()  # somebody else's look
        seen = replace(self, recent=(*self.recent, psi))
        if self.phase in ("duel", "calm"):
            return seen._in_duel(round_)
        if self.phase == "cool" and math.isfinite(psi):
            return seen._cooled(round_, same) if round_ >= self._last_look else (seen, Order())
        if seen._failed(psi):
            return seen._after_failure(round_, psi)
        if round_ < self._last_look:
            return seen, Order()
        if self.phase == "run" and seen._stuck(residual) and self.failures <= GIVE_UP:
            shorter = replace(seen._shorter(), mark=psi, mark_residual=residual)
            return shorter._enter("run", round_), Order(keep="mark", changed=True)
        seen = replace(seen, failures=0, good=None, mark_residual=residual)
        if self.phase == "rest":
            return replace(seen, mark=seen._level())._enter("run", round_), Order(keep="mark")
        move = seen._next_move(same)
        if move is None:  # nothing to try: the champion goes on
            return replace(seen, mark=seen._level())._enter("rest", round_), Order(keep="mark")
        seen = replace(seen, move=move)
        if seen._hidden():
            cool = replace(seen, calmer=seen._calmer(move), before=seen._level())
            return cool._enter("cool", round_), Order(changed=True)
        return replace(seen, lift=math.nan)._challenged(round_)

    def _cooled(self, round_: int, same: Callable[[Knobs, Knobs], bool]) -> tuple["Pilot", Order]:
        """The champion has cooled: at the floor of its noise a shorter path, else a duel."""
        level = self._level()
        seen = replace(self, calmer=None, lift=max(self.before - level, 0.0))
        seen = seen._noted(round_, level)
        scale = seen._moved("shorter")
        if seen._at_floor() and not same(seen._knobs(seen.scale), seen._knobs(scale)):
            lower = replace(seen, scale=scale, mark=level, move="longer", lost=0)
            lower = replace(lower, wait=round(PATIENCE * round_))
            return lower._enter("rest", round_), Order(keep="mark", changed=True)
        return seen._challenged(round_)

    def _challenged(self, round_: int) -> tuple["Pilot", Order]:
        """The champion has shown what it can: the challenger's turn."""
        duel = replace(self, champion=self._level(), progress=self._progress())
        duel = replace(duel, challenger=self._moved(self.move), rival=self.recent)
        return duel._enter("duel", round_), Order(keep="champion", back="mark", changed=True)

    def _calmer(self, move: str) -> Scale:
        """Of the champion and the challenger, the one with the shorter path."""
        return min(self.scale, self._moved(move), key=lambda scale: scale.path)

    def begin_anew(self, round_: int) -> tuple["Pilot", Order]:
        """Forget psi, which is about other clients from now on; a duel ends without a winner."""
        back = self.phase in ("duel", "calm")
        order = Order(back="champion", same="champion", changed=True) if back else Order()
        over = replace(self, challenger=None, calmer=None, failures=0, good=None)
        over = replace(over, first=math.nan, mark=math.inf, course=())
        return over._enter("run", round_), order

    def end(self, round_: int, psi: float) -> tuple["Pilot", Order]:
        """After the last round: go to the best state that is there, with the champion's numbers."""
        if math.isnan(self.first):  # nothing to compare with
            return self, Order()
        kept = {"mark": self.mark}
        if self.phase in ("duel", "calm"):
            kept["champion"] = self.champion
        best = min(kept, key=lambda name: kept[name])
        if psi <= kept[best] + self._slack(kept[best]):
            return self, Order()
        over = replace(self, challenger=None, calmer=None, mark=kept[best])
        return over._enter("rest", round_), Order(back=best, same=best, changed=True)

    def _in_duel(self, round_: int) -> tuple["Pilot", Order]:
        psi, done = self.recent[-1], round_ >= self._last_look
        if not math.isnan(self.lift) and self.phase == "duel" and done and math.isfinite(psi):
            cool = replace(self, calmer=self._calmer(self.move))
            return cool._enter("calm", round_), Order(changed=True)
        share = BETTER
        if self.move in CALMER:
            share = MUCH_BETTER if self.noisy else CALMLY_BETTER
        goal = self.champion - share * self.progress - ROUNDING * abs(self.champion)
        if (done or not self.noisy) and self._level() < goal:
            won = replace(self, scale=self.challenger or self.scale, challenger=None, lost=0)
            won = replace(won, mark=self._level(), calmer=None)
            return won._enter("run", round_), Order(keep="mark", changed=self.calmer is not None)
        half = round_ >= self.since + self.length / 2
        hopeless = half and self.phase == "duel" and (self._failed(psi) or self._behind())
        if done or not math.isfinite(psi) or hopeless:
            names = list(MOVES)
            after = names[(names.index(self.move) + 1) % len(names)]
            over = replace(self, challenger=None, calmer=None, move=after, lost=self.lost + 1)
            over = replace(over, mark=self.champion)
            phase = "run"
            if over.lost >= len(over._moves()):
                over, phase = replace(over, factor=2.0), "rest"
            order = Order(back="champion", same="champion", changed=True)
            return over._enter(phase, round_), order
        return self, Order()

    def _behind(self) -> bool:
        """Without noise: whether the challenger is behind the champion and does not catch up."""
        if self.noisy or not 2 <= len(self.recent) <= len(self.rival):
            return False
        before, now = [a - b for a, b in zip(self.recent, self.rival, strict=False)][-2:]
        return now > 0 and now >= CATCHING_UP * before

    def _after_failure(self, round_: int, psi: float) -> tuple["Pilot", Order]:
        """Back with a quarter of the path; if that does not help either, psi as it comes."""
        if self.failures >= GIVE_UP and math.isfinite(psi):
            over = replace(self, scale=self.good or self.scale, mark=psi, failures=GIVE_UP + 1)
            return over._enter("rest", round_), Order(keep="mark", changed=True)
        smaller = replace(self._shorter(), calmer=None, lift=math.nan, curvature=2 * self.curvature)
        return smaller._enter("run", round_), Order(back="mark", changed=True)

    def _shorter(self) -> "Pilot":
        """A quarter of the path, without a duel."""
        scale, good = Scale(self.scale.path / 4, self.scale.server), self.good or self.scale
        return replace(self, scale=scale, good=good, failures=self.failures + 1, move="shorter")

    def _stuck(self, residual: float) -> bool:
        """Whether neither psi nor the residual has moved, far from a solution.

        So it is where a prox with a long step sets everything to zero, again and again.
        """
        still = abs(self.mark - self._level()) <= ROUNDING * abs(self.mark)
        moving = residual < MOVING * self.mark_residual
        return still and not moving and not residual <= SOLVED * self.first_residual

    def _enter(self, phase: str, round_: int) -> "Pilot":
        length = self.length
        if phase not in ("cool", "duel", "calm"):
            length = max(self.shortest, round(SHARE * round_))
        wait = self.wait if phase == "rest" else 0
        return replace(self, phase=phase, since=round_, length=length, wait=wait, recent=())

    def _late(self) -> tuple[float, ...]:
        return self.recent[len(self.recent) // 2 :]

    def _level(self) -> float:
        """psi at the end of the phase; with noise the mean over its second half."""
        late = self._late() if self.noisy else self.recent[-1:]
        return sum(late) / len(late)

    def _progress(self) -> float:
        """How far psi fell in this phase; without noise not more than its last look's pace.

        psi falls steeply from a start, and a share of that may be more than all that is left.
        """
        fall = max(self.mark - self._level(), 0.0)
        if self.noisy or len(self.recent) < 2:
            return fall
        pace = max(self.recent[-2] - self.recent[-1], 0.0)
        return min(fall, pace * len(self.recent))

    def _noted(self, round_: int, psi: float) -> "Pilot":
        """With the champion's course one look longer; what is long ago is left out."""
        if not self.noisy:
            return self
        course = [look for look in self.course if look[0] >= OLD[0] * round_]
        return replace(self, course=(*course, (round_, psi)))

    def _at_floor(self) -> bool:
        """Whether the champion's progress is lost in the noise of psi.

        That of this phase, and that of the last half of the run: where psi creeps, in directions
        of little curvature, a single phase does not show it. Noise that float32 cannot see in psi
        is no reason for shorter steps.
        """
        if not self._hidden() or self._scatter() <= ROUNDING * abs(self._level()):
            return False
        now = self.course[-1][0]
        old = [psi for round_, psi in self.course if round_ <= OLD[1] * now]
        if now < EARLY or len(old) < 3:
            return True
        return median(old) - self._level() < CREEPING * self._scatter()

    def _hidden(self) -> bool:
        """Whether the progress of this phase is lost in the noise of psi."""
        if not self.noisy or len(self._late()) < 2:
            return False
        return self.mark - self._level() < CERTAIN * self._scatter()

    def _scatter(self) -> float:
        """The standard deviation of psi at the late looks, whatever its trend."""
        steps = [(b - a) ** 2 for a, b in pairwise(self._late())]
        return math.sqrt(sum(steps) / len(steps) / 2)

    def _slack(self, psi: float) -> float:
        """How much psi may rise by rounding, or by noise."""
        noise = RISE * max(self.first - self.mark, 0.0) if self.noisy else 0.0
        lifted = 0.0 if math.isnan(self.lift) else 2 * self.lift
        return ROUNDING * abs(psi) + noise + lifted

    def _failed(self, psi: float) -> bool:
        return not psi <= self.mark + self._slack(self.mark)

    def _moves(self) -> list[str]:
        """The moves that the free numbers allow."""
        drift = self.server_free and self.local_lr is None
        free = self.local_lr is None or self.local_steps is None
        return [name for name in MOVES if free and (drift or "drift" not in name)]

    def _next_move(self, same: Callable[[Knobs, Knobs], bool]) -> str | None:
        """The next move that changes something; at a floor of the noise the one that lowers it."""
        names = list(MOVES)
        start = names.index(self.move)
        for name in names[start:] + names[:start]:
            other = self._moved(name)
            if name in self._moves() and not same(self._knobs(self.scale), self._knobs(other)):
                return name
        return None

    def _moved(self, move: str) -> Scale:
        """The scale after a move; the server's step stays at least 1, the path below its limit."""
        path, server = (self.factor**power for power in MOVES[move])
        if self.scale.server * server < 1:
            return self.scale
        server *= self.scale.server
        most = min(self.most, self.gentle) / server
        least = min(self.scale.path, LEAST / self.curvature)
        return Scale(max(least, min(path * self.scale.path, most)), server)


def longest_path(method: Algorithm) -> float:
    """The most that eta_a Q eta_s may be below 1/rho."""
    return WITHIN * float(np.min(np.asarray(method.regularizer.max_prox)))
