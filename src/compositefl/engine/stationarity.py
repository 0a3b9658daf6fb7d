"""How stationary a model is: the columns of the history that every engine measures alike."""

from typing import Any

from compositefl.core.vector import Vector, squared_norm
from compositefl.engine import metrics
from compositefl.regularizers.base import Regularizer

METRICS = (  # columns of the history, in this order
    "psi",
    "loss",
    "natural_residual_sq",
    "normal_map_sq",
    "zeros",
    "hoyer",
    "accuracy",
)


def prox_point(phi: Regularizer, gamma: Any, x: Vector, gradient: Vector) -> Vector:
    """x_z = prox_gamma(z) of z = x - gamma grad f(x), where the normal map is measured.

    The normal map needs a pre-prox point, and this one exists for every method.
    """
    return Vector(phi.prox((x - gamma * gradient).tree, gamma))


def stationarity(
    phi: Regularizer, gamma: Any, x: Vector, value: Any, gradient: Vector, gradient_z: Vector
) -> dict[str, Any]:
    """The metrics of a model x, from f(x) and the gradients at x and at `prox_point`."""
    z, x_z = x - gamma * gradient, prox_point(phi, gamma, x, gradient)
    residual = metrics.natural_residual(phi, gamma, x, gradient)
    return {
        "psi": value + phi.value(x.tree),
        "loss": value,
        "natural_residual_sq": squared_norm(residual),
        "normal_map_sq": squared_norm(metrics.normal_map(gamma, z, x_z, gradient_z)),
        "zeros": metrics.zero_fraction(x.tree),
        "hoyer": metrics.hoyer_sparsity(x.tree),
    }
