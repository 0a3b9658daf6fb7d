"""Checkpoints: one file with all state of a run, written so that it is never half there."""

import json
import os
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import HistoryRow, PlainValues, PyTree

WORDS = {"regularizers": "regularizer", "runs": "algorithm"}  # what entries of all runs are of one


class Checkpoint(NamedTuple):
    """The state at a round, the history so far and the run that it belongs to."""

    state: PyTree
    round: int
    seconds: float
    history: list[HistoryRow]
    about: PlainValues = {}  # noqa: RUF012  (a NamedTuple's default; never changed)


def save(path: Path, fingerprint: PlainValues, checkpoint: Checkpoint) -> None:
    """Write to a temporary file, then rename: a crash leaves the old checkpoint intact."""
    about = {
        "fingerprint": fingerprint,
        "round": checkpoint.round,
        "seconds": checkpoint.seconds,
        "history": checkpoint.history,
        "about": checkpoint.about,
    }
    arrays = {f"leaf{i}": np.asarray(a) for i, a in enumerate(jax.tree.leaves(checkpoint.state))}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    with temporary.open("wb") as file:
        np.savez(file, about=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load(path: Path, fingerprint: PlainValues, like: PyTree) -> Checkpoint:
    """Read a checkpoint of the run with this fingerprint; `like` gives the state's structure."""
    try:
        with np.load(path) as file:
            about = json.loads(str(file["about"]))
            leaves = [file[f"leaf{i}"] for i in range(len(file.files) - 1)]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise CompositeFLError(
            f"checkpoint={path} is not a compositefl checkpoint: {error}",
            parameter="checkpoint",
            value=path,
        ) from error
    saved, now = about["fingerprint"], json.loads(json.dumps(fingerprint))
    if differ := {n for n in saved.keys() | now.keys() if saved.get(n) != now.get(n)}:
        raise CompositeFLError(
            f"checkpoint={path} belongs to another run: {_difference(differ, saved, now)}",
            parameter="checkpoint",
            value=path,
        )
    state = jax.tree.unflatten(jax.tree.structure(like), leaves)
    rest = about["seconds"], about["history"], about.get("about", {})
    return Checkpoint(state, about["round"], *rest)


def _difference(names: set[str], there: PlainValues, here: PlainValues) -> str:
    """The first of the entries that differ in words; the number of trials changes others too."""
    if "trials" in names:
        return f"trials is {len(there.get('trials', []))} there and {len(here['trials'])} here"
    if names == {"data"}:
        return "the data or the start are others"
    name = min(names - {"data"})
    a, b = (_one(of.get(name)) for of in (there, here))
    return f"{WORDS.get(name, name)} is {a} there and {b} here"


def _one(value: Any) -> Any:
    """What is the same in all runs, once."""
    alike = isinstance(value, list) and all(v == value[0] for v in value)
    return value[0] if alike and value else value
