"""Folds of cross-validation, drawn at each site from its own key."""

import hashlib

import numpy as np


def site_generator(seed: int, site: str) -> np.random.Generator:
    """Random numbers that depend on the seed and on the name of the site alone."""
    word = hashlib.sha256(site.encode()).digest()[:8]
    return np.random.default_rng([seed, int.from_bytes(word, "little")])


def draw_folds(strata: np.ndarray, folds: int, seed: int, site: str) -> np.ndarray:
    """1, ..., folds for every sample, as equal in number as can be within each stratum.

    Each stratum starts at a random fold, so that small sites do not fill the first folds only.
    """
    rng = site_generator(seed, site)
    fold = np.empty(len(strata), int)
    start = int(rng.integers(folds))
    for level in np.unique(strata):
        rows = rng.permutation(np.flatnonzero(strata == level))
        fold[rows] = (start + np.arange(len(rows))) % folds + 1
        start += len(rows)
    return fold
