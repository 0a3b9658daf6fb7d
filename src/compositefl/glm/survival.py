"""Breslow's partial likelihood of one stratum, from rows that are sorted by time.

    loss = - sum_i d_i (eta_i - ln S0(t_i)),   S0(t) = sum over time_j >= t of w_j exp(eta_j)

with d_i = w_i where the event was seen and 0 where the time is censored. A site is a stratum, so no
risk set reaches over two sites and the sum over sites is exact.
"""

from typing import NamedTuple

import numpy as np

Array = np.ndarray


class Times(NamedTuple):
    """Sorted times and events, and the ends of runs of equal times."""

    time: Array
    event: Array
    first: Array  # index of the first row with the same time
    last: Array  # and of the last

    @classmethod
    def of(cls, time: Array, event: Array) -> "Times":
        """From rows that are sorted already."""
        first = np.searchsorted(time, time, side="left")
        last = np.searchsorted(time, time, side="right") - 1
        return cls(time, event.astype(bool), first, last)


class Partial(NamedTuple):
    """The loss, its derivative in every eta, and what the Hessian is made of."""

    loss: float
    first: Array
    curvature: Array  # e_j Lambda_j: the diagonal part
    risk: Array  # w_j exp(eta_j) up to a factor
    total: Array  # S0 at each row's time, up to the same factor
    deaths: Array  # d_i


def partial_likelihood(times: Times, eta: Array, weight: Array) -> Partial:
    """Loss and derivatives at eta; samples of weight 0 are not there."""
    there = weight > 0
    top = eta[there].max() if there.any() else 0.0
    with np.errstate(over="ignore"):
        risk = np.where(there, weight * np.exp(eta - top), 0.0)
    total = np.cumsum(risk[::-1])[::-1][times.first]
    deaths = np.where(times.event, weight, 0.0)
    seen = deaths > 0
    with np.errstate(divide="ignore"):
        terms = eta[seen] - top - np.log(total[seen])
    share = np.divide(deaths, total, out=np.zeros_like(total), where=seen)
    hazard = np.cumsum(share)[times.last]
    curvature = risk * hazard
    loss = -float(deaths[seen] @ terms)
    return Partial(loss, curvature - deaths, curvature, risk, total, deaths)


def risk_means(times: Times, here: Partial, z: Array) -> tuple[Array, Array]:
    """(d, means): at every event time its weight and the mean of z over those at risk.

    The Hessian is z' diag(curvature) z - means' diag(d) means.
    """
    at = np.flatnonzero(here.deaths > 0)
    starts, group = np.unique(times.first[at], return_inverse=True)
    deaths = np.bincount(group, here.deaths[at], len(starts))
    sums = np.cumsum((here.risk[:, None] * z)[::-1], axis=0)[::-1][starts]
    return deaths, sums / here.total[starts][:, None]


def saturated(times: Times, weight: Array) -> float:
    """The smallest loss: D ln D for the weight D of the events at one time, which tie."""
    deaths = np.bincount(times.first, np.where(times.event, weight, 0.0), len(weight))
    deaths = deaths[deaths > 0]
    return float(deaths @ np.log(deaths))


def concordance(time: Array, event: Array, score: Array, weight: Array | None = None) -> Array:
    """Harrell's index as two sums over pairs: (concordant plus half of the tied, comparable).

    A pair can be compared if the shorter time is that of an event; of equal times, if one is an
    event and the other censored. A higher score should mean a shorter time.
    """
    weight = np.ones(len(time)) if weight is None else weight
    levels, rank = np.unique(score, return_inverse=True)
    tree = _Counts(len(levels))
    concordant = comparable = 0.0
    order = np.lexsort((event, -time))  # from the longest time; the censored ones come first
    new_time = np.flatnonzero(np.diff(time[order], prepend=np.inf))
    for group in np.split(order, new_time[1:]):
        happened = event[group].astype(bool)
        for i in group[~happened]:
            tree.add(rank[i], weight[i])
        for i in group[happened]:
            less, up_to = tree.below(rank[i]), tree.below(rank[i] + 1)
            concordant += weight[i] * 0.5 * (less + up_to)
            comparable += weight[i] * tree.total
        for i in group[happened]:
            tree.add(rank[i], weight[i])
    return np.array([concordant, comparable])


class _Counts:
    """Weights by rank, with sums over all lower ranks in logarithmic time (a Fenwick tree)."""

    def __init__(self, size: int):
        self.tree = [0.0] * (size + 1)
        self.total = 0.0

    def add(self, rank: int, weight: float) -> None:
        self.total += weight
        at = int(rank) + 1
        while at < len(self.tree):
            self.tree[at] += weight
            at += at & -at

    def below(self, rank: int) -> float:
        at, found = int(rank), 0.0
        while at > 0:
            found += self.tree[at]
            at -= at & -at
        return found
