"""The files in the folder of a result, read back; a damaged one is named in one line."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import PlainValues

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("round", "trial", "psi", "natural_residual_sq", "zeros")  # of every history
WORDS = "algorithm"  # the one column of words, where several ran


def read_config(path: Path) -> PlainValues:
    """config.json."""
    try:
        content = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:  # no JSON, or no text at all
        raise _damaged(path, error) from None
    if not isinstance(content, dict):
        raise _damaged(path, f"it is a {type(content).__name__}, not entries by names")
    return content


def read_history(path: Path) -> "pd.DataFrame":
    """history.csv; of a run without an evaluation it has no column."""
    import pandas as pd

    if not path.stat().st_size:
        raise _damaged(path, "it has 0 bytes")
    try:
        history = pd.read_csv(path)
    except pd.errors.EmptyDataError:
        return pd.DataFrame()
    except ValueError as error:  # no table, or no text at all
        raise _damaged(path, error) from None
    for name in dict.fromkeys((*COLUMNS, *history.columns)):
        if name == WORDS:
            continue
        if name not in history or not pd.api.types.is_numeric_dtype(history[name]):
            raise _damaged(path, f"it has no column '{name}' of numbers")
    return history


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a model.safetensors by their names."""
    try:
        return load(path.read_bytes())
    except (SafetensorError, ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, why: object) -> CompositeFLError:
    return CompositeFLError(f"{path.parent}: {path.name} is damaged: {' '.join(str(why).split())}")
