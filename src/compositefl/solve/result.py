"""What a run hands back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np
from safetensors.numpy import save as safetensors

from compositefl.core.errors import CompositeFLError
from compositefl.core.trees import named_leaves
from compositefl.core.types import (
    ClientState,
    HistoryRow,
    Loss,
    Params,
    PlainValues,
    ServerState,
)
from compositefl.report.result_files import read_arrays, read_config, read_history
from compositefl.solve.ending import Ending, columns, how_it_ended

if TYPE_CHECKING:
    import pandas as pd

NUMBERS = ("local_steps", "local_lr", "server_lr", "gamma")  # columns where they set themselves
BARE = "params"  # the name in files of a model that is one array and not a tree


class _Table:
    """A field that takes rows and gives a table, made when it is first asked for."""

    def __get__(self, owner: "Result | None", kind: type | None = None) -> "pd.DataFrame | _Table":
        if owner is None:
            return self
        value = owner.__dict__["history"]
        if isinstance(value, list):
            import pandas as pd  # here: half as long as JAX to load

            value = owner.__dict__["history"] = pd.DataFrame(value)
        return value

    def __set__(self, owner: "Result", value: "pd.DataFrame | list[HistoryRow]") -> None:
        owner.__dict__["history"] = value


@dataclass(frozen=True)
class Result:
    """The outcome of `minimize`. With trials > 1 all arrays have the trial as leading axis."""

    params: Params  # the post-prox model
    history: "pd.DataFrame"  # one row per evaluation and trial
    server: ServerState  # the server's final state
    # The clients' private states, the client as leading axis (after the trial); with states="disk"
    # a sequence that reads them (a list of one per trial).
    clients: ClientState
    stopped: str  # "rounds", "tolerance", "interrupted" or "diverged"
    rounds: int  # rounds run
    diverged: list[int]  # per trial the round that left the finite numbers, from 1; 0 for none
    config: PlainValues = field(default_factory=dict)  # what was run
    loss: Loss | None = None  # of the problem, it knows the network; None for one from a folder

    def __repr__(self) -> str:
        return f"Result({self.summary()})"

    def summary(self) -> str:
        """One sentence: how the run ended, the objective and zeros, numbers that set themselves."""
        table = columns(self.__dict__["history"])
        if not len(table.get("psi", ())):
            return self.ending.sentence
        psi, zeros = table["psi"][-1], table["zeros"][-1]
        found = f"; {self.numbers}" if self.numbers else ""
        return f"{self.ending.sentence}; psi {psi:.6g}, {zeros:.1%} zeros{found}"

    @property
    def numbers(self) -> str:
        """In words, what numbers that set themselves were at the end (of the last trial), or ""."""
        table = columns(self.__dict__["history"])
        there = [f"{name}={table[name][-1]:.3g}" for name in NUMBERS if name in table]
        return "numbers set to " + ", ".join(there) if there else ""

    @cached_property
    def ending(self) -> Ending:
        """How the run ended, read from the history; of several trials the worst."""
        return how_it_ended(
            self.__dict__["history"],
            self.stopped,
            tolerance=self.config.get("tolerance"),
            noise=self.config.get("noise", ()),
            diverged=self.diverged,
            scales=self.config.get("scales", ""),
        )

    @property
    def converged(self) -> bool:
        """The natural residual is at most the tolerance, or without one a thousandth of its start.

        In every trial, and never with psi above its start or sinking without end. Features of very
        different scale ask for more, see `solve.ending`.
        """
        return self.ending.converged

    @property
    def ended_badly(self) -> bool:
        """A trial diverged, or ended with psi above its start or not finite."""
        return any(self.diverged) or (len(self.__dict__["history"]) > 0 and self.ending.bad)

    def save(self, path: str | Path) -> None:
        """Write history.csv, model.safetensors and config.json into the folder `path`."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.history.to_csv(folder / "history.csv", index=False)
        # Written as bytes: safetensors' own file writer makes a file that only its owner can read.
        (folder / "model.safetensors").write_bytes(safetensors(named_arrays(self.params)))
        (folder / "config.json").write_text(json.dumps(self.about(), indent=2) + "\n")

    def about(self) -> PlainValues:
        """What was run and how it ended, as plain values: config.json."""
        return {
            **self.config,
            "rounds_run": self.rounds,
            "stopped": self.stopped,
            "diverged": self.diverged,
            "converged": self.converged,
            "ended_badly": self.ended_badly,
            "summary": self.summary(),
        }

    def report(self, path: str | Path, title: str = "") -> None:
        """Write a page about the run into the HTML file `path`: curves, zeros, how it ended.

        It opens in a browser without a network. Needs the extra "report".
        """
        label = str(self.config.get("algorithm", "run")).partition("(")[0]
        from compositefl.report import page  # here: they load pandas
        from compositefl.report.overview import Shown, run_sections

        shown = Shown(
            label=label,
            history=self.history,
            ending=self.summary(),
            config=self.config,
            arrays=named_arrays(self.params),
            trials=self.config.get("trials", 1),
        )
        page.write(path, title or label, run_sections([shown]))

    @classmethod
    def load(cls, path: str | Path, like: Params = None) -> "Result":
        """What `save` or `compositefl run --out` wrote; server and clients, not saved, are None.

        like: a model of the same structure, such as the problem's params. Without it the model
        comes as nested dicts of arrays (of a list entry 0 is under "0"), or as one array.
        """
        folder = Path(path)
        for name in ("history.csv", "config.json", "model.safetensors"):
            if not (folder / name).is_file():
                raise CompositeFLError(f"{folder} has no {name}: no folder of one run's result")
        arrays = read_arrays(folder / "model.safetensors")
        config = _of_one_run(read_config(folder / "config.json"), folder)
        for said in ("converged", "ended_badly", "summary"):  # follows from the rest
            config.pop(said, None)
        return cls(
            params=_nested(arrays, folder) if like is None else _shaped_like(like, arrays),
            history=read_history(folder / "history.csv"),
            server=None,
            clients=None,
            rounds=config.pop("rounds_run"),
            stopped=config.pop("stopped"),
            diverged=config.pop("diverged", []),
            config=config,
        )


Result.history = _Table()  # after the fact: it is no default


def _of_one_run(config: PlainValues, folder: Path) -> PlainValues:
    """The entries of config.json about the run; the command line's has its options beside it."""
    runs = config.get("runs", {"": config})
    only = next(iter(runs.values())) if isinstance(runs, dict) and len(runs) == 1 else None
    # Older files lack it.
    about: PlainValues = {"diverged": []} | only if isinstance(only, dict) else {}
    rounds = about.get("rounds_run")
    there = {
        "rounds_run": type(rounds) is int and rounds >= 0,
        "stopped": isinstance(about.get("stopped"), str),
        "diverged": isinstance(about.get("diverged"), list),
    }
    for name, good in there.items():
        if not good:
            raise CompositeFLError(
                f"{folder}: config.json is damaged: it has no {name}, or not as one run says it"
            )
    tolerance = about.get("tolerance")
    for name, given in (
        ("diverged", about["diverged"]),
        ("tolerance", [] if tolerance is None else [tolerance]),
    ):
        if not all(isinstance(number, int | float) for number in given):
            raise CompositeFLError(f"{folder}: config.json is damaged: {name} is no number")
    return about


def named_arrays(params: Params) -> dict[str, np.ndarray]:
    """The arrays of a model under the names that files give them."""
    # np.ascontiguousarray would give a single number an axis.
    return {name or BARE: np.asarray(leaf, order="C") for name, leaf in named_leaves(params)}


def _nested(arrays: Mapping[str, np.ndarray], folder: Path) -> Params:
    """The tree of nested dicts that the names speak of."""
    if set(arrays) == {BARE}:
        return arrays[BARE]
    tree: Params = {}
    for name, array in arrays.items():
        *folders, last = name.split("/")
        place = tree
        for part in folders:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                break
        if not isinstance(place, dict) or last in place:
            raise CompositeFLError(
                f"{folder}: model.safetensors is damaged: '{name}' is an array and in another"
            )
        place[last] = array
    return tree


def _shaped_like(like: Params, arrays: Mapping[str, np.ndarray]) -> Params:
    """The arrays in the tree of `like`."""
    names = list(named_arrays(like))
    if set(names) != set(arrays):
        differ = ", ".join(sorted(set(names) ^ set(arrays)))
        raise CompositeFLError(f"like and the saved model differ in {differ}")
    return jax.tree.unflatten(jax.tree.structure(like), [arrays[name] for name in names])
