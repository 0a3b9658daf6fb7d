"""Where things are: entries of a Hessian among all parameters, and a matrix in its triangle."""

from functools import lru_cache

import numpy as np

from compositefl.glm.design import pair_places

Array = np.ndarray


def hessian_index(columns: Array, size: int, k: int, intercept: bool, scale: bool) -> Array:
    """The entries that a Hessian of these columns has: intercepts, features by outputs, scale."""
    first = np.arange(k) if intercept else np.empty(0, int)
    features = (k + columns[:, None] * k + np.arange(k)).ravel()
    last = [size - 1] if scale else []
    return np.concatenate([first, features, last]).astype(int)


def symmetric(triangle: Array, size: int) -> Array:
    """The matrix with this lower triangle, row by row."""
    return triangle[_places(size)]


@lru_cache(maxsize=4)
def _places(size: int) -> Array:
    return pair_places(np.arange(size))
