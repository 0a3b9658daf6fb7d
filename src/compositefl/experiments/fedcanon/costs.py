"""Zhou et al. (2025): what the tables of costs share."""

NEAR = 1.5  # a ratio agrees with the paper's if neither exceeds the other by more than this factor


def close(measured: float, paper: float) -> bool:
    """Whether a measured ratio agrees with the paper's."""
    return 1 / NEAR <= measured / paper <= NEAR
