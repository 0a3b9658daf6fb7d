"""Losses that are not a JAX function of single samples."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from compositefl.core.types import Array, Batch, Params


@dataclass(frozen=True)
class Coupled:
    """A loss or accuracy whose samples depend on each other within a batch, as with batch norm.

    It is no mean over samples: full data are evaluated in batches of `size` samples.
    """

    function: Callable[[Params, Batch], Array]
    size: int

    def __call__(self, params: Params, batch: Batch) -> Array:
        """The function's value on the batch."""
        return self.function(params, batch)


def uncoupled(loss: Any) -> Any:
    """The function itself, whether its samples are coupled or not."""
    return loss.function if isinstance(loss, Coupled) else loss


class External:
    """A loss or accuracy that is computed outside JAX, such as a PyTorch module's.

    Parameters and batches are numpy arrays. Its rounds run in a Python loop.
    """

    def check(self, batch: Batch) -> None:
        """Refuse what will not work, given two samples."""

    def __call__(self, params: Params, batch: Batch) -> Array:
        """The mean over the batch."""
        raise NotImplementedError

    def value_and_gradient(self, params: Params, batch: Batch) -> tuple[Array, Params]:
        """The mean over the batch and its gradient, as numpy arrays."""
        raise NotImplementedError

    def side_by_side(self, params: Params, batch: Batch) -> str:  # noqa: ARG002
        """Why several clients cannot be computed at once, given a start and samples; or nothing."""
        return "its loss computes one client at a time"

    def values_and_gradients(self, params: Params, batch: Batch) -> tuple[Array, Params]:
        """The means of several clients' batches and their gradients, the client in front."""
        raise NotImplementedError
