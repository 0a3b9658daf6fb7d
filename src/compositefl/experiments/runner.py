"""Run an experiment: every run once, results kept, so that a long one can be continued."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from compositefl.experiments.declaration import Experiment, PlannedRun, Verdict
from compositefl.problem import Problem
from compositefl.solve._minimize import minimize

REMARKS = ".remarks.md"  # written by hand, beside the page of the same name
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


def reproduce(
    experiment: Experiment,
    out: Path,
    *,
    quick: bool = False,
    say: Callable[[str], None] = print,
    progress: bool = True,
) -> list[Verdict]:
    """Run `experiment` and write NAME.csv, NAME.png and NAME.md into `out`.

    Runs already made lie in `out`/parts and are not made again. Remarks written by hand, in
    NAME.remarks.md, go into the page.
    """
    out.mkdir(parents=True, exist_ok=True)
    if experiment.measure is not None:
        table = experiment.measure(quick)
    else:
        table = run_all(experiment, out / "parts" / experiment.name, quick, say, progress)
    table.to_csv(out / f"{experiment.name}.csv", index=False, float_format="%.6g")
    table = pd.read_csv(out / f"{experiment.name}.csv")  # judge what a reader of the file sees
    experiment.draw(table, out / f"{experiment.name}.png")
    verdicts = experiment.judge(table)
    (out / f"{experiment.name}.md").write_text(
        page(experiment, verdicts, quick, remarks(out, experiment.name))
    )
    return verdicts


def run_all(
    experiment: Experiment, parts: Path, quick: bool, say: Callable[[str], None], progress: bool
) -> pd.DataFrame:
    """The histories of all runs in one table."""
    assert experiment.runs is not None
    parts.mkdir(parents=True, exist_ok=True)
    runs = experiment.runs(quick)
    tables = []
    last: tuple[Any, Problem] | None = None
    for number, planned in enumerate(runs, 1):
        file = parts / f"{fingerprint(planned)}.csv"
        if not file.exists():
            say(f"{experiment.name}: {number}/{len(runs)} {planned.labels}")
            if last is None or last[0] != planned.problem:
                last = (planned.problem, planned.problem())
            history = run_one(planned, last[1], file.with_suffix(".ckpt"), progress)
            history.to_csv(file.with_suffix(".tmp"), index=False)
            file.with_suffix(".tmp").replace(file)
            file.with_suffix(".ckpt").unlink(missing_ok=True)
        history = pd.read_csv(file)
        for column, value in reversed(planned.labels.items()):
            history.insert(0, column, value)
        tables.append(history)
    return pd.concat(tables, ignore_index=True)


def run_one(
    planned: PlannedRun, problem: Problem, checkpoint: Path, progress: bool
) -> pd.DataFrame:
    """One run; its checkpoint lets a run that was cut off go on."""
    result = minimize(
        problem,
        planned.regularizer,
        planned.algorithm,
        checkpoint=checkpoint,
        resume=True,
        progress=progress,
        **{"weights": "uniform"} | planned.options,
    )
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    return result.history[[c for c in KEEP if c in result.history]]


def fingerprint(planned: PlannedRun) -> str:
    """A name for the results of a run: changes whenever its settings do."""
    about = [
        planned.labels,
        repr(planned.problem),
        repr(planned.regularizer),
        repr(planned.algorithm),
        planned.options,
    ]
    return hashlib.blake2b(json.dumps(about, default=repr).encode(), digest_size=8).hexdigest()


def remarks(out: Path, name: str) -> str:
    """What was found, written by hand in `out`; nothing where there is no such file."""
    file = out / f"{name}{REMARKS}"
    return file.read_text().strip() if file.exists() else ""


def page(experiment: Experiment, verdicts: list[Verdict], quick: bool, remarks: str) -> str:
    """The experiment's page: picture, verdicts, remarks, choices."""
    lines = [f"# {experiment.name}: {experiment.title}", "", f"Source: {experiment.source}.", ""]
    if quick:
        lines += ["This is the quick version: fewer rounds and trials.", ""]
    lines += [f"![{experiment.title}]({experiment.name}.png)", ""]
    lines += ["| claim | paper says | measured | holds |", "|---|---|---|---|"]
    lines += [verdict_row(v) for v in verdicts]
    if remarks:
        lines += ["", "## What was found", "", remarks]
    lines += ["", "## Settings left open by the paper, or other than its own", ""]
    lines += [f"- {choice}" for choice in experiment.choices]
    lines += ["", f"Run again: `compositefl reproduce {experiment.name}`"]
    return "\n".join(lines) + "\n"


def verdict_row(verdict: Verdict) -> str:
    """The verdict as a row of a Markdown table."""
    holds = "yes" if verdict.holds else "**no**"
    cells = (verdict.claim, verdict.paper, verdict.measured, holds)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def write_index(out: Path) -> None:
    """README.md in `out`: all verdicts of all pages that are there."""
    claims = []
    for file in sorted(out.glob("*.md")):
        if file.name == "README.md" or file.name.endswith(REMARKS):
            continue
        rows = [line for line in file.read_text().splitlines() if line.startswith("| ")]
        claims += [f"| [{file.stem}]({file.name}) {row}" for row in rows[1:]]
    held = sum(row.endswith("| yes |") for row in claims)
    lines = [
        "# Reproduction",
        "",
        "Every claim of the papers' figures and tables, and what came out. "
        f"{held} of {len(claims)} hold here; the pages say what was tried where one does not.",
        "",
        "| experiment | claim | paper says | measured | holds |",
        "|---|---|---|---|---|",
        *claims,
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n")
