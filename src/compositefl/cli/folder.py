"""The folder that a command writes: checked before the run, filled in one go after it."""

import json
import os
import shutil
from collections.abc import Callable, Collection
from pathlib import Path

from compositefl.core.errors import CompositeFLError

MARK = "compositefl"  # the key of config.json that tells a result from other folders
OURS = (
    "history.csv",
    "plot.png",
    "report.html",
    "config.json",
    "model*.safetensors",
    "coefficients.csv",
    "path.csv",
    "model.json",
)


def check_folder(
    out: Path, overwrite: bool, state: Collection[Path] = (), resume: bool = False
) -> None:
    """Refuse a place where the result cannot or should not go.

    state: checkpoints, our own. resume: an earlier result there is of the run that goes on.
    """
    if out.exists() and not out.is_dir():
        raise CompositeFLError(f"--out {out} is a file; it must be a folder")
    check_writable("--out", out)
    if not out.is_dir() or overwrite:
        return
    if is_result(out):
        if resume:
            return
        raise CompositeFLError(
            f"--out {out} holds an earlier result; add --overwrite to replace it, or name another"
        )
    known = {path.resolve() for path in state}
    others = sorted(p.name for p in out.iterdir() if p.resolve() not in known)
    if others:
        raise CompositeFLError(
            f"--out {out} holds other files ({others[0]}); add --overwrite to write there"
        )


def check_writable(option: str, path: Path) -> None:
    """Refuse a path below a file, or below a folder that may not be written."""
    parent = path.absolute()
    while not parent.exists():
        parent = parent.parent
    if parent != path.absolute() and not parent.is_dir():
        raise CompositeFLError(f"{option} {path}: {parent} is a file, not a folder")
    if not os.access(parent, os.W_OK):
        raise CompositeFLError(f"{option} {path}: no permission to write in {parent}")


def is_result(folder: Path) -> bool:
    """Whether the folder holds an earlier result."""
    try:
        return MARK in json.loads((folder / "config.json").read_text())
    except (OSError, ValueError):
        return False


def fill_folder(out: Path, write: Callable[[Path], None]) -> list[str]:
    """Let `write` fill a hidden folder beside `out`, then move it into place; returns the names.

    A crash leaves `out` as it was. Of an earlier result the files that are not written again
    go; files that are not ours stay.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    draft = out.with_name(f".{out.name}.{os.getpid()}.part")
    draft.mkdir()
    try:
        write(draft)
        names = sorted(path.name for path in draft.iterdir())
        if out.is_dir():
            _replace_files(draft, out, names)
        else:
            draft.rename(out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return names


def _replace_files(draft: Path, out: Path, names: list[str]) -> None:
    if is_result(out):
        for pattern in OURS:
            for old in out.glob(pattern):
                if old.name not in names:
                    old.unlink()
    for name in sorted(names, key=lambda n: n == "config.json"):  # the mark comes last
        (draft / name).replace(out / name)
