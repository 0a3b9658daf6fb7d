"""Successive halving: many numbers for a few rounds, the better third for more, two to the end."""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

import jax
import numpy as np

from compositefl.algorithms.base import Algorithm, Knobs
from compositefl.core.errors import CompositeFLError
from compositefl.problem import Problem
from compositefl.solve.options import Options
from compositefl.solve.run import Run
from compositefl.solve.steering import BEFORE

FACTORS = (1.0, 2.0, 0.3, 5.0, 0.1)  # local_lr in units of 1/L, the likely ones first
STEPS = (100, 25, 5, 1)
KEPT = 3  # one in three goes on to three times the rounds
PAIR = 2  # runs side by side: every rung is then the same compiled program


class Score(Protocol):
    """One number per candidate after a run with these options, smaller is better."""

    def __call__(self, candidates: list[Algorithm], options: Options) -> np.ndarray: ...


class Found(NamedTuple):
    """The best numbers, their score, and how it was found."""

    best: Algorithm
    score: float
    points: int
    diverged: int
    at_edge: list[str]  # numbers that are the largest or smallest of those tried


def halve(
    problem: Problem, method: Algorithm, options: Options, budget: int, score: Score
) -> Found:
    """The best numbers for those of `method` that are "auto", of at most `budget` points.

    A third of the points goes on from rung to rung, each with three times the rounds of the one
    before; two have all rounds. That is the work of about six runs with the largest Q, or less.
    """
    points = grid(problem, method, options, budget)
    left, diverged, scores = list(range(len(points))), 0, np.empty(0)
    for divisor, kept in ((KEPT**2, -(-len(points) // KEPT)), (KEPT, PAIR), (1, 1)):
        rounds = max(1, options.rounds // divisor)
        rung = dataclasses.replace(options, rounds=rounds, eval_every=max(1, rounds // 20))
        scores = in_pairs([points[i] for i in left], partial(score, options=rung))
        diverged += int(np.sum(np.isinf(scores)))
        order = np.argsort(scores, kind="stable")[:kept]
        left, scores = [left[i] for i in order], scores[order]
        left.sort(key=lambda i: int(points[i].steps))  # runs of equal Q go side by side
    best = points[left[0]]
    return Found(best, float(scores[0]), len(points), diverged, edges(best, points))


def in_pairs(points: list[Algorithm], score: Callable[[list[Algorithm]], np.ndarray]) -> np.ndarray:
    """Scores of the points, run two by two; a last one that stands alone is run twice."""
    found = []
    for first in range(0, len(points), PAIR):
        pair = points[first : first + PAIR]
        found.append(score((pair * PAIR)[:PAIR])[: len(pair)])
    return np.concatenate(found)


def grid(problem: Problem, method: Algorithm, options: Options, budget: int) -> list[Algorithm]:
    """Admissible methods around local steps of 1/L, those of equal Q together."""
    with jax.enable_x64(options.dtype == "float64"):
        L = Run(problem, [method.at(BEFORE)], [0], options).simulation.curvature() or 1.0
    found: dict[str, Algorithm] = {}
    for factor, steps in itertools.product(FACTORS, STEPS):
        candidate = method.at(Knobs(float(f"{factor / L:.3g}"), steps))
        try:
            options.check(problem, candidate)
        except CompositeFLError:
            continue
        found.setdefault(repr(candidate), candidate)
    return sorted(list(found.values())[:budget], key=lambda a: int(a.steps))


def edges(best: Algorithm, points: list[Algorithm]) -> list[str]:
    """The numbers of the best point beyond which nothing was tried, though that is possible."""
    found = []
    for name in ("local_lr", "local_steps"):
        values = [getattr(point, name, None) for point in points]
        here = getattr(best, name, None)
        known = sorted({v for v in values if v is not None})
        if len(known) > 1 and here in (known[0], known[-1]) and (name, here) != ("local_steps", 1):
            found.append(name)
    return found
