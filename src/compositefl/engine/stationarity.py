"""How stationary a model is: the columns of the history that every engine measures alike."""

from compositefl.core.types import Array, Number
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


def prox_point(phi: Regularizer, gamma: Number, x: Vector, gradient: Vector) -> Vector:
    """x_z = prox_gamma(z) of z = x - gamma grad f(x), where the normal map is measured.

    For methods without a z of their own: this pre-prox point exists for all of them.
    """
    return Vector(phi.prox((x - gamma * gradient).tree, gamma))


def stationarity(
    phi: Regularizer,
    gamma: Number,
    x: Vector,
    value: Array,
    gradient: Vector,
    own: tuple[Vector, Number] | None,
    gradient_z: Vector | None,
) -> dict[str, Array]:
    """The metrics of a model x, from f(x) and its gradient.

    own: the method's `normal_map_point` (z, its gamma), whose prox is x; the normal map is then
    F_nor(z), without another gradient. Without it gradient_z is the gradient at `prox_point`.
    """
    residual = metrics.natural_residual(phi, gamma, x, gradient)
    if own is not None:
        z, its_gamma = own
        normal = metrics.normal_map(its_gamma, z, x, gradient)
    else:
        assert gradient_z is not None
        z, x_z = x - gamma * gradient, prox_point(phi, gamma, x, gradient)
        normal = metrics.normal_map(gamma, z, x_z, gradient_z)
    return {
        "psi": value + phi.value(x.tree),
        "loss": value,
        "natural_residual_sq": squared_norm(residual),
        "normal_map_sq": squared_norm(normal),
        "zeros": metrics.zero_fraction(x.tree),
        "hoyer": metrics.hoyer_sparsity(x.tree),
    }
