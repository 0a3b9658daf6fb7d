"""ZA1 with a constant prox parameter in its local steps, where the method's grows, (t+1) eta."""

import jax.numpy as jnp

from compositefl.algorithms import ZA1
from compositefl.core.component import component
from compositefl.core.types import Number
from compositefl.core.vector import Vector


@component
class ConstantProx(ZA1):
    """ZA1 whose clients take prox_eta after every local step, where the method takes prox_{l eta}.

    Everything else is the method's own. With one local step there is no difference.
    """

    def query(self, local: tuple[Vector, ...], l: Number) -> Vector:  # type: ignore[override]
        """The point of the l-th gradient; the first is P itself."""
        return self.prox(local[0], jnp.where(l > 0, self.local_lr, 0.0))
