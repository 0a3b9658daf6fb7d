"""What a run hands back."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from safetensors.numpy import save as safetensors

from compositefl.core.trees import named_leaves
from compositefl.core.types import Params


@dataclass(frozen=True)
class Result:
    """The outcome of `minimize`. With trials > 1 all arrays have the trial as leading axis."""

    params: Any  # the post-prox model
    history: pd.DataFrame  # one row an evaluation and trial
    server: Any  # the server's final state
    clients: Any  # the clients' private states, the client as leading axis (after the trial)
    stopped: str  # "rounds", "tolerance", "interrupted" or "diverged"
    rounds: int  # rounds run
    diverged: list[int]  # of each trial the round that left the finite numbers, 0 for none
    config: dict[str, Any] = field(default_factory=dict)  # what was run, as plain values

    def __repr__(self) -> str:
        last = self.history.iloc[-1]
        return (
            f"Result({self.rounds} rounds, stopped: {self.stopped}, psi {last.psi:.6g}, "
            f"natural residual^2 {last.natural_residual_sq:.3g}, {last.zeros:.1%} zeros)"
        )

    def save(self, path: str | Path) -> None:
        """Write history.csv, model.safetensors and config.json into the folder `path`."""
        folder = Path(path)
        folder.mkdir(parents=True, exist_ok=True)
        self.history.to_csv(folder / "history.csv", index=False)
        # Written as bytes: safetensors' own file writer makes a file that only its owner can read.
        (folder / "model.safetensors").write_bytes(safetensors(named_arrays(self.params)))
        summary = {**self.config, "rounds_run": self.rounds, "stopped": self.stopped}
        (folder / "config.json").write_text(json.dumps(summary, indent=2) + "\n")


def named_arrays(params: Params) -> dict[str, np.ndarray]:
    """The arrays of a model under the names that files give them."""
    return {name or "params": np.ascontiguousarray(leaf) for name, leaf in named_leaves(params)}
