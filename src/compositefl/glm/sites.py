"""Asking all sites and adding up: the one door between a fit and the data."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from compositefl.glm.site import Site, Sums

METHODS = ("describe", "spread", "evaluate", "validate")  # what a site can be asked


class Sites(Protocol):
    """Where the data are. Every `ask` is one round of communication."""

    rounds: int
    bytes_up: int  # of all answers so far, of all sites
    bytes_down: int
    away: tuple[str, ...]  # sites for which their last answers stood in the last round

    @property
    def names(self) -> list[str]:
        """Of the sites."""
        ...

    def ask(self, method: str, **request: Any) -> Sums:
        """The sum over all sites of their answers to one request."""
        ...


class LocalSites:
    """Sites that are objects of this process."""

    away: tuple[str, ...] = ()

    def __init__(self, sites: Sequence[Site]):
        self.sites = list(sites)
        self.rounds = self.bytes_up = self.bytes_down = 0

    @property
    def names(self) -> list[str]:
        return [site.name for site in self.sites]

    def ask(self, method: str, **request: Any) -> Sums:
        self.rounds += 1
        answers = [getattr(site, method)(**request) for site in self.sites]
        self.bytes_down += len(self.sites) * count_bytes(request)
        self.bytes_up += sum(map(count_bytes, answers))
        return add_up(answers)


def add_up(answers: Sequence[Sums]) -> Sums:
    """The sum of the sites' sums, in the order of the sites."""
    total = {name: np.array(value, float) for name, value in answers[0].items()}
    for answer in answers[1:]:
        for name in total:
            total[name] += answer[name]
    return total


def count_bytes(values: Mapping[str, object]) -> int:
    """Of the arrays in a request or an answer."""
    return sum(np.asarray(value).nbytes for value in values.values())
