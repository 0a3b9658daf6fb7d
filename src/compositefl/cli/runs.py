"""From settings to results on disk: plan, run, write."""

import dataclasses
import json
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.table import Table
from safetensors.numpy import save

import compositefl as cfl
from compositefl import cluster
from compositefl.algorithms import Algorithm
from compositefl.cli.folder import MARK, check_folder, check_writable, fill_folder
from compositefl.cli.methods import build_all, check, common_gamma, given_numbers
from compositefl.cli.problems import (
    build_problem,
    build_regularizer,
    check_patterns,
    checkpoint_of,
    file_name,
    participation,
)
from compositefl.cli.settings import Settings
from compositefl.cli.sources import Source, summary
from compositefl.cli.tables import print_table
from compositefl.cli.wording import plain, plain_warnings, say
from compositefl.core.component import replace
from compositefl.core.errors import CompositeFLError
from compositefl.core.types import PlainValues
from compositefl.report import page
from compositefl.report.curves import plot, table
from compositefl.report.live import serve
from compositefl.report.overview import data_of_clients, write_report
from compositefl.report.sections import ClientData
from compositefl.solve._minimize import theory_steps
from compositefl.solve.defaults import suits_newton
from compositefl.solve.options import Options
from compositefl.solve.result import Result, named_arrays

DONE, ENDED_BADLY, INTERRUPTED = 0, 1, 130  # exit codes


@dataclass(frozen=True)
class RunPlan:
    """A checked command line: nothing is left but to run it."""

    settings: Settings
    problem: cfl.Problem
    regularizer: cfl.Regularizer
    algorithms: dict[str, Algorithm]
    eval_gamma: float
    out: Path | None
    title: str  # of the plot
    source: Source


def join(settings: Settings, out: Path | None) -> tuple[Settings, Path | None]:
    """Join the other processes of the run, if there are any; the first one writes and tells."""
    cluster.join(settings.coordinator, settings.processes, settings.process)
    if cluster.is_first():
        return settings, out
    return dataclasses.replace(settings, quiet=True), None


def make_plan(
    settings: Settings,
    names: Sequence[str],
    out: Path | None,
    overwrite: bool,
    tuning: bool = False,
) -> RunPlan:
    """Check everything that can be checked before the first round; touches no file.

    names: of the algorithms; none for the one that suits the problem.
    """
    regularizer = build_regularizer(settings)
    free, names = not names and not given_numbers(settings), names or ["fednmap"]
    algorithms = {
        name: replace(algorithm, regularizer=regularizer)
        for name, algorithm in build_all(names, settings, tuning).items()
    }
    for algorithm in algorithms.values():
        check(algorithm)
    states = _checkpoints(settings, names)
    if out is not None:
        check_folder(out, overwrite, states, settings.resume)
    gamma = common_gamma(settings, list(algorithms.values()))
    options = Options(**_options(settings, gamma))
    problem, source = build_problem(settings)  # last: it may have to download
    check_patterns(settings, problem.params)
    if free and suits_newton(problem, regularizer, options):
        algorithms = {"prox-newton": cfl.ProxNewton(regularizer=regularizer)}
    for name, algorithm in algorithms.items():
        algorithms[name] = theory_steps(problem, algorithm, options, None)
        options.check(problem, algorithms[name])
    if settings.data is not None and not settings.quiet:
        say(summary(source))
    title = _title(settings, source, list(algorithms.values()))
    return RunPlan(settings, problem, regularizer, algorithms, gamma, out, title, source)


def _options(settings: Settings, eval_gamma: float) -> dict[str, Any]:
    """The settings that `minimize` takes by their own names."""
    names = {f.name for f in fields(Options)} & {f.name for f in fields(Settings)}
    options = {name: getattr(settings, name) for name in names - {"checkpoint", "resume"}}
    return options | {"eval_gamma": eval_gamma, "participation": participation(settings)}


def _title(settings: Settings, source: Source, algorithms: list[Algorithm]) -> str:
    words = [source.name, f"{len(source.clients)} clients", settings.model]
    words.insert(1, f"partition {settings.partition}" if settings.partition else "")
    words.append(settings.regularizer if settings.regularizer != "zero" else "")
    where = ", ".join(word for word in words if word)
    return f"{type(algorithms[0]).__name__}: {where}" if len(algorithms) == 1 else where


def _checkpoints(settings: Settings, names: Sequence[str]) -> list[Path]:
    if settings.checkpoint is None:
        if settings.resume:
            raise CompositeFLError("--resume needs --checkpoint FILE")
        return []
    paths = [Path(str(checkpoint_of(settings, name, len(names) > 1))) for name in names]
    for path in paths:
        check_writable("--checkpoint", path)
        if path.is_dir():
            raise CompositeFLError(f"--checkpoint {path} is a folder; it must be a file")
        if path.exists() and not settings.resume:
            raise CompositeFLError(
                f"--checkpoint {path} exists; add --resume to go on from it, or remove it"
            )
        if path.exists() and not is_zipfile(path):
            raise CompositeFLError(f"--checkpoint {path} is damaged, or no checkpoint")
    return paths


def carry_out(
    plan: RunPlan, command: str, *, live: bool = False, track: Sequence[str] = ()
) -> tuple[dict[str, Result], int]:
    """Run, write and tell; returns the results and the exit code.

    live: serve the page while it runs. track: where the history goes meanwhile.
    """
    with ExitStack() as stack:
        stack.enter_context(cfl.track(*track))
        if live:
            stack.enter_context(serve(plan.title, say))
        results, code = _run(plan)
    quiet = plan.settings.quiet
    if not quiet:
        print_table(table(histories(plan, results)))
        print(_footnote(plan, results))
        for name, result in results.items():
            found = f"; {result.numbers}" if result.numbers else ""
            print(f"{name}: {plain(result.ending.sentence)}{found}")
    if plan.out is not None:
        written = fill_folder(plan.out, lambda folder: _write(folder, plan, results, command))
        if not quiet:
            print(f"written to {plan.out}: {', '.join(written)}")
            if not page.available():
                print("for a page with curves to zoom into: pip install 'compositefl[report]'")
    return results, code


def tune_plan(plan: RunPlan, budget: int, metric: str) -> int:
    """Tune the algorithms of a plan and print the table."""
    with plain_warnings("tune") as shown:
        best = cfl.tune(
            plan.problem,
            plan.regularizer,
            plan.algorithms,
            budget=budget,
            metric=metric,
            trials=plan.settings.trials,
            progress=not plan.settings.quiet,
            **_options(plan.settings, plan.eval_gamma),
        )
    last = [metric, "points", "diverged"]
    best = best[[*(column for column in best if column not in last), *last]]
    out = Table(box=SIMPLE_HEAD)
    for column in best:
        out.add_column(column, justify="left" if column == "method" else "right")
    for _, row in best.iterrows():
        out.add_row(*(_cell(value) for value in row))
    print_table(out)
    badly = any(isinstance(warning, cfl.ConvergenceWarning) for warning in shown)
    return ENDED_BADLY if badly else DONE


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "-" if pd.isna(value) else f"{value:.4g}"
    return str(value)


def _run(plan: RunPlan) -> tuple[dict[str, Result], int]:
    results: dict[str, Result] = {}
    code = DONE
    for name, algorithm in plan.algorithms.items():
        with plain_warnings(name):
            result = results[name] = _minimize(plan, name, algorithm)
        if len(plan.algorithms) > 1 and not plan.settings.quiet:
            say(f"{name}: {result.rounds} rounds, psi {result.history['psi'].iloc[-1]:.5g}")
        if result.ended_badly:
            code = ENDED_BADLY
        if result.stopped == "interrupted":
            say(f"interrupted: {name} stopped after round {result.rounds}")
            return results, INTERRUPTED
    return results, code


def _minimize(plan: RunPlan, name: str, algorithm: Algorithm) -> Result:
    settings = plan.settings
    return cfl.minimize(
        plan.problem,
        plan.regularizer,
        algorithm,
        **_options(settings, plan.eval_gamma),
        trials=settings.trials,
        checkpoint=checkpoint_of(settings, name, len(plan.algorithms) > 1),
        resume=settings.resume,
        progress=not settings.quiet,
    )


def histories(plan: RunPlan, results: dict[str, Result]) -> dict[str, pd.DataFrame]:
    """The histories under the names of the classes, as plots and tables show them."""
    labels = {name: type(plan.algorithms[name]).__name__ for name in results}
    if len(set(labels.values())) < len(labels):  # one's own class with a name of the library's
        labels = {name: name for name in results}
    return {labels[name]: result.history for name, result in results.items()}


def _footnote(plan: RunPlan, results: dict[str, Result]) -> str:
    trials = plan.settings.trials
    rounds = " / ".join(str(n) for n in sorted({result.rounds for result in results.values()}))
    mean = f", means over {trials} trials" if trials > 1 else ""
    return f"after {rounds} rounds{mean}; natural residual at gamma = {plan.eval_gamma:g}"


def _write(folder: Path, plan: RunPlan, results: dict[str, Result], command: str) -> None:
    """All files of a result. Several methods share the history; each has its own model."""
    single = len(plan.algorithms) == 1
    parts = []
    about: dict[str, PlainValues] = {}
    for name, result in results.items():
        model = "model.safetensors" if single else f"model-{file_name(name)}.safetensors"
        (folder / model).write_bytes(save(named_arrays(result.params)))
        history = result.history
        parts.append(history if single else history.assign(algorithm=name))
        about[name] = result.about()
    history = pd.concat(parts, ignore_index=True)
    if not single:
        history = history[["algorithm", *[c for c in history if c != "algorithm"]]]
    history.to_csv(folder / "history.csv", index=False)
    words = [*shlex.split(command), *plan.settings.arguments()]
    config = {
        MARK: cfl.__version__,
        "command": shlex.join(words),
        "title": plan.title,
        "options": asdict(plan.settings),
        **({"data": plan.source.about} if plan.source.about else {}),
        "clients": _about_clients(plan.source),
        "runs": about,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    plot(histories(plan, results), folder / "plot.png", title=plan.title, gamma=plan.eval_gamma)
    if page.available():
        write_report([folder], folder / "report.html")


def _about_clients(source: Source) -> ClientData | None:
    """What the clients hold, for the report; None for batches that are no pairs (x, y)."""
    if not isinstance(source.clients[0], tuple):
        return None
    about = source.about
    return data_of_clients(
        source.clients,
        names=about.get("sites"),
        classes=about.get("classes"),
        features=about.get("features"),
    )
