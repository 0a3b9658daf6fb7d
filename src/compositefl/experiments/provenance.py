"""Where numbers come from: seeds, commit, versions, machine and time of the runs behind a table."""

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypedDict

from compositefl.core.types import PlainValues

EDITION = 2  # of the protocol, see docs/reproduction/settings.md
PACKAGES = ("compositefl", "jax", "jaxlib", "numpy")
HERE = ("commit", "versions", "machine")


class Provenance(TypedDict, total=False):
    """What is known of a table: of all its parts, and in `made` of each."""

    edition: int
    seeds: list[int]
    runs: int
    seconds: float
    commits: list[str]
    versions: list[str]
    machines: list[str]
    made: list[PlainValues]  # the values of HERE, and the seconds of the parts made there


@cache
def here() -> dict[str, str]:
    """This program and this machine, as they were at the first call: a long run's files may change
    under it.
    """
    versions = [f"{name} {importlib.metadata.version(name)}" for name in PACKAGES]
    return {
        "commit": commit(),
        "versions": ", ".join(["Python " + platform.python_version(), *versions]),
        "machine": f"{processor()}, {len(os.sched_getaffinity(0))} cores used",
    }


def commit() -> str:
    """The commit of this program, "unknown" outside a repository; + for changes on top of it."""
    folder = Path(__file__).parent

    def git(*words: str) -> str:
        told = subprocess.run(
            ["git", *words], cwd=folder, capture_output=True, text=True, timeout=20, check=True
        )
        return told.stdout.strip()

    try:
        return git("rev-parse", "--short=10", "HEAD") + ("+" if git("status", "-s", ".") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def together(parts: Iterable[PlainValues]) -> Provenance:
    """What is known of a table, from what is known of its parts; `made` has each of them."""
    parts = list(parts)
    made: dict[tuple[str, ...], dict[str, float]] = {}
    for part in parts:
        if "part" in part:
            where = made.setdefault(tuple(part[key] for key in HERE), {})
            where[part["part"]] = round(part["seconds"], 1)

    def all_of(key: str) -> list[Any]:
        return sorted({part[key] for part in parts if key in part})

    return {
        "edition": EDITION,
        "seeds": all_of("seed"),
        "runs": len(parts),
        # Of the rounded ones, as whoever continues the table finds them.
        "seconds": round(sum(round(part["seconds"], 1) for part in parts), 1),
        "commits": all_of("commit"),
        "versions": all_of("versions"),
        "machines": all_of("machine"),
        "made": [
            dict(zip(HERE, where, strict=True)) | {"parts": them} for where, them in made.items()
        ],
    }


def of_parts(about: Provenance) -> dict[str, PlainValues]:
    """The inverse of `together`: what is known of each part, by its name."""
    return {
        part: {"seconds": seconds} | {key: some[key] for key in HERE}
        for some in about.get("made", ())
        for part, seconds in some["parts"].items()
    }


def read(file: Path) -> Provenance | None:
    """What is known of a table; None for one of the first edition."""
    return json.loads(file.read_text()) if file.exists() else None


def write(file: Path, about: Provenance) -> None:
    """Keep what is known."""
    file.write_text(json.dumps(about, indent=1) + "\n")


def sentences(about: Provenance | None, random_start: bool, folded: bool) -> list[str]:
    """What a page says about its protocol; `folded`: one seed for all trials."""
    if about is None:
        said = ["First edition: seed 0; commit, versions, machine and run time were not recorded."]
        if random_start:
            said.append(
                "All trials share one start and differ in their minibatches alone. It is the point "
                "before the prox for FedNMap and ZA1 and x_0 itself for the others, so that the "
                "methods' first models differ."
            )
        return said
    seeds = about["seeds"]
    drawn = f"seeds {', '.join(map(str, seeds))}" if seeds else "no seeds"
    if folded:
        drawn = f"seed {seeds[0]}, the trials folded into it"
    runs = f"{about['runs']} run{'s' if about['runs'] > 1 else ''}"
    said = [
        f"Second edition: {drawn}; {runs} in {about['seconds'] / 60:.1f} minutes; "
        f"commit {', '.join(about['commits'])}; {'; '.join(about['versions'])}; "
        f"{'; '.join(about['machines'])}."
    ]
    if random_start:
        said.append(
            "Every trial has its own start, drawn with its seed, and in a trial all methods start "
            "at the same model x_0: those that start before a prox start at x_0 + t s, t being the "
            "prox's parameter and s a subgradient of phi at x_0."
        )
    return said
