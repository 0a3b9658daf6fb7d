"""Checkpoints: one file with all state of a run, written so that it is never half there."""

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from compositefl.core.errors import CompositeFLError, require_integer, require_nonnegative
from compositefl.core.npz import read_npz
from compositefl.core.types import HistoryRow, PlainValues, PyTree

WORDS = {"regularizers": "regularizer", "runs": "algorithm"}  # what entries of all runs are of one

READ = {"round", "psi", "natural_residual_sq"}  # of every row of a history, where a run goes on


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
        arrays = read_npz(path)
        about = _checked(json.loads(str(arrays.pop("about", "not there"))))
        leaves = [arrays[f"leaf{i}"] for i in range(len(arrays))]
    except KeyError as error:
        raise _refused(path, f"it has no array {error}") from error
    except (ValueError, RecursionError) as error:
        raise _refused(path, str(error).replace(f"{path} ", "it ", 1)) from error
    saved, now = about["fingerprint"], json.loads(json.dumps(fingerprint))
    if differ := {n for n in saved.keys() | now.keys() if saved.get(n) != now.get(n)}:
        raise CompositeFLError(
            f"checkpoint={path} belongs to another run: {_difference(differ, saved, now)}",
            parameter="checkpoint",
            value=path,
        )
    state = jax.tree.unflatten(_structure(path, like, leaves), leaves)
    rest = about["seconds"], about["history"], about["about"]
    return Checkpoint(state, about["round"], *rest)


def require_finite(path: Path, server: PyTree, diverged: np.ndarray) -> None:
    """Refuse a server's state with NaN or infinite numbers where the run has not `diverged`.

    A round that leaves the finite numbers is never kept, so that these were not written by a run.
    States of clients are not asked: they are an algorithm's own, and what it has not met yet may be
    NaN there.
    """
    for leaf in map(np.asarray, jax.tree.leaves(server)):
        if leaf.dtype.kind == "f":
            good = np.isfinite(leaf.reshape(len(leaf), -1)).all(axis=1)
            if not (good | (diverged >= 0)).all():
                raise _refused(path, "its model has numbers that are not finite")


def _checked(about: object) -> PlainValues:
    """What a checkpoint says of itself, if it is what `save` wrote."""
    if not isinstance(about, dict):
        raise CompositeFLError(f"it tells of itself in a {type(about).__name__}, not by names")
    kinds = {"fingerprint": dict, "round": int, "seconds": float, "history": list, "about": dict}
    told: PlainValues = {"about": {}} | about  # not in those of earlier versions
    for name, kind in kinds.items():
        if name not in told:
            raise CompositeFLError(f"its {name} is missing")
        if not isinstance(told[name], (int, float) if kind is float else kind):
            raise CompositeFLError(f"its {name} is a {type(told[name]).__name__}")
    require_integer(minimum=0, round=told["round"])
    require_nonnegative(seconds=told["seconds"])
    for row in told["history"]:
        if not isinstance(row, dict) or not row.keys() >= READ:
            raise CompositeFLError(f"its history has a row without {', '.join(sorted(READ))}")
        if not all(isinstance(value, (int, float)) for value in row.values()):
            raise CompositeFLError("its history has a row with more than numbers")
    return told


def _structure(path: Path, like: PyTree, leaves: list[np.ndarray]) -> PyTree:
    """The tree of the state, if these can be its arrays."""
    wanted, tree = jax.tree.flatten(like)
    if len(leaves) != len(wanted):
        raise _refused(path, f"it has {len(leaves)} arrays of the state, not {len(wanted)}")
    for i, (leaf, there) in enumerate(zip(leaves, map(np.asarray, wanted), strict=True)):
        if (leaf.shape, leaf.dtype.kind) != (there.shape, there.dtype.kind):
            raise _refused(
                path,
                f"leaf{i} is {leaf.dtype} of shape {leaf.shape}, not {there.dtype} of shape "
                f"{there.shape}",
            )
    return tree


def _refused(path: Path, why: str) -> CompositeFLError:
    return CompositeFLError(
        f"checkpoint={path} is not a compositefl checkpoint: {why}",
        parameter="checkpoint",
        value=path,
    )


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
