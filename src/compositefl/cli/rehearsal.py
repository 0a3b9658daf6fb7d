"""`compositefl deploy try`: a whole federation on one machine, in real processes."""

import dataclasses
import json
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.table import Table
from safetensors.numpy import load_file

import compositefl as cfl
from compositefl.cli.tables import print_table
from compositefl.cli.watching import Watching
from compositefl.core.errors import CompositeFLError, require_integer
from compositefl.deployment import Federation, flare, supervise
from compositefl.deployment.flare_admin import Admin
from compositefl.solve.result import named_arrays

DECLARATION = """name = "rehearsal"
sites = {sites}
rounds = {rounds}
batch_size = 32
seed = {seed}
regularizer = "elastic-net:0.001,0.001"
eval_every = {every}
eval_gamma = 4.0

[model]
name = "mlp"
input_shape = [64]
classes = 10
hidden = [32]

[algorithm]
name = "{algorithm}"
{numbers}

[network]
round_timeout = 120.0
"""
NUMBERS: dict[str, Any] = {
    "local_steps": 10,
    "local_lr": 0.1,
    "server_lr": 1.0,
    "gamma": 4.0,
    "composite": "server-prox",
}


def declare(sites: int, rounds: int, algorithm: str, seed: int) -> Federation:
    """The federation: digits, a small network, an elastic net."""
    require_integer(sites=sites, rounds=rounds)
    cls = cfl.algorithms.ALGORITHMS.get(algorithm)
    known = {f.name for f in dataclasses.fields(cls)} if cls is not None else set()  # type: ignore[arg-type]
    numbers = "\n".join(f"{k} = {json.dumps(v)}" for k, v in NUMBERS.items() if k in known)
    names = json.dumps([f"site-{i + 1}" for i in range(sites)])
    text = DECLARATION.format(
        sites=names,
        rounds=rounds,
        seed=seed,
        every=max(1, rounds // 10),
        algorithm=algorithm,
        numbers=numbers,
    )
    return Federation.parse(text)


def spread(federation: Federation) -> tuple[Any, Any, list[Any]]:
    """(clients, test set, the test set cut over the sites): digits of unequal shares."""
    data = cfl.data.load("digits")
    clients = cfl.partition.dirichlet(data.train, len(federation.sites), alpha=0.5, seed=0)
    test = data.test
    assert test is not None
    parts = [
        cfl.data.Samples(x, y)
        for x, y in zip(
            np.array_split(test.x, len(federation.sites)),
            np.array_split(test.y, len(federation.sites)),
            strict=True,
        )
    ]
    return clients, test, parts


def write_site(local: Path, name: str, accept: str, train: Any, test: Any) -> None:
    """The data and site.toml of one site."""
    np.savez(local / "train.npz", x=train.x, y=train.y)
    np.savez(local / "test.npz", x=test.x, y=test.y)
    tables = [f'[{part}]\nfile = "{part}.npz"\nx = "x"\ny = "y"\n' for part in ("train", "test")]
    (local / "site.toml").write_text(f'name = "{name}"\naccept = ["{accept}"]\n' + "".join(tables))


def rehearse(folder: Path | None, sites: int, rounds: int, algorithm: str, seed: int) -> int:
    """Provision, start, run, stop, compare; exit code 0 if both end at the same model."""
    federation = declare(sites, rounds, algorithm, seed)
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise CompositeFLError(f"--folder {folder} is not empty")
    root = (folder or Path(tempfile.mkdtemp(prefix="compositefl-"))).resolve()
    began = time.perf_counter()
    try:
        clients, test, parts = spread(federation)
        outcome = _deployed(federation, root, clients, parts)
        simulated = _simulated(federation, clients, test)
        gap = _compare(outcome, simulated)
    finally:
        if folder is None:
            shutil.rmtree(root, ignore_errors=True)
    same = gap <= 1e-5
    print(
        f"largest difference between the two models: {gap:.1e}"
        f"{'' if same else ', above 1e-5'}   ({time.perf_counter() - began:.0f} seconds in all)"
    )
    return 0 if same else 1


def _deployed(federation: Federation, root: Path, clients: Any, parts: list[Any]) -> Path:
    kits = flare.provision(federation, root, "localhost", free_port())
    nodes = {name: kit for name, kit in kits.items() if name != flare.ADMIN}
    for name, train, test in zip(federation.sites, clients, parts, strict=True):
        write_site(kits[name] / "local", name, federation.hash, train, test)
    run = supervise.RunFolder.create(root, "run", federation)
    admin = Admin(kits[flare.ADMIN])
    try:
        flare.start_all(nodes.values())
        _wait_for_sites(federation.sites, admin)
        supervise.submit(admin, run, federation, flare.write_job, print)
        with Watching("run").open() as view:
            write_job = flare.write_job
            return supervise.follow(admin, run, write_job, view.say, show=view.show, poll=0.25)
    finally:
        admin.close()
        flare.stop_all(nodes.values())


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


def _simulated(federation: Federation, clients: Any, test: Any) -> cfl.Result:
    problem = federation.make_model().problem(clients, test=test, seed=federation.seed)
    algorithm = federation.make_algorithm()
    return cfl.minimize(
        problem,
        algorithm.regularizer,
        algorithm,
        rounds=federation.rounds,
        batch_size=federation.batch_size,
        seed=federation.seed,
        eval_every=federation.every,
        eval_gamma=federation.eval_gamma,
        progress=False,
    )


def _compare(outcome: Path, simulated: cfl.Result) -> float:
    """Print both results; the largest difference between the parameters."""
    mine, theirs = pd.read_csv(outcome / "history.csv").iloc[-1], simulated.history.iloc[-1]
    table = Table(title=f"after {int(mine['round'])} rounds")
    for column in ("", "network", "simulation"):
        table.add_column(column, justify="right")
    for name in ("psi", "natural_residual_sq", "accuracy", "zeros"):
        table.add_row(name, f"{mine[name]:.8g}", f"{theirs[name]:.8g}")
    print_table(table)
    model, reference = load_file(outcome / "model.safetensors"), named_arrays(simulated.params)
    return max(float(np.abs(model[name] - reference[name]).max()) for name in reference)


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
