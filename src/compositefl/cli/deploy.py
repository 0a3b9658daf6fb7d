"""`compositefl deploy`: federations on a real network. The commands print what they run."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from compositefl.cli.settings import seed_number, whole

FederationFile = Annotated[Path, typer.Argument(help="The federation, a TOML file.")]
Folder = Annotated[
    Path, typer.Option(help="Folder of the federation: kits, jobs and results.", metavar="DIR")
]
Run = Annotated[str, typer.Option(help="Name of the run.", metavar="NAME")]
Kits = Annotated[list[Path], typer.Argument(help="Startup kits of servers and sites.")]
Modules = Annotated[
    list[str] | None,
    typer.Option("--module", help="Module of your own that it names. Repeatable.", metavar="NAME"),
]
HERE = Path("federation")


def register(app: Any, guarded: Callable[..., Any]) -> None:
    """Add the commands to the command line `app`."""
    deploy = typer.Typer(
        help="Run federations over a network with NVIDIA FLARE.", no_args_is_help=True
    )
    for name, command in COMMANDS.items():
        deploy.command(name)(guarded(command))
    app.add_typer(deploy, name="deploy")


def _flare() -> Any:
    """The adapter, or one line that says what to install."""
    from compositefl.core.errors import CompositeFLError

    try:
        from compositefl.deployment import flare
    except ImportError as error:
        raise CompositeFLError(
            f"deploy needs NVIDIA FLARE: pip install 'compositefl[deploy]' ({error})"
        ) from None
    return flare


def _admin(folder: Path, run: str) -> tuple[Any, Any]:
    """(administrator, run) of a provisioned folder."""
    from compositefl.core.errors import CompositeFLError
    from compositefl.deployment.supervise import RunFolder

    flare = _flare()
    from compositefl.deployment.flare_admin import Admin

    kits = sorted(folder.glob(f"*/prod_*/{flare.ADMIN}"))
    if not kits:
        raise CompositeFLError(f"--folder {folder} holds no administrator's kit; provision first")
    return Admin(kits[-1]), RunFolder(folder, run)


def try_(
    folder: Annotated[
        Path | None, typer.Option(help="Keep everything in this folder.", metavar="DIR")
    ] = None,
    sites: Annotated[int, typer.Option(help="Sites.", parser=whole, metavar="INT")] = 4,
    rounds: Annotated[int, typer.Option(help="Rounds.", parser=whole, metavar="INT")] = 30,
    algorithm: Annotated[str, typer.Option(help="Algorithm.", metavar="NAME")] = "fednmap",
    seed: Annotated[int, typer.Option(help="Seed.", parser=seed_number, metavar="INT")] = 0,
) -> int:
    """Run a server and sites as processes of this machine, on digits, next to the simulation."""
    _flare()
    from compositefl.cli.rehearsal import rehearse

    return rehearse(folder, sites, rounds, algorithm, seed)


def provision(
    federation: FederationFile,
    host: Annotated[str, typer.Option(help="Name of the server's machine.", metavar="HOST")],
    folder: Folder = HERE,
    port: Annotated[int, typer.Option(help="Its port.", parser=whole, metavar="INT")] = 8002,
    module: Modules = None,
) -> int:
    """Make certificates and a startup kit for the server, every site and the administrator."""
    from compositefl.deployment import Federation

    declared = Federation.read(federation).trusting(module or ()).check()
    kits = _flare().provision(declared, folder, host, port)
    for name in declared.sites:
        (kits[name] / "local" / "site.toml.example").write_text(EXAMPLE.format(name=name))
        (kits[name] / "local" / "federation.toml").write_text(declared.text)
    for name, kit in kits.items():
        print(f"{name}: {kit}")
    print(f"sha256 of the federation, for accept in each site.toml:\n{declared.hash}")
    return 0


def start(kits: Kits) -> int:
    """Start the server or a site of this machine."""
    for kit in kits:
        process = _flare().start(kit)
        print(f"{kit.name} runs as process {process}; its log is {kit / 'log.txt'}")
    return 0


def stop(kits: Kits) -> int:
    """Stop the server or a site of this machine."""
    for kit in kits:
        _flare().stop(kit)
    return 0


def submit(
    federation: FederationFile, folder: Folder = HERE, run: Run = "run", module: Modules = None
) -> int:
    """Start a run. Watch it with `watch`."""
    from compositefl.deployment import Federation, supervise

    declared = Federation.read(federation).trusting(module or ()).check()
    admin, _ = _admin(folder, run)
    record = supervise.RunFolder.create(folder, run, declared)
    job = supervise.submit(admin, record, declared, _flare().write_job, print)
    print(f"run {run}: job {job}")
    return 0


def watch(
    folder: Folder = HERE,
    run: Run = "run",
    resume: Annotated[bool, typer.Option(help="Continue a job that ends early.")] = True,
    patience: Annotated[
        float, typer.Option(help="Seconds that the server may be away.", metavar="SECONDS")
    ] = 86400.0,
) -> int:
    """Watch a run to its end; a job that ends early is continued by a new one."""
    from compositefl.cli.watching import Watching
    from compositefl.deployment import supervise

    admin, record = _admin(folder, run)
    write_job = _flare().write_job
    with Watching(run).open() as view:
        admin.say = view.say
        outcome = supervise.follow(
            admin, record, write_job, view.say, resume=resume, show=view.show, patience=patience
        )
    return _show(outcome)


def resume(folder: Folder = HERE, run: Run = "run") -> int:
    """Continue a run from the server's checkpoint by a new job."""
    from compositefl.deployment import supervise

    admin, record = _admin(folder, run)
    job = supervise.submit(admin, record, record.federation(), _flare().write_job, print)
    print(f"run {run}: job {job}")
    return 0


def result(folder: Folder = HERE, run: Run = "run") -> int:
    """Fetch the result of a run that has ended."""
    from compositefl.deployment import supervise

    admin, record = _admin(folder, run)
    if not record.outcome.exists():
        supervise.follow(admin, record, _flare().write_job, print, resume=False)
    return _show(record.outcome)


def _show(outcome: Path) -> int:
    import json

    import pandas as pd

    config = json.loads((outcome / "config.json").read_text())
    print(f"{config['rounds_run']} rounds, stopped: {config['stopped']}")
    if (outcome / "history.csv").stat().st_size > 1:
        last = pd.read_csv(outcome / "history.csv").iloc[-1]
        names = ("psi", "natural_residual_sq", "zeros", "accuracy")
        print(", ".join(f"{name} {last[name]:.6g}" for name in names if name in last))
    if "epsilon" in config:
        print(f"privacy loss of a site: epsilon {config['epsilon']:.3g} at {config['delta']:g}")
    print(f"written to {outcome}: {', '.join(sorted(p.name for p in outcome.iterdir()))}")
    return 0


EXAMPLE = """# Rename to site.toml after you have read federation.toml beside this file.
name = "{name}"
accept = []  # sha256sum federation.toml
modules = []  # of your own, whose functions a federation may name

[train]
file = "train.csv"
x = ["first column", "second column"]
y = "label"
"""

COMMANDS: dict[str, Callable[..., int]] = {
    "try": try_,
    "provision": provision,
    "start": start,
    "submit": submit,
    "watch": watch,
    "resume": resume,
    "result": result,
    "stop": stop,
}
