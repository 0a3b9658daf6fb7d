"""The option --categories of `fit` and `run`: which columns, with which values at all sites."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from compositefl.cli.wording import about
from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.data import tables
from compositefl.data.categories import values_of

if TYPE_CHECKING:
    import pandas as pd


def chosen_categories(
    given: Sequence[str], frames: Mapping[str, "pd.DataFrame"], taken: Mapping[str, str]
) -> dict[str, list[str]]:
    """The values of the columns in ["sex", "ward=b"], the one that others are compared with first.

    taken: columns that another option names, with that option.
    """
    found = {}
    for text in given:
        name, _, reference = text.partition("=")
        if name in taken:
            raise CompositeFLError(f"--categories {name} is named by --{taken[name]} already")
        with about("--categories", name):
            for where, frame in frames.items():
                tables.require_column(frame, name, file=where)
            values = values_of(frames, name)
        if reference and reference not in values:
            raise CompositeFLError(
                f"--categories {text}: {unknown_name(f'value of {name}', reference, values)}"
            )
        first = [reference] if reference else []
        found[name] = first + [value for value in values if value not in first]
    return found
