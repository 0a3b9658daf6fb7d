"""What an experiment is: runs to make, a picture to draw, claims to check."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import pandas as pd

from compositefl.algorithms.base import Algorithm
from compositefl.core.types import Params
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer

Labels: TypeAlias = dict[str, str | float]  # what names a run: {"method": "FedNMap", "n": 20}
TableRow: TypeAlias = dict[str, str | float]  # of a table that is measured, by column


class ProblemSetting(Protocol):
    """A problem of an experiment; equal settings are the same problem."""

    def __call__(self) -> Problem:
        """The problem, with the data loaded."""
        ...

    def start(self, trial: int) -> Params:
        """x_0 of a trial, the same for all methods."""
        ...


@dataclass(frozen=True)
class PlannedRun:
    """Calls of `minimize`, one per trial, and the columns that name them in the table."""

    labels: Labels
    problem: ProblemSetting  # called once for equal ones in a row
    regularizer: Regularizer
    algorithm: Algorithm
    options: dict[str, Any]  # of `minimize`: rounds, batch_size, eval_every, ...
    trials: int = 1


class Kind(StrEnum):
    """Whose statement a verdict is about."""

    PAPER = "claims of the paper"
    OURS = "added here, not in the paper"
    CERTAIN = "checks that can hardly fail"


@dataclass(frozen=True)
class Verdict:
    """One statement next to what was measured; `holds` is None where the runs cannot tell."""

    claim: str
    paper: str
    measured: str
    holds: bool | None
    of: str = ""  # the claim of which this is one case; by default `claim` is all of it
    kind: Kind = Kind.PAPER

    def __post_init__(self) -> None:
        if self.holds is not None:  # a NumPy bool is neither True nor False
            object.__setattr__(self, "holds", bool(self.holds))

    @property
    def word(self) -> str:
        """The verdict in words."""
        return {True: "holds", False: "does not", None: "cannot be told"}[self.holds]


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper.

    `runs(quick)` lists the runs, or `measure(quick)` makes the table where nothing is minimised.
    `quick` asks for a version of minutes. `draw(table, path)` makes the picture in the paper's
    layout, `judge(table)` the verdicts. `choices` states what our copy of the paper leaves open and
    what was taken; what was found stands in NAME.remarks.md beside the experiment's page.
    """

    name: str
    title: str
    source: str  # e.g. "Huang, Pu, Johansson (2026), Figure 2"
    choices: Sequence[str]
    draw: Callable[[pd.DataFrame, Path], None]
    judge: Callable[[pd.DataFrame], list[Verdict]]
    runs: Callable[[bool], list[PlannedRun]] | None = None
    measure: Callable[[bool], pd.DataFrame] | None = None
    # Labels of what is compared: a trial counts when all runs that agree in the others have it.
    compares: Sequence[str] = ("method",)
    random_start: bool = True  # False: every run starts at the same point, whatever the trial
    seed: int | None = None  # of what is measured at random, its trials folded into it
