"""The Hessian of a client's mean loss, for methods that need it, and where it is refused."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax
from jax.flatten_util import ravel_pytree

from compositefl.algorithms.base import Algorithm
from compositefl.core.errors import CompositeFLError
from compositefl.core.symmetric import triangle_size
from compositefl.core.types import Array, Loss, Params
from compositefl.problem import Coupled, External

# Parameters: 32 MB per matrix in float64 and 16 MB per upload, some 10 matrices at work.
LARGEST = 2000
COLUMNS = 64  # of a Hessian by differentiation, at the same time; bounds memory


def check_hessian(algorithm: Algorithm, loss: Loss, parameters: int) -> None:
    """Refuse a loss whose Hessian cannot be had, if the algorithm needs it."""
    if "hessian" not in algorithm.needs:
        return
    name = type(algorithm).__name__
    if parameters > LARGEST:
        up, matrix = (8e-6 * n for n in (triangle_size(parameters), parameters**2))
        raise CompositeFLError(
            f"{name} needs Hessians, here of {parameters:,} parameters ({up:,.0f} MB per upload "
            f"and {matrix:,.0f} MB per matrix in float64); it takes at most {LARGEST:,}. "
            "FedNMap needs gradients alone"
        )
    if isinstance(loss, (Coupled, External)):
        why = "has no second derivatives" if isinstance(loss, External) else "couples its samples"
        raise CompositeFLError(
            f"{name} needs Hessians of a mean over samples, which JAX can differentiate; this loss "
            f"{why}. FedNMap needs gradients alone"
        )


def dense_hessian(function: Callable[[Params], Array], params: Params) -> jax.Array:
    """The Hessian of a function of parameters, in their flat order, by differentiating twice."""
    flat, unravel = ravel_pytree(params)
    gradient = jax.grad(lambda v: function(unravel(v)))
    column = lambda e: jax.jvp(gradient, (flat,), (e,))[1]  # noqa: E731
    H = lax.map(column, jnp.eye(flat.size, dtype=flat.dtype), batch_size=min(flat.size, COLUMNS))
    return (H + H.T) / 2
