"""`compositefl deploy`: federations on a real network. The commands print what they run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compositefl.cli import inspection, kits
from compositefl.cli.settings import Command, seed_number, whole
from compositefl.cli.wording import plain_lines, say, tell
from compositefl.core.files import privately

if TYPE_CHECKING:
    from compositefl.cli.rehearsal import Data
    from compositefl.deployment.flare_admin import Admin
    from compositefl.deployment.supervise import RunFolder
Run = Annotated[str, typer.Option(help="Name of the run.", metavar="NAME")]


def register(app: typer.Typer, guarded: Callable[..., Command]) -> None:
    """Add the commands to the command line `app`."""
    deploy = typer.Typer(
        help="Run federations over a network with NVIDIA FLARE.", no_args_is_help=True
    )
    for name, command in COMMANDS.items():
        deploy.command(name)(guarded(privately()(command), INTERRUPTED.get(name, "")))
    app.add_typer(deploy, name="deploy")


@contextmanager
def _admin(folder: Path, run: str, name: str | None = None) -> "Iterator[tuple[Admin, RunFolder]]":
    """(administrator, run) of the federation `name`, or of the one that the run is of."""
    adapter = kits.flare()
    from compositefl.deployment.flare_admin import Admin
    from compositefl.deployment.supervise import RunFolder

    record = RunFolder(folder, run)
    kit = adapter.admin_kit(folder, name or record.federation().name)
    with Admin(kit, tell) as admin:
        yield admin, record


def try_(
    folder: Annotated[
        Path | None, typer.Option(help="Keep everything in this folder.", metavar="DIR")
    ] = None,
    sites: Annotated[
        int | None, typer.Option(help="Sites; default 4.", parser=whole, metavar="INT")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(help="Rounds; default 30.", parser=whole, metavar="INT")
    ] = None,
    algorithm: Annotated[str, typer.Option(help="Algorithm.", metavar="NAME")] = "fednmap",
    seed: Annotated[int, typer.Option(help="Seed.", parser=seed_number, metavar="INT")] = 0,
    federation: Annotated[
        Path | None,
        typer.Option(help="Your own federation, on invented data.", metavar="FILE"),
    ] = None,
    module: kits.Modules = None,
) -> int:
    """Rehearse: a server and sites as processes of this machine.

    The result stands next to the simulation's.
    """
    kits.flare()
    from compositefl.cli import rehearsal_data
    from compositefl.cli.rehearsal import rehearse

    data: Callable[[], Data]
    if federation is not None:
        declared = rehearsal_data.own(federation, sites, rounds, module or ())
        if declared.glm is not None:
            from compositefl.cli.rehearsal_tables import invented_tables

            tables = invented_tables(declared)
            data = lambda: (tables, [None] * len(tables))  # noqa: E731
        else:
            samples = rehearsal_data.invented(declared)
            data = lambda: samples  # noqa: E731
        return rehearse(folder, declared, data, module or ())
    declared = rehearsal_data.declare(sites, rounds, algorithm, seed)
    digits = partial(rehearsal_data.digits, len(declared.sites))
    return rehearse(folder, declared, digits, quick=True)


def start(nodes: kits.Kits) -> int:
    """Start the server or a site of this machine."""
    for kit, process in zip(nodes, kits.flare().start_all(nodes), strict=True):
        print(f"{kit.name} runs as process {process}; its log is {kit / 'log.txt'}")
    return 0


def stop(nodes: kits.Kits) -> int:
    """Stop the server or a site of this machine."""
    kits.flare().stop_all([kit.resolve() for kit in nodes])
    return 0


def submit(
    federation: kits.FederationFile,
    folder: kits.Folder = kits.HERE,
    run: Run = "run",
    module: kits.Modules = None,
) -> int:
    """Start a run. Watch it with `watch`."""
    from compositefl.deployment import Federation, supervise

    declared = Federation.read(kits.existing(federation))
    declared = declared.trusting(module or ()).for_run(run).check()
    with _admin(folder, run, declared.name) as (admin, _):
        record = supervise.RunFolder.create(folder, run, declared)
        job = supervise.submit(admin, record, declared, kits.flare().write_job, tell)
    tell(f"run {run}: job {job}")
    return 0


def watch(
    folder: kits.Folder = kits.HERE,
    run: Run = "run",
    resume: Annotated[bool, typer.Option(help="Continue a job that ends early.")] = True,
    patience: Annotated[
        float, typer.Option(help="Seconds that the server may be away.", metavar="SECONDS")
    ] = 86400.0,
) -> int:
    """Watch a run to its end. A job that ends early is continued."""
    from compositefl.cli.watching import Watching
    from compositefl.core.errors import require_positive
    from compositefl.deployment import supervise

    require_positive(patience=patience)
    write_job = kits.flare().write_job
    with _admin(folder, run) as (admin, record), Watching(run).open() as view:
        admin.say = view.say
        outcome = supervise.follow(
            admin, record, write_job, view.say, resume=resume, show=view.show, patience=patience
        )
    return _show(outcome)


def resume(folder: kits.Folder = kits.HERE, run: Run = "run") -> int:
    """Continue a run from the server's checkpoint by a new job."""
    from compositefl.deployment import supervise

    with _admin(folder, run) as (admin, record):
        job = supervise.submit(admin, record, record.federation(), kits.flare().write_job, tell)
    tell(f"run {run}: job {job}")
    return 0


def result(folder: kits.Folder = kits.HERE, run: Run = "run") -> int:
    """Fetch the result of a run. Of one that goes on: what there is, and exit code 1."""
    from compositefl.cli.watching import print_picture
    from compositefl.deployment import supervise

    with _admin(folder, run) as (admin, record):
        if record.stopped() not in supervise.FINAL:
            state = admin.state(record.last_job())
            if not state.startswith("FINISHED"):
                print(f"the run {run} goes on; this is what there is now")
                print_picture(run, inspection.so_far(admin, record))
                return 1
            supervise.follow(admin, record, kits.flare().write_job, tell, resume=False)
        return _show(record.outcome)


def _show(outcome: Path) -> int:
    import json

    import pandas as pd

    from compositefl.cli.runs import ENDED_BADLY
    from compositefl.report import page
    from compositefl.report.overview import write_report

    config = json.loads((outcome / "config.json").read_text())
    tell(f"{config['rounds_run']} rounds, stopped: {config['stopped']}")
    part = config.get("rounds_of_sites", {})
    tell("rounds of each site: " + ", ".join(f"{site} {rounds}" for site, rounds in part.items()))
    history, table = outcome / "history.csv", outcome / "model.json"
    if table.exists():  # a generalised linear model
        from compositefl.linear_model import load_model

        print(plain_lines(load_model(table).summary()))
    if history.exists() and history.stat().st_size > 1:
        last = pd.read_csv(history).iloc[-1]
        names = ("psi", "natural_residual_sq", "zeros", "accuracy")
        print(", ".join(f"{name} {last[name]:.6g}" for name in names if name in last))
    if "epsilon" in config:
        print(f"privacy loss of a site: epsilon {config['epsilon']:.3g} at {config['delta']:g}")
    if (history.exists() or "fit" in config) and page.available():
        write_report([outcome], outcome / "report.html")
        (outcome / "report.html").chmod(0o600)  # as the rest of the outcome
    tell(f"written to {outcome}: {', '.join(sorted(p.name for p in outcome.iterdir()))}")
    if not config.get("ended_badly"):
        return 0
    say(f"WARNING: this model is no solution. {config['summary']}")
    return ENDED_BADLY


INTERRUPTED = {"watch": "the run goes on"}  # what is true after Ctrl-C, where it is known
COMMANDS: dict[str, Callable[..., int]] = {
    "try": try_,
    "provision": kits.provision,
    "check": inspection.check,
    "start": start,
    "submit": submit,
    "watch": watch,
    "resume": resume,
    "result": result,
    "status": inspection.status,
    "stop": stop,
    "add": kits.add,
    "renew": kits.renew,
    "revoke": kits.revoke,
    "move": kits.move,
    "update": kits.update,
}
