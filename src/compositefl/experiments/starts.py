"""The starts of trials."""

import jax

from compositefl.core.types import Params
from compositefl.models import Model


def drawn(model: Model, trial: int) -> Params:
    """The start that a trial draws, the same for all methods."""
    return model.init(jax.random.key(trial))
