"""The commands. They import what they need when they run."""

import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from compositefl.cli import fit_options
from compositefl.cli.deploy import register
from compositefl.cli.fit_options import Overwrite
from compositefl.cli.help import HelpByPanel, QuickGroup
from compositefl.cli.settings import Command, Settings, seed_number, whole, with_settings
from compositefl.cli.wording import as_options, say
from compositefl.core.errors import CompositeFLError, ProcessLost, unknown_name

WRONG_INPUT, FAILED, INTERRUPTED = 2, 1, 130  # exit codes
UsageError: Any = typer.BadParameter.__bases__[0]  # Typer's name for it depends on its version
LISTS = ("algorithms", "regularizers", "datasets", "partitions", "models")

app = typer.Typer(
    name="compositefl",
    cls=QuickGroup,
    help="Composite federated learning: minimise f(x) + phi(x) over clients that keep their data.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: `rich` takes longer to load than the help to print
)

Out = Annotated[
    Path | None,
    typer.Option(help="Folder for history, model, config and plot.", show_default=False),
]
Live = Annotated[
    bool, typer.Option("--live", help="Serve a page with the curves on this machine meanwhile.")
]
Track = Annotated[
    list[str] | None,
    typer.Option(
        help="Send the history meanwhile: jsonl:FILE, tensorboard:DIR, mlflow:DIR, wandb:PROJECT. "
        "Repeatable.",
        metavar="KIND:WHERE",
        show_default=False,
    ),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    try:
        code = app(arguments, prog_name="compositefl", standalone_mode=False)
    except UsageError as error:
        text = error.format_message()
        if type(error).__name__ == "NoArgsIsHelpError":
            print(text)
        elif text:  # empty where the help was shown
            say(f"error: {text}")
        return WRONG_INPUT
    return int(code or 0)


def split_names(algorithms: str) -> list[str]:
    """The names in "fednmap,za1"."""
    names = [name.strip() for name in algorithms.split(",") if name.strip()]
    if not names:
        raise CompositeFLError(f"--algorithms '{algorithms}' names no algorithm")
    return names


def guarded(command: Command, interrupted: str = "no result was written") -> Command:
    """Turn what may go wrong into one line on stderr and an exit code.

    interrupted: what is true after Ctrl-C, or nothing.
    """

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> int:
        try:
            return command(*args, **kwargs)
        except ProcessLost as error:
            say(f"error: {as_options(error)}")
            os._exit(FAILED)  # an orderly end would wait for the process that is gone
        except CompositeFLError as error:
            say(f"error: {as_options(error, getattr(command, 'declared', Settings))}")
            return WRONG_INPUT
        except BrokenPipeError:
            raise
        except OSError as error:
            say(f"error: {error}")
            return FAILED
        except KeyboardInterrupt:
            say("; ".join(filter(None, ("interrupted", interrupted))))
            return INTERRUPTED

    return run


def _version(show: bool) -> None:
    if show:
        from importlib.metadata import version

        print(f"compositefl {version('compositefl')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


@app.command(cls=HelpByPanel)
@guarded
@with_settings
def run(
    settings: Settings,
    algorithm: Annotated[
        str | None,
        typer.Option(
            help="Algorithm, or MODULE:NAME of your own; default fednmap, and prox-newton for "
            "small convex problems.",
            metavar="NAME",
            show_default=False,
        ),
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
    live: Live = False,
    track: Track = None,
) -> int:
    """Solve one problem with one algorithm."""
    from compositefl.cli.runs import carry_out, join, make_plan

    settings, out = join(settings, out)
    plan = make_plan(settings, [algorithm] if algorithm else [], out, overwrite)
    (name,) = plan.algorithms
    command = f"compositefl run --algorithm {name}"
    return carry_out(plan, command, live=live, track=track or ())[1]


@app.command(cls=HelpByPanel)
@guarded
@with_settings
def compare(
    settings: Settings,
    algorithms: Annotated[
        str, typer.Option(help="Names with commas between.", metavar="NAME,NAME,...")
    ],
    out: Out = None,
    overwrite: Overwrite = False,
    live: Live = False,
    track: Track = None,
) -> int:
    """Solve one problem with several algorithms. Each takes the given numbers that it knows."""
    from compositefl.cli.runs import carry_out, join, make_plan

    names = split_names(algorithms)
    settings, out = join(settings, out)
    plan = make_plan(settings, names, out, overwrite)
    command = f"compositefl compare --algorithms {','.join(names)}"
    return carry_out(plan, command, live=live, track=track or ())[1]


@app.command(cls=HelpByPanel)
@guarded
@with_settings
def tune(
    settings: Settings,
    algorithms: Annotated[
        str, typer.Option(help="Names with commas between.", metavar="NAME,NAME,...")
    ],
    budget: Annotated[
        int, typer.Option(help="Runs for each algorithm.", parser=whole, metavar="INT")
    ] = 25,
    metric: Annotated[str, typer.Option(help="Column of the history to judge by.")] = "psi",
) -> int:
    """Find good step sizes for one or several algorithms.

    Each has the same number of runs. The grids go around the given numbers, or around usual ones
    where none is given.
    """
    from compositefl.cli.runs import make_plan, tune_plan

    plan = make_plan(settings, split_names(algorithms), None, False, tuning=True)
    return tune_plan(plan, budget, metric)


@app.command("list")
@guarded
def list_(
    what: Annotated[
        str | None, typer.Argument(help=f"One of {', '.join(LISTS)}; default all.")
    ] = None,
) -> int:
    """Show what there is: algorithms, regularisers, data and models."""
    if what is not None and what not in LISTS:
        raise unknown_name("list", what, LISTS)
    from compositefl.cli.listing import tables
    from compositefl.cli.tables import TERMINAL, print_table

    for number, table in enumerate(tables(what)):
        if number:
            print()
        print_table(table, TERMINAL)
    return 0


@app.command()
@guarded
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(help="Folders that run, compare, fit or deploy wrote.", metavar="DIR"),
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The page; default report.html in the first folder.", metavar="FILE"),
    ] = None,
) -> int:
    """Write a page with curves to zoom into, zeros, clients and settings. It needs no network."""
    from compositefl.report.overview import write_report

    page = out or folders[0] / "report.html"
    write_report(folders, page)
    print(f"written to {page}")
    return 0


@app.command()
@guarded
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the picture and the history.")] = Path(
        "demo"
    ),
    rounds: Annotated[int, typer.Option(help="Rounds.", parser=whole, metavar="INT")] = 300,
    trials: Annotated[int, typer.Option(help="Trials.", parser=whole, metavar="INT")] = 3,
    seed: Annotated[int, typer.Option(help="Seed.", parser=seed_number, metavar="INT")] = 0,
    overwrite: Overwrite = False,
) -> int:
    """Five hospitals' tables, then four methods on digits, in under a minute."""
    from compositefl.cli.demo import run_demo

    return run_demo(out, rounds, trials, seed, overwrite)


@app.command()
@functools.partial(guarded, interrupted="parts that are done are kept")
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Figures and tables, in this order, or 'all'.", show_default=False),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Show what there is.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="A version of minutes.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for table, picture and page.")] = Path(
        "reproduction"
    ),
    parts: Annotated[
        Path | None,
        typer.Option(help="Folder of runs already made; default: parts in --out.", dir_okay=True),
    ] = None,
    finished: Annotated[
        bool, typer.Option("--finished", help="Run nothing: pages of the trials that are there.")
    ] = False,
) -> int:
    """Run figures or tables of the papers. They are compared with their claims."""
    from compositefl.cli.reproduce import run_experiments, show_list

    if list_ or not names:
        show_list()
        return 0
    return run_experiments(names, quick, out, parts, finished)


fit_options.register(app, guarded)
register(app, guarded)
