"""What an experiment is: runs to make, a picture to draw, claims to check."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from compositefl.algorithms.base import Algorithm
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer


@dataclass(frozen=True)
class PlannedRun:
    """One call of `minimize`, and the columns that name it in the experiment's table."""

    labels: dict[str, Any]  # e.g. {"method": "FedNMap", "n": 20, "Q": 10}
    problem: Callable[[], Problem]  # called once for equal callables in a row
    regularizer: Regularizer
    algorithm: Algorithm
    options: dict[str, Any]  # of `minimize`: rounds, batch_size, trials, eval_every, ...


@dataclass(frozen=True)
class Verdict:
    """One claim of a paper next to what was measured."""

    claim: str
    paper: str
    measured: str
    holds: bool


@dataclass(frozen=True)
class Experiment:
    """A figure or table of a paper.

    `runs(quick)` lists the runs, or `measure(quick)` makes the table where nothing is minimised.
    `quick` asks for a version of minutes. `draw(table, path)` makes the picture in the paper's
    layout, `judge(table)` the verdicts. `choices` states what the paper leaves open and what was
    taken; what was found stands in NAME.remarks.md beside the experiment's page.
    """

    name: str
    title: str
    source: str  # e.g. "Huang, Pu, Johansson (2026), Figure 2"
    choices: Sequence[str]
    draw: Callable[[pd.DataFrame, Path], None]
    judge: Callable[[pd.DataFrame], list[Verdict]]
    runs: Callable[[bool], list[PlannedRun]] | None = None
    measure: Callable[[bool], pd.DataFrame] | None = None
