"""scikit-learn's bundled 8x8 handwritten digits: no download."""

import numpy as np

from compositefl.data.samples import Dataset, Samples


def load() -> Dataset:
    """x of shape (N, 64) in [0, 1]; a stratified 80/20 split that is always the same."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    x, y = load_digits(return_X_y=True)
    parts = train_test_split(
        (x / 16).astype(np.float32), y.astype(np.int32), test_size=0.2, stratify=y, random_state=0
    )
    train_x, test_x, train_y, test_y = parts
    return Dataset("digits", Samples(train_x, train_y), Samples(test_x, test_y), 10)
