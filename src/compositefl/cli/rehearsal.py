"""`compositefl deploy try`: a whole federation on one machine, in real processes."""

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import jax
import numpy as np
import pandas as pd
from rich.table import Table
from safetensors.numpy import load_file

import compositefl as cfl
from compositefl.cli.rehearsal_data import Part, write_site
from compositefl.cli.tables import print_table
from compositefl.cli.watching import Watching
from compositefl.cli.wording import plain, plain_lines, say
from compositefl.configuration import quick_flags
from compositefl.core.errors import CompositeFLError
from compositefl.data import Samples
from compositefl.deployment import Federation, Site, flare, supervise
from compositefl.deployment.dry_run import dry_run
from compositefl.deployment.flare_admin import Admin
from compositefl.solve.result import named_arrays

if TYPE_CHECKING:
    from compositefl.linear_model.base import GeneralizedLinearModel

POLL = 0.3  # seconds between two looks at a run
Expected: TypeAlias = "cfl.Result | GeneralizedLinearModel | None"  # None under noise
Data = tuple[Sequence[Part], Sequence[Part | None]]  # training and test sets of the sites


def rehearse(
    folder: Path | None,
    federation: Federation,
    data: Callable[[], Data],
    modules: Sequence[str] = (),
    quick: bool = False,
) -> int:
    """Provision, start, run, stop, compare; exit code 0 if both end at the same model.

    quick: compile in a hurry, for small models. What can be done beside the network is: the data
    are made while certificates are, and the simulation runs while the processes of the job start.
    """
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise CompositeFLError(f"--folder {folder} is not empty")
    root = (folder or Path(tempfile.mkdtemp(prefix="compositefl-"))).resolve()
    began = time.perf_counter()
    try:
        with _shared_programs(root / "programs", quick), ThreadPoolExecutor(1) as beside:
            outcome, expected = _deployed(federation, root, data, modules, beside)
            gap = _compare(outcome, federation, expected.result())
    except KeyboardInterrupt:
        if folder is not None and root.exists() and any(root.iterdir()):
            say(f"keys, kits and what there is of the run lie in {root}")
        raise
    finally:
        if folder is None:
            shutil.rmtree(root, ignore_errors=True)
    seconds = f"({time.perf_counter() - began:.0f} seconds in all)"
    if gap is None:
        print(f"uploads carry noise: the simulation would end elsewhere   {seconds}")
        return 0
    above = "" if gap <= 1e-5 else ", above 1e-5"
    print(f"largest difference between the two models: {gap:.1e}{above}   {seconds}")
    return 0 if gap <= 1e-5 else 1


@contextmanager
def _shared_programs(folder: Path, quick: bool) -> Iterator[None]:
    """Let all processes of the rehearsal share what one of them has compiled, however small.

    In the user's cache of compiled programs, or in `folder` where that is turned off.
    """
    settings = {
        "jax_compilation_cache_dir": jax.config.jax_compilation_cache_dir or str(folder),  # type: ignore[attr-defined]
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    environment = {name.upper(): str(value) for name, value in settings.items()}
    if quick:
        environment["XLA_FLAGS"] = quick_flags()
    old = {name: os.environ.get(name) for name in environment}
    try:
        os.environ.update(environment)
        for name, value in settings.items():
            jax.config.update(name, value)
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
        for name, text in old.items():
            if text is None:
                del os.environ[name]
            else:
                os.environ[name] = text


def _deployed(
    federation: Federation,
    root: Path,
    data: Callable[[], Data],
    modules: Sequence[str],
    beside: ThreadPoolExecutor,
) -> "tuple[Path, Future[Expected]]":
    """The outcome of the network's run, and that of the simulation."""
    made = beside.submit(data)
    kits = flare.provision(federation, root, "localhost", free_port())
    nodes = {name: kit for name, kit in kits.items() if name != flare.ADMIN}
    server = kits["localhost"] / "local" / flare.SERVER_FILE
    server.write_text(f'accept = ["{federation.hash}"]\nmodules = {json.dumps(list(modules))}\n')
    run = supervise.RunFolder.create(root, "run", federation)
    write_job = flare.write_job
    try:
        with Admin(kits[flare.ADMIN]) as admin:
            flare.launch_all(nodes.values())
            for name, train, test in zip(federation.sites, *made.result(), strict=True):
                write_site(kits[name] / "local", name, federation, train, test, modules)
            _dry_run(kits[federation.sites[0]] / "local", federation)
            _wait_for_sites(federation.sites, admin)
            supervise.submit(admin, run, federation, write_job, print)
            expected = beside.submit(_expected, federation, *made.result())
            with Watching("run").open() as view:
                outcome = supervise.follow(
                    admin, run, write_job, view.say, show=view.show, poll=POLL
                )
            return outcome, expected
    finally:
        flare.stop_all(nodes.values())


def _dry_run(local: Path, federation: Federation) -> None:
    """One site's round in this process while the nodes start: they find its programs compiled."""
    found = dry_run(Site.read(local / "site.toml"), federation)
    if found.wrong:
        raise CompositeFLError(f"a dry run of one site fails: {found.wrong[0]}")


def _wait_for_sites(sites: tuple[str, ...], admin: Admin, patience: float = 120.0) -> None:
    end = time.monotonic() + patience
    while time.monotonic() < end:
        try:
            if admin.system()[0] >= set(sites):
                return
        except ConnectionError:
            pass
        time.sleep(0.25)
    raise CompositeFLError(f"the sites did not connect within {patience:g} seconds")


def _simulated(
    federation: Federation, clients: Sequence[Samples], parts: Sequence[Samples | None]
) -> cfl.Result:
    tests = [part for part in parts if part is not None]
    test = Samples(*(np.concatenate(list(a)) for a in zip(*tests, strict=True))) if tests else None
    problem = federation.make_model().problem(clients, test=test, seed=federation.seed)
    algorithm = federation.make_algorithm()
    return cfl.minimize(
        problem,
        algorithm.regularizer,
        algorithm,
        progress=False,
        **federation.shared(),
    )


def _expected(
    federation: Federation, clients: Sequence[Part], parts: Sequence[Part | None]
) -> Expected:
    """What the run comes to in this process; None under noise, which is another every time."""
    if federation.privacy is not None:
        return None
    if federation.glm is None:
        return _simulated(federation, clients, parts)
    from compositefl.cli.rehearsal_tables import fit_here

    return fit_here(federation, list(clients))


def _compare(outcome: Path, federation: Federation, simulated: Expected) -> float | None:
    """Print both results; the largest difference between the parameters, None under noise."""
    if simulated is None:
        return None
    if not isinstance(simulated, cfl.Result):
        return _compare_fits(outcome, simulated)
    if federation.every:
        mine, theirs = pd.read_csv(outcome / "history.csv").iloc[-1], simulated.history.iloc[-1]
        table = Table(title=f"after {int(mine['round'])} rounds")
        for column in ("", "network", "simulation"):
            table.add_column(column, justify="right")
        for name in ("psi", "natural_residual_sq", "accuracy", "zeros"):
            if name in mine and name in theirs:
                table.add_row(name, f"{mine[name]:.8g}", f"{theirs[name]:.8g}")
        print_table(table)
    model, reference = load_file(outcome / "model.safetensors"), named_arrays(simulated.params)
    return max(float(np.abs(model[name] - reference[name]).max()) for name in reference)


def _compare_fits(outcome: Path, here: "GeneralizedLinearModel") -> float | None:
    """The same for a generalised linear model."""
    from compositefl.cli.rehearsal_tables import apart
    from compositefl.linear_model import load_model

    config = json.loads((outcome / "config.json").read_text())
    if not (outcome / "model.json").exists():
        raise CompositeFLError(f"the fit over the network ended early: {config['summary']}")
    network = load_model(outcome / "model.json")
    print(f"{plain(config['summary'])}, {here.n_iter_} in the simulation")
    print(plain_lines(network.summary()))
    return apart(network, here)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
