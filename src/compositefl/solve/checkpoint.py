"""Checkpoints: one file with all state of a run, written so that it is never half there."""

import json
import os
import zipfile
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import HistoryRow, PlainValues, PyTree


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
    for name in sorted(saved.keys() | now.keys()):
        if saved.get(name) != now.get(name):
            raise CompositeFLError(
                f"checkpoint={path} belongs to another run: {name} is {saved.get(name)} there "
                f"and {now.get(name)} here",
                parameter="checkpoint",
                value=path,
            )
    state = jax.tree.unflatten(jax.tree.structure(like), leaves)
    rest = about["seconds"], about["history"], about.get("about", {})
    return Checkpoint(state, about["round"], *rest)
