"""Run an experiment: every setting once, results kept, so that a long one can be continued."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from compositefl.experiments.declaration import Experiment, Setting, Verdict
from compositefl.problem import Problem
from compositefl.solve._minimize import minimize

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

    Settings already run lie in `out`/parts and are not run again.
    """
    out.mkdir(parents=True, exist_ok=True)
    if experiment.measure is not None:
        table = experiment.measure(quick)
    else:
        table = run_settings(experiment, out / "parts" / experiment.name, quick, say, progress)
    table.to_csv(out / f"{experiment.name}.csv", index=False, float_format="%.6g")
    table = pd.read_csv(out / f"{experiment.name}.csv")  # judge what a reader of the file sees
    experiment.draw(table, out / f"{experiment.name}.png")
    verdicts = experiment.judge(table)
    (out / f"{experiment.name}.md").write_text(page(experiment, verdicts, quick))
    return verdicts


def run_settings(
    experiment: Experiment, parts: Path, quick: bool, say: Callable[[str], None], progress: bool
) -> pd.DataFrame:
    """The histories of all settings in one table."""
    assert experiment.settings is not None
    parts.mkdir(parents=True, exist_ok=True)
    settings = experiment.settings(quick)
    tables = []
    last: tuple[Any, Problem] | None = None
    for number, setting in enumerate(settings, 1):
        file = parts / f"{fingerprint(setting)}.csv"
        if not file.exists():
            say(f"{experiment.name}: {number}/{len(settings)} {setting.labels}")
            if last is None or last[0] != setting.problem:
                last = (setting.problem, setting.problem())
            history = run_setting(setting, last[1], file.with_suffix(".ckpt"), progress)
            history.to_csv(file.with_suffix(".tmp"), index=False)
            file.with_suffix(".tmp").replace(file)
            file.with_suffix(".ckpt").unlink(missing_ok=True)
        history = pd.read_csv(file)
        for column, value in reversed(setting.labels.items()):
            history.insert(0, column, value)
        tables.append(history)
    return pd.concat(tables, ignore_index=True)


def run_setting(
    setting: Setting, problem: Problem, checkpoint: Path, progress: bool
) -> pd.DataFrame:
    """One run; its checkpoint lets a run that was cut off go on."""
    result = minimize(
        problem,
        setting.regularizer,
        setting.algorithm,
        checkpoint=checkpoint,
        resume=True,
        progress=progress,
        **{"weights": "uniform"} | setting.options,
    )
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    return result.history[[c for c in KEEP if c in result.history]]


def fingerprint(setting: Setting) -> str:
    """A name for the results of a setting: changes whenever the setting does."""
    about = [
        setting.labels,
        repr(setting.problem),
        repr(setting.regularizer),
        repr(setting.algorithm),
        setting.options,
    ]
    return hashlib.blake2b(json.dumps(about, default=repr).encode(), digest_size=8).hexdigest()


def page(experiment: Experiment, verdicts: list[Verdict], quick: bool) -> str:
    """The experiment's page: picture, verdicts, choices."""
    lines = [f"# {experiment.name}: {experiment.title}", "", f"Source: {experiment.source}.", ""]
    if quick:
        lines += ["This is the quick version: fewer rounds and trials.", ""]
    lines += [f"![{experiment.title}]({experiment.name}.png)", ""]
    lines += ["| claim | paper says | measured | holds |", "|---|---|---|---|"]
    lines += [verdict_row(v) for v in verdicts]
    if experiment.remarks:
        lines += ["", "## What was found", "", *(f"- {remark}" for remark in experiment.remarks)]
    lines += ["", "## Settings left open by the paper, or other than its own", ""]
    lines += [f"- {choice}" for choice in experiment.choices]
    lines += ["", f"Run again: `compositefl reproduce {experiment.name}`"]
    return "\n".join(lines) + "\n"


def verdict_row(verdict: Verdict) -> str:
    holds = "yes" if verdict.holds else "**no**"
    cells = (verdict.claim, verdict.paper, verdict.measured, holds)
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def write_index(out: Path) -> None:
    """README.md in `out`: all verdicts of all pages that are there."""
    claims = []
    for file in sorted(out.glob("*.md")):
        if file.name == "README.md":
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
