"""Zhou et al. (2025): what the tables of costs share."""

import pandas as pd

NEAR = 1.5  # a ratio agrees with the paper's if neither exceeds the other by more than this factor


def close(measured: float, paper: float) -> bool:
    """Whether a measured ratio agrees with the paper's."""
    return 1 / NEAR <= measured / paper <= NEAR


def by_how(table: pd.DataFrame) -> pd.DataFrame:
    """The table with the column "how"; that of the first edition has fused proxes alone."""
    return table if "how" in table else table.assign(how="fused")
