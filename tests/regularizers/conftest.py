"""Shared by the tests of the regularisers: float64, and the same hypothesis examples every run."""

import hypothesis
import jax
import pytest

hypothesis.settings.register_profile(
    "regularizers", derandomize=True, deadline=None, max_examples=25, database=None
)


@pytest.fixture(scope="module")
def x64():
    """Double precision for all tests of a module."""
    with jax.enable_x64(True):
        yield
