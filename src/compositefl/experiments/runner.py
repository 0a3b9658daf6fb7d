"""Run an experiment: every run once, results kept, so that a long one can be continued.

A part is one trial of one run. Parts are made panel by panel, a few trials at a time, so that what
is there when an experiment is cut off can be compared.
"""

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

import jax
import numpy as np
import pandas as pd

from compositefl.core.component import replace
from compositefl.core.errors import CompositeFLError
from compositefl.core.files import only_one
from compositefl.core.types import PlainValues
from compositefl.core.vector import Vector
from compositefl.experiments import provenance
from compositefl.experiments.declaration import (
    Experiment,
    Labels,
    PlannedRun,
    ProblemSetting,
    Verdict,
)
from compositefl.experiments.pages import page, remarks
from compositefl.experiments.provenance import Provenance
from compositefl.problem import Problem
from compositefl.solve._minimize import minimize

FEW = 3  # trials of a panel before the next panel's turn
KEEP = (  # columns of the histories that go into the table
    "round",
    "trial",
    "psi",
    "loss",
    "natural_residual_sq",
    "zeros",
    "hoyer",
    "accuracy",
    "seconds",
)


Panel: TypeAlias = tuple[tuple[str, str | float], ...]  # the labels that its runs have in common


class Part(NamedTuple):
    """One trial of one run, and the file that has its table."""

    file: Path
    labels: Labels
    trial: int


def reproduce(
    experiment: Experiment,
    out: Path,
    *,
    quick: bool = False,
    parts: Path | None = None,
    finished: bool = False,
    say: Callable[[str], None] = print,
    progress: bool = True,
) -> list[Verdict]:
    """Run `experiment` and write NAME.csv, NAME.json, NAME.png and NAME.md into `out`.

    Parts already made lie in `parts`, by default `out`/parts, or are in the table that is there,
    and are not made again; with `finished` nothing is run, and the page is made of the trials that
    are complete. Remarks written by hand, in NAME.remarks.md, go into the page.
    """
    out.mkdir(parents=True, exist_ok=True)
    folder = (parts or out / "parts") / experiment.name
    folder.mkdir(parents=True, exist_ok=True)
    unpack(experiment, out, folder, quick)
    if not finished:
        with only_one(folder / "lock", f"{experiment.name} in {folder}"):
            make(experiment, folder, quick, say, progress)
    table, about = collect(experiment, folder, quick)
    table.to_csv(out / f"{experiment.name}.csv", index=False, float_format="%.6g")
    provenance.write(out / f"{experiment.name}.json", about)
    return write_page(experiment, out, quick)


def write_page(experiment: Experiment, out: Path, quick: bool = False) -> list[Verdict]:
    """Picture and page of the table in `out`, as a reader of the file sees it."""
    table = pd.read_csv(out / f"{experiment.name}.csv")
    about = provenance.read(out / f"{experiment.name}.json")
    experiment.draw(table, out / f"{experiment.name}.png")
    verdicts = experiment.judge(table)
    text = page(experiment, table, verdicts, about, quick, remarks(out, experiment.name))
    (out / f"{experiment.name}.md").write_text(text)
    return verdicts


def planned_parts(experiment: Experiment, quick: bool) -> Iterator[tuple[PlannedRun, int]]:
    """All parts of an experiment: a few trials of every panel first, then the others."""
    assert experiment.runs is not None
    panels: dict[Panel, list[PlannedRun]] = {}
    for planned in experiment.runs(quick):
        panels.setdefault(rest(experiment, planned), []).append(planned)
    most = max(planned.trials for panel in panels.values() for planned in panel)
    for first in range(0, most, FEW):
        for panel in panels.values():
            for trial in range(first, min(first + FEW, most)):
                yield from ((planned, trial) for planned in panel if trial < planned.trials)


def rest(experiment: Experiment, planned: PlannedRun) -> Panel:
    """The labels that runs have in common which are compared with each other."""
    return tuple((k, v) for k, v in planned.labels.items() if k not in experiment.compares)


def make(
    experiment: Experiment, folder: Path, quick: bool, say: Callable[[str], None], progress: bool
) -> None:
    """Make the parts that are missing."""
    provenance.here()  # now: the program's files may change in the hours to come
    if experiment.measure is not None:
        name = folder / ("quick.csv" if quick else "whole.csv")
        if not name.exists():
            seed = {} if experiment.seed is None else {"seed": experiment.seed}
            keep(name, lambda: experiment.measure(quick), seed)  # type: ignore[misc]
        return
    todo = list(planned_parts(experiment, quick))
    last: tuple[ProblemSetting, Problem] | None = None
    for number, (planned, trial) in enumerate(todo, 1):
        file = folder / f"{fingerprint(planned, trial)}.csv"
        if file.exists():
            continue
        say(f"{experiment.name}: {number}/{len(todo)} {planned.labels}, trial {trial}")
        if last is None or last[0] != planned.problem:
            last = (planned.problem, planned.problem())
        problem, checkpoint = last[1], file.with_suffix(".ckpt")
        made = lambda: run_one(planned, problem, trial, checkpoint, progress)  # noqa: B023, E731
        keep(file, made, {"part": file.stem, "seed": trial, "labels": planned.labels})
        checkpoint.unlink(missing_ok=True)


def keep(file: Path, made: Callable[[], pd.DataFrame], about: PlainValues) -> None:
    """Make a table and keep it with where it comes from."""
    began = time.perf_counter()
    table = made()
    seconds = time.perf_counter() - began
    write_part(file, table, about | {"seconds": seconds} | provenance.here())


def write_part(file: Path, table: pd.DataFrame, known: PlainValues) -> None:
    """A part's table and what is known of it; the CSV appears last, and whole."""
    file.with_suffix(".json").write_text(json.dumps(known, default=str))
    table.to_csv(file.with_suffix(".tmp"), index=False)
    file.with_suffix(".tmp").replace(file)


def unpack(experiment: Experiment, out: Path, folder: Path, quick: bool) -> None:
    """Parts of the table in `out`, so that another machine goes on where it ends."""
    published = out / f"{experiment.name}.csv"
    about = provenance.read(published.with_suffix(".json")) or {}
    known = provenance.of_parts(about)
    if not known or not published.exists():
        return
    table = pd.read_csv(published)
    for planned, trial in planned_parts(experiment, quick):
        name = fingerprint(planned, trial)
        file = folder / f"{name}.csv"
        if name not in known or file.exists():
            continue
        labels = planned.labels | {"trial": trial}
        rows = table[np.logical_and.reduce([same(table[c], v) for c, v in labels.items()])]
        if len(rows):
            mine = {"part": name, "seed": trial, "labels": planned.labels} | known[name]
            write_part(file, rows.drop(columns=list(planned.labels)), mine)


def same(column: pd.Series, value: str | float) -> np.ndarray | pd.Series:
    """Which rows have the label; tables keep six digits of a number."""
    return np.isclose(column, value, rtol=1e-5) if isinstance(value, float) else column == value


def collect(experiment: Experiment, folder: Path, quick: bool) -> tuple[pd.DataFrame, Provenance]:
    """The table of all complete trials, and where it comes from."""
    if experiment.measure is not None:
        file = folder / ("quick.csv" if quick else "whole.csv")
        chosen = [Part(file, {}, 0)] if file.exists() else []
    else:
        chosen = complete(experiment, folder, quick)
    if not chosen:
        raise CompositeFLError(f"{experiment.name}: no trial is complete in {folder}")
    tables = []
    for file, labels, trial in chosen:
        table = pd.read_csv(file)
        if labels:
            table["trial"] = trial
        for column, value in reversed(labels.items()):
            table.insert(0, column, value)
        tables.append(table)
    known = [json.loads(file.with_suffix(".json").read_text()) for file, _, _ in chosen]
    return pd.concat(tables, ignore_index=True), provenance.together(known)


def complete(experiment: Experiment, folder: Path, quick: bool) -> list[Part]:
    """The parts that are there with all that they are compared with."""
    groups: dict[tuple[Panel, int], list[Part]] = {}
    for planned, trial in planned_parts(experiment, quick):
        file = folder / f"{fingerprint(planned, trial)}.csv"
        part = Part(file, planned.labels, trial)
        groups.setdefault((rest(experiment, planned), trial), []).append(part)
    whole = [g for g in groups.values() if all(part.file.exists() for part in g)]
    order = [planned.labels for planned in experiment.runs(quick)]  # type: ignore[misc]
    return sorted((p for g in whole for p in g), key=lambda p: (order.index(p.labels), p.trial))


def run_one(
    planned: PlannedRun, problem: Problem, trial: int, checkpoint: Path, progress: bool
) -> pd.DataFrame:
    """One trial; its checkpoint lets a run that was cut off go on."""
    algorithm = replace(planned.algorithm, regularizer=planned.regularizer)
    start = algorithm.start_at(Vector(planned.problem.start(trial))).tree
    here = problem.with_params(jax.device_get(start))
    here.short_start = False  # drawn at random: there are no digits to lose
    result = minimize(
        here,
        planned.regularizer,
        planned.algorithm,
        seed=trial,
        checkpoint=checkpoint,
        resume=True,
        progress=progress,
        **{"weights": "uniform"} | planned.options,
    )
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    return result.history[[c for c in KEEP if c in result.history]]


def fingerprint(planned: PlannedRun, trial: int) -> str:
    """A name for the results of a part: changes whenever its settings do."""
    about = [
        provenance.EDITION,
        planned.labels,
        repr(planned.problem),
        repr(planned.regularizer),
        repr(planned.algorithm),
        planned.options,
        trial,
    ]
    return hashlib.blake2b(json.dumps(about, default=repr).encode(), digest_size=8).hexdigest()
