"""The pages of the reproduction: one for each experiment, and the index of all claims."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import pandas as pd

from compositefl.experiments import provenance
from compositefl.experiments.declaration import Experiment, Kind, Verdict
from compositefl.experiments.provenance import Provenance
from compositefl.experiments.statistics import every

FIRST_EDITION = (
    "Pages of edition 1 were made before the protocol had a start per trial and the same first "
    "model for all methods; they say so."
)
REMARKS = ".remarks.md"  # written by hand, beside the page of the same name


def remarks(out: Path, name: str) -> str:
    """What was found, written by hand in `out`; nothing where there is no such file."""
    file = out / f"{name}{REMARKS}"
    return file.read_text().strip() if file.exists() else ""


def page(
    experiment: Experiment,
    table: pd.DataFrame,
    verdicts: list[Verdict],
    about: Provenance | None,
    quick: bool,
    remarks: str,
) -> str:
    """The experiment's page: picture, verdicts, remarks, choices."""
    lines = [f"# {experiment.name}: {experiment.title}", "", f"Source: {experiment.source}.", ""]
    if quick:
        lines += ["This is the quick version: fewer rounds and trials.", ""]
    lines += [f"![{experiment.title}]({experiment.name}.png)"]
    for kind in Kind:
        rows = [v for v in verdicts if v.kind is kind]
        if rows:
            lines += ["", f"## {kind.value.capitalize()}", "", *verdict_table(rows)]
    if remarks:
        lines += ["", "## What was found", "", remarks]
    lines += ["", "## Settings left open by our copy of the paper, or other than its own", ""]
    lines += [f"- {choice}" for choice in [*experiment.choices, *size(table)]]
    lines += ["", "## Protocol", ""]
    folded = experiment.seed is not None
    lines += [f"- {line}" for line in provenance.sentences(about, experiment.random_start, folded)]
    lines += [f"- {CRITERION}", "", f"Run again: `compositefl reproduce {experiment.name}`"]
    return "\n".join(lines) + "\n"


CRITERION = (
    "Random runs are compared trial by trial, and a difference within two standard errors, or of a "
    "single trial, cannot be told; see [settings](settings.md)."
)


def size(table: pd.DataFrame) -> list[str]:
    """How many rounds and trials are behind a table of histories."""
    if not {"round", "trial"} <= set(table):
        return []
    numbers = ("n", "Q", "minibatch", "batch size")
    by = [c for c in table if table[c].dtype == object or c in numbers]
    groups = table.groupby(by, sort=False) if by else [((), table)]
    sizes = {(int(part["round"].max()), part["trial"].nunique()) for _, part in groups}
    said = [f"{r:,} rounds and {t} trial{'s' if t > 1 else ''}" for r, t in sorted(sizes)]
    return [("Here: " if len(said) == 1 else "Here, by panel: ") + "; ".join(said) + "."]


def verdict_table(verdicts: Iterable[Verdict]) -> list[str]:
    """The verdicts as a Markdown table."""
    rows = ["| claim | paper says | measured | verdict |", "|---|---|---|---|"]
    return rows + [_row(v.claim, v.paper, v.measured, _strong(v.word)) for v in verdicts]


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _strong(word: str) -> str:
    return word if word == "holds" else f"**{word}**"


def claims(verdicts: Iterable[Verdict]) -> dict[str, list[Verdict]]:
    """The cases of each claim of the paper."""
    found: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.kind is Kind.PAPER:
            found.setdefault(verdict.of or verdict.claim, []).append(verdict)
    return found


def write_index(out: Path, experiments: Mapping[str, Experiment]) -> None:
    """README.md in `out`: every claim of the papers whose table is there, once."""
    rows, missing = [], []
    words = {"holds": 0, "does not": 0, "cannot be told": 0}
    made, held = dict.fromkeys(Kind, 0), dict.fromkeys(Kind, 0)
    editions: set[int] = set()
    for name, experiment in sorted(experiments.items()):
        file = out / f"{name}.csv"
        if not file.exists():
            missing.append(name)
            continue
        verdicts = experiment.judge(pd.read_csv(file))
        edition = (provenance.read(out / f"{name}.json") or {"edition": 1})["edition"]
        editions.add(edition)
        for verdict in verdicts:
            made[verdict.kind] += 1
            held[verdict.kind] += verdict.holds is True
        for claim, cases in claims(verdicts).items():
            whole = Verdict(claim, "", "", every([v.holds for v in cases])).word
            words[whole] += 1
            said = [f"{n} {w}" for w in words if (n := sum(v.word == w for v in cases))]
            link = f"[{name}]({name}.md)"
            rows.append(_row(link, str(edition), claim, ", ".join(said), _strong(whole)))
    lines = [
        "# Reproduction",
        "",
        f"The papers make {sum(words.values())} claims about the figures and tables that were run "
        f"here. {words['holds']} hold in every case that was run, {words['does not']} do not in "
        f"at least one, and {words['cannot be told']} cannot be told from the trials that were "
        "made. The pages have the cases, the numbers and what was tried; [settings](settings.md) "
        "has the protocol and what our copies of the papers leave open.",
        "",
        f"Counted apart: of {made[Kind.OURS]} statements that are not in the papers "
        f"{held[Kind.OURS]} hold, of {made[Kind.CERTAIN]} checks that can hardly fail (counts from "
        f"traces, slopes that follow from a step rule) {held[Kind.CERTAIN]}.",
        *(["", FIRST_EDITION] if 1 in editions else []),
        *(["", f"Declared and not run yet: {', '.join(missing)}."] if missing else []),
        "",
        "| experiment | edition | claim | cases | verdict |",
        "|---|---|---|---|---|",
        *rows,
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n")
