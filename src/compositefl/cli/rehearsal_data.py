"""What `compositefl deploy try` runs on: digits, or invented data for a federation of one's own."""

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

import compositefl as cfl
from compositefl.cli.kits import existing
from compositefl.cli.wording import about
from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.data import Samples
from compositefl.deployment import Federation
from compositefl.deployment.entries import DataTable

Part: TypeAlias = Samples | pd.DataFrame  # a site's training or test set
SITES, ROUNDS = 4, 30  # of a rehearsal on digits
LARGEST = 360  # test samples of digits, of which every site has one at least
SAMPLES, TESTS = 200, 40  # of a site with invented data
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
NUMBERS: dict[str, float | str] = {
    "local_steps": 10,
    "local_lr": 0.1,
    "server_lr": 1.0,
    "gamma": 4.0,
    "composite": "server-prox",
}


def declare(sites: int | None, rounds: int | None, algorithm: str, seed: int) -> Federation:
    """The federation: digits, a small network, an elastic net; checked before a node is made."""
    _check_counts(sites, rounds)
    sites, rounds = SITES if sites is None else sites, ROUNDS if rounds is None else rounds
    if sites > LARGEST:
        raise CompositeFLError(f"--sites {sites} must be at most {LARGEST} on digits")
    if algorithm not in cfl.algorithms.ALGORITHMS:
        with about("--algorithm", algorithm):
            raise unknown_name("algorithm", algorithm, cfl.algorithms.ALGORITHMS)
    cls: Any = cfl.algorithms.ALGORITHMS[algorithm]
    known = {f.name for f in dataclasses.fields(cls)}
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
    return Federation.parse(text).check()


def _check_counts(sites: int | None, rounds: int | None) -> None:
    for option, value in (("--sites", sites), ("--rounds", rounds)):
        if value is not None and value < 1:
            raise CompositeFLError(f"{option} {value} must be a whole number >= 1")


def digits(sites: int) -> tuple[list[Samples], list[Samples | None]]:
    """(training sets, test sets) of the sites: digits, sorted by label, as many for each."""
    data = cfl.data.load("digits")
    test = data.test
    assert test is not None
    clients = list(cfl.partition.by_label(data.train, sites))
    size, tests = min(len(c.y) for c in clients), len(test.y) // sites
    cut = [Samples(c.x[:size], c.y[:size]) for c in clients]
    return cut, [
        Samples(test.x[i * tests :][:tests], test.y[i * tests :][:tests]) for i in range(sites)
    ]


def own(path: Path, sites: int | None, rounds: int | None, modules: Sequence[str]) -> Federation:
    """The federation of a file, with another number of sites and rounds where given."""
    _check_counts(sites, rounds)
    text = Federation.read(existing(path)).text
    if sites is not None:
        names = json.dumps([f"site-{i + 1}" for i in range(sites)])
        text = re.sub(r"(?m)^sites\s*=\s*\[[^\]]*\]", f"sites = {names}", text, count=1)
        text = re.sub(r"(?m)^minimum_sites\s*=.*$", "", text, count=1)
    if rounds is not None:
        text = re.sub(r"(?m)^rounds\s*=.*$", f"rounds = {rounds}", text, count=1)
    federation = Federation.parse(text).trusting(modules).check()
    if sites not in (None, len(federation.sites)) or rounds not in (None, federation.rounds):
        raise CompositeFLError(f"{path}: --sites and --rounds cannot be put in; edit a copy of it")
    return federation


def invented(federation: Federation) -> tuple[list[Samples], list[Samples]]:
    """(training sets, test sets) of random numbers with a rule in them, as the model wants them."""
    data, model = federation.data, federation.make_model()
    shape = (len(data.features),) if data else tuple(federation.model.get("input_shape", ()))
    if not shape:
        raise CompositeFLError(
            "data can be invented where the federation has [data] or the model input_shape only"
        )
    rng = np.random.default_rng(federation.seed)
    outputs = model.classes or 1
    rule = rng.normal(size=(int(np.prod(shape)), outputs))
    made: tuple[list[Samples], list[Samples]] = ([], [])
    for _ in federation.sites:
        for part, size in zip(made, (max(SAMPLES, federation.batch_size or 0), TESTS), strict=True):
            x = rng.normal(size=(size, *shape))
            if data:
                for i, name in enumerate(data.features):
                    kind = data.kinds.get(name, "number")
                    x[:, i] = {"number": x[:, i], "whole": np.round(3 * x[:, i])}.get(
                        kind, x[:, i] > 0
                    )
            scores = x.reshape(size, -1) @ rule
            y = scores.argmax(axis=1).astype(np.int32) if model.classes else scores[:, 0]
            part.append(Samples(x, y))
    return made


def write_site(
    local: Path,
    name: str,
    federation: Federation,
    train: Part,
    test: Part | None,
    modules: Sequence[str] = (),
) -> None:
    """The data and site.toml of one site."""
    lines = [f'name = "{name}"', f'accept = ["{federation.hash}"]']
    lines.append(f"modules = {json.dumps(list(modules))}")
    for part, samples in (("train", train), ("test", test)):
        if samples is None:
            continue
        table = samples
        if isinstance(samples, Samples) and federation.data:
            table = _named(samples, federation.data)
        if isinstance(table, pd.DataFrame):
            table.to_csv(local / f"{part}.csv", index=False)
            lines += [f"[{part}]", f'file = "{part}.csv"']
        else:
            np.savez(local / f"{part}.npz", x=table.x, y=table.y)
            lines += [f"[{part}]", f'file = "{part}.npz"', 'x = "x"', 'y = "y"']
    (local / "site.toml").write_text("\n".join(lines) + "\n")


def _named(samples: Samples, data: DataTable) -> pd.DataFrame:
    """Samples as a table with the columns that the federation names."""
    table = pd.DataFrame(samples.x, columns=list(data.features))
    table[data.target] = [data.labels[i] for i in samples.y] if data.labels else samples.y
    return table
