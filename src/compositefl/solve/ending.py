"""How a run ended, in one sentence, from its history alone."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from compositefl.core.types import HistoryRow

if TYPE_CHECKING:
    import pandas as pd

RISE = 1e-3  # psi this much above its start, relatively, is above it: less may be rounding or noise
FALL = 1e-3  # without a tolerance: the residual's share of its start that counts as converged
FLOOR = 1e-6  # without a tolerance: a residual this small beside max(1, |psi|) is zero to rounding
FEWEST = 6  # evaluations from which a trend can be read
SHORT = 30  # rounds before which no progress is no end
DEEP = 1e3  # psi below minus this times max(1, |its start|), and still sinking, has no lower bound
BOTTOMLESS = 1e9  # the same for any psi
SINKING = 0.3  # share of its whole fall that psi falls in the last third, where it sinks
CERTAIN = 3.0  # standard errors that a trend must exceed
BAD_START = (
    "The gradient is not finite at the start, or too large to be squared: other params, where the "
    "loss has a slope (no root or norm of zero), or data of another scale"
)
REMEDIES = {
    "minibatches": "larger batches",
    "sampled clients": "more clients in a round",
    "lost uploads": "fewer lost uploads",
}

# From the worst to the best; with several trials the worst one is told.
KINDS = (
    "diverged",
    "not finite",
    "above start",
    "unbounded",
    "stalled",
    "noise floor",
    "falling",
    "too short to tell",
    "stopped early",
    "converged",
)
BAD = KINDS[:4]
FULL_RUNS = ("rounds", "tolerance", "diverged")  # reasons to stop that are no interruption


@dataclass(frozen=True)
class Ending:
    """How a run ended: one of `KINDS`, and a sentence that says what was seen."""

    kind: str
    sentence: str
    tolerance: float | None = None

    @property
    def converged(self) -> bool:
        """The natural residual is small enough, and psi not above its start."""
        return self.kind == "converged"

    @property
    def bad(self) -> bool:
        """The model is worse than the start, not finite, or on its way to infinity."""
        return self.kind in BAD

    @property
    def needs_warning(self) -> bool:
        """Whether a user who only takes the model would be misled."""
        missed = self.tolerance is not None and self.kind not in ("converged", "stopped early")
        return self.bad or missed or self.kind == "stalled"


def how_it_ended(
    history: "pd.DataFrame | list[HistoryRow]",
    stopped: str,
    *,
    tolerance: float | None = None,
    noise: Sequence[str] = (),
    diverged: Sequence[int] = (),
    scales: str = "",
) -> Ending:
    """The ending of a run of one or more trials; with several, of the worst one.

    history: columns round, trial, psi, natural_residual_sq. noise: what makes the rounds random.
    diverged: of each trial the round that left the finite numbers, counted from 1, 0 for none.
    scales: a clause about features of very different scale, where gradient steps met them.

    Converged means: psi is not above its start and has a lower bound, as far as can be seen, and
    the norm of the natural residual is at most the tolerance, or without one at most a thousandth
    of its start. With features of very different scale that says nothing, because the start's is
    that of the large ones: then it must be zero to rounding.
    """
    table = columns(history)
    if len(table.get("sites", ())):  # of a network: rows from fewer sites are of another f
        sites = table["sites"]
        table = {name: series[sites == max(sites.max(), 1)] for name, series in table.items()}
    if not len(table.get("trial", ())):
        if any(diverged):
            return Ending("diverged", f"diverged in round {max(diverged)}", tolerance)
        return Ending("too short to tell", "ended without an evaluation", tolerance)
    trials = np.unique(table["trial"]).tolist()
    endings = []
    for trial, round_ in zip(trials, [*diverged, *[0] * len(trials)], strict=False):
        rows = {name: series[table["trial"] == trial] for name, series in table.items()}
        endings.append(_of_one(_Course.of(rows), stopped, tolerance, noise, round_, scales))
    ranks = [KINDS.index(ending.kind) for ending in endings]
    worst = endings[int(np.argmin(ranks))]
    if len(trials) == 1:
        return worst
    if worst.kind == "stopped early":
        return Ending(worst.kind, f"all {len(trials)} trials {worst.sentence}", tolerance)
    alike = ranks.count(min(ranks))
    which = f"{alike} of {len(trials)} trials, first trial {trials[int(np.argmin(ranks))]}: "
    return Ending(worst.kind, which + worst.sentence, tolerance)


def columns(history: "pd.DataFrame | list[HistoryRow]") -> dict[str, np.ndarray]:
    """The columns of a table, or of rows that are not one yet: pandas takes a while to load."""
    if isinstance(history, list):
        names = dict.fromkeys(name for row in history for name in row)
        return {name: np.array([row.get(name, np.nan) for row in history]) for name in names}
    return {name: history[name].to_numpy() for name in history}


def rose(psi: Sequence[float]) -> bool:
    """Whether psi ended above its start (the first finite value: a start may be infeasible)."""
    start = next((value for value in psi if math.isfinite(value)), math.inf)
    return not psi[-1] <= start + RISE * abs(start) + FLOOR


def summary_of(endings: Sequence[Ending], what: str) -> str | None:
    """One sentence about several runs, such as the weights of a path; None if all is well."""
    wrong = [i for i, ending in enumerate(endings) if ending.needs_warning]
    if not wrong:
        return None
    first = endings[wrong[0]].sentence
    return f"{len(wrong)} of {len(endings)} {what} did not converge; number {wrong[0] + 1}: {first}"


class _Course(NamedTuple):
    """The evaluations of one trial."""

    rounds: np.ndarray
    psi: np.ndarray
    residual: np.ndarray
    zeros: np.ndarray  # share of the parameters that are zero
    normal_map: np.ndarray  # its norm
    local_lr: np.ndarray  # where it sets itself, else NaN

    @classmethod
    def of(cls, rows: dict[str, np.ndarray]) -> "_Course":
        residual = np.sqrt(rows["natural_residual_sq"].astype(float))
        none = np.full(len(residual), np.nan)
        zeros = rows.get("zeros", np.zeros(len(residual))).astype(float)
        normal_map = np.sqrt(rows.get("normal_map_sq", none).astype(float))
        local_lr = rows.get("local_lr", none).astype(float)
        rounds, psi = rows["round"].astype(float), rows["psi"].astype(float)
        return cls(rounds, psi, residual, zeros, normal_map, local_lr)

    @property
    def start(self) -> float:
        """The first finite residual."""
        return next((float(r) for r in self.residual if np.isfinite(r)), math.inf)

    @property
    def start_psi(self) -> float:
        """The first finite psi: a start may be infeasible."""
        return next((float(psi) for psi in self.psi if np.isfinite(psi)), math.inf)

    def late(self, share: int = 3) -> "_Course":
        """The last third, where the end is read from, or another share."""
        count = max(FEWEST - 1, len(self.rounds) // share)
        return _Course(*(series[-count:] for series in self))

    def sinks(self) -> bool:
        """Whether psi is far below zero and falls as it did: it has no minimum, it seems.

        Where there is one, far below zero too, the fall gets slower on the way to it.
        """
        start, end = self.start_psi, float(self.psi[-1])
        least = -max(1.0, abs(start))
        if end >= DEEP * least or not math.isfinite(start):
            return False
        if end < BOTTOMLESS * least:
            return True
        last = self.psi[-1 - len(self.psi) // 3 :]
        before, middle = float(last[0]), float(last[len(last) // 2])
        slower = middle - end < 0.8 * (before - middle)
        long = self.rounds[-1] >= SHORT
        return long and not slower and before - end > SINKING * (start - end)


class _Trend(NamedTuple):
    """A straight line through a series: its slope and how far it falls over the series."""

    slope: float
    fall: float
    error: float  # standard error of the fall
    end: float  # the line at the last round

    @classmethod
    def of(cls, rounds: np.ndarray, series: np.ndarray) -> "_Trend":
        slope, level = np.polyfit(rounds - rounds[-1], series, 1)
        scatter = np.std(series - level - slope * (rounds - rounds[-1]))
        error = scatter * math.sqrt(12 / len(rounds))
        return cls(float(slope), float(-slope * (rounds[-1] - rounds[0])), error, float(level))

    def falls(self, least: float) -> bool:
        return self.fall > max(least, CERTAIN * self.error)


def _of_one(
    course: _Course,
    stopped: str,
    tolerance: float | None,
    noise: Sequence[str],
    diverged: int,
    scales: str,
) -> Ending:
    rounds, psi, residual, zeros, *_ = (series[-1] for series in course)
    done = f"{rounds:.0f} round{'' if rounds == 1 else 's'}"
    measured = f"natural residual {residual:.2g} (start {course.start:.2g})"

    def ending(kind: str, sentence: str) -> Ending:
        return Ending(kind, sentence, tolerance)

    bad_start = "" if np.isfinite(course.residual[0]) else BAD_START
    if diverged:
        why = bad_start or "Smaller step sizes usually help"
        return ending(
            "diverged",
            f"diverged to NaN or infinity in round {diverged}; the model is that after round "
            f"{diverged - 1}. {why}",
        )
    if not (np.isfinite(psi) and np.isfinite(residual)):
        if stopped not in FULL_RUNS:
            return ending("stopped early", f"stopped early after round {rounds:.0f}: {stopped}")
        sentence = f"ended with psi {psi:.4g} and {measured}: not converged"
        return ending("not finite", f"{sentence}. {bad_start}" if bad_start else sentence)
    if rose(course.psi.tolist()):
        return ending(
            "above start",
            f"ended with psi {psi:.4g}, above its start {course.start_psi:.4g}, {measured}: not "
            "converged. Smaller steps, or features of one scale, usually help",
        )
    if course.sinks():
        return ending(
            "unbounded",
            f"psi sank to {psi:.4g} from {course.start_psi:.4g} and goes on, as if it had no lower "
            f"bound, {measured}: not converged. A regulariser or a constraint can bound the model",
        )
    zero = FLOOR * max(1.0, min(abs(psi), abs(course.start_psi)))
    goal = max(zero, 0.0 if scales else FALL * course.start) if tolerance is None else tolerance
    if residual <= goal:
        wanted = "" if tolerance is None else f", tolerance {tolerance:g}"
        more = ""
        if zeros == 1:
            more = ". All parameters are zero: a smaller weight of the regulariser keeps some"
        elif abs(psi) <= FLOOR * abs(course.start_psi):
            more = (
                ". psi is zero to rounding: every sample is fitted, perhaps by numbers that would "
                "grow without end; a penalty bounds them"
            )
        return ending("converged", f"converged in {done}: {measured}{wanted}{more}")
    if stopped not in FULL_RUNS:
        sentence = f"stopped early ({stopped}) after round {rounds:.0f}: {measured}"
        return ending("stopped early", sentence)
    missed = "" if tolerance is None else f", the tolerance {tolerance:g} was not reached"
    if np.isfinite(course.residual).sum() < FEWEST or not np.isfinite(course.late().residual).all():
        return ending("too short to tell", f"ended after {done}: {measured}{missed}")
    return ending(*_unfinished(course, measured + missed, tolerance, goal, noise, scales))


def _unfinished(
    course: _Course,
    measured: str,
    tolerance: float | None,
    goal: float,
    noise: Sequence[str],
    scales: str,
) -> tuple[str, str]:
    """Kind and sentence of a run that used all its rounds without converging."""
    late = course.late()
    rounds = f"{late.rounds[-1]:.0f} rounds"
    if scales:
        scales = f". {scales}"
    decades = _decades(late.residual)
    trend = _Trend.of(late.rounds, decades)
    drop = np.nanmax(course.psi[np.isfinite(course.psi)]) - course.psi[-1]
    falls = trend.falls(0.02)
    if falls or _Trend.of(late.rounds, late.psi).falls(1e-3 * max(drop, 1e-12)):
        more = ""
        if falls:
            left = (trend.end - math.log10(goal)) / -trend.slope
            to = "" if tolerance is not None else f" to {goal:.2g}"
            more = f"; about {_two_digits(left)} more rounds{to} at this pace" if left >= 1 else ""
        return "falling", f"still falling after {rounds}: {measured}{more}{scales}"
    half = course.late(share=2)
    if _Trend.of(half.rounds, _decades(half.residual)).falls(0.1):  # in bouts
        return "falling", f"still falling after {rounds}: {measured}{scales}"
    if late.rounds[-1] < SHORT:
        return "too short to tell", f"ended after {rounds}: {measured}{scales}"
    low, high = late.residual.min(), late.residual.max()
    turns = np.mean(np.diff(np.sign(np.diff(decades))) != 0)
    where = f"since round {late.rounds[0]:.0f} or earlier"
    given = np.isnan(late.local_lr).all()  # or the steps set themselves
    if noise:
        cause = " and ".join(noise)
        what = [REMEDIES[name] for name in noise if name in REMEDIES]
        if np.ptp(late.psi) <= FLOOR * abs(late.psi[-1]):
            return "noise floor", (
                f"psi is the same to six digits {where}, natural residual between {low:.2g} and "
                f"{high:.2g}: {measured}. Noise ({cause}) hides what is left; it is less with "
                f"{' or '.join(what) or 'full gradients'}{scales}"
            )
        what.insert(0, "smaller steps" if given else "more rounds")
        return "noise floor", (
            f"reached the floor of the noise ({cause}) {where}, natural residual between "
            f"{low:.2g} and {high:.2g}: {measured}. It falls with {' or '.join(what)}{scales}"
        )
    if turns > 0.4 and high > 2 * low:
        help_ = "Smaller steps usually help" if given else "More rounds usually help"
        return "stalled", (
            f"oscillates {where}, natural residual between {low:.2g} and {high:.2g}: {measured}. "
            f"{help_}{scales}"
        )
    normal_map = _decades(late.normal_map)
    if np.isfinite(normal_map).all() and _Trend.of(late.rounds, normal_map).falls(0.005):
        return "falling", (
            f"after {rounds} the model stands still, but the normal map still falls: {measured}. "
            f"A smaller gamma, or more rounds, lets it move{scales}"
        )
    help_ = "Other step sizes or another method may help"
    return "stalled", f"stalled {where}: {measured}. {help_}{scales}"


def _decades(norms: np.ndarray) -> np.ndarray:
    decades: np.ndarray = np.log10(np.maximum(norms, 1e-300))
    return decades


def _two_digits(number: float) -> str:
    digits = max(0, math.floor(math.log10(number)) - 1)
    return f"{math.ceil(number / 10**digits) * 10**digits:,}"
