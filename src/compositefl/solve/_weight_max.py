"""The weight from which on a regulariser keeps all that it penalises at zero."""

import warnings
from collections.abc import Callable
from functools import partial

import jax
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.trees import weighted_mean
from compositefl.core.types import Array, Batch, Params, PyTree
from compositefl.core.vector import Vector
from compositefl.engine.eager import full_mean, mean_over_parts
from compositefl.engine.samples import gather
from compositefl.problem import Coupled, External, Problem
from compositefl.regularizers.base import Regularizer
from compositefl.solve.inputs import as_regularizer, checked_problem, require_components
from compositefl.solve.options import Options
from compositefl.theory.probe import Probe

LARGEST = 1e12  # a weight beyond all that is sought
PROBE = 1e4  # size of the entries that show what such a weight sets to zero
DIGITS = 1e-7  # relative precision of the result
EXACT = 1e-10  # residual of the free parameters, relative to the gradient
STEPS = 5000  # of the proximal gradient method for them

# f and its gradient, as NumPy's arrays: every operation of JAX would be compiled for each shape
Objective = Callable[[Vector], tuple[Array, Vector]]


def weight_max(
    problem: Problem,
    regularizer: Regularizer | str,
    field: str = "weight",
    *,
    weights: str = "uniform",
) -> float:
    """The smallest weight at which all that the regulariser penalises is zero.

    Let P be the entries that a large enough weight sets to zero and U the others, such as an
    intercept to which ByName gives Zero. With x_P = 0 and x_U a minimiser of f + phi over U,

        x is stationary  if and only if  prox_t(x - t grad f(x))_P = 0    (t < 1/rho).

    The free x_U do not depend on the weight: they are found first, then the weight by bisection
    over the regulariser's number `field`, to six digits from above. Without free entries x = 0.

    regularizer: phi, or its name and numbers ("l1:1"). Its weight counts only if an array: as
        factors.
    field: as in `sweep`, without the prefix.
    weights: of the clients in f, as in `minimize`.
    """
    problem, regularizer = checked_problem(problem), as_regularizer(regularizer)
    require_components(regularizer)
    shares = Options(rounds=1, weights=weights).client_weights(problem)
    regularizer.check_tree(problem.params)
    with jax.enable_x64(True):
        penalised = _penalised(regularizer, field, problem.start("float64"))
        objective = _objective(problem, shares)
        start = Vector(problem.start("float64")).map(lambda a, p: np.where(p, 0, a), penalised)
        x, gradient = _minimise_free(objective, _at(regularizer, field, 0.0), start, penalised)

        def is_zero(weight: float) -> bool:
            phi = _at(regularizer, field, weight)
            t = _prox_parameter(phi)
            point = _prox(phi, x - t * gradient, t)
            return not _any(point.map(lambda a, p: (a != 0) & p, penalised))

        return _bisect(is_zero, f"no {field} of {regularizer!r} makes the zero model stationary")


def _at(regularizer: Regularizer, field: str, value: float) -> Regularizer:
    return regularizer.with_fields({field: value})


def _prox_parameter(phi: Regularizer) -> float:
    return min(1.0, 0.5 * float(phi.max_prox))


def _prox(phi: Regularizer, z: Vector, t: float) -> Vector:
    return Vector(jax.device_get(phi.prox(z.tree, t)))


def _any(tree: PyTree) -> bool:
    return any(bool(np.any(leaf)) for leaf in jax.tree.leaves(tree))


def _penalised(regularizer: Regularizer, field: str, params: Params) -> Vector:
    """Where a large weight makes the prox of large entries zero, and weight 0 does not."""
    rng = np.random.default_rng(0)
    large = _at(regularizer, field, LARGEST)
    t = _prox_parameter(large)
    z = Vector(params).map(lambda a: t * PROBE * rng.uniform(0.5, 1, a.shape))
    with_it, without = (_prox(phi, z, t) for phi in (large, _at(regularizer, field, 0.0)))
    penalised = with_it.map(lambda a, b: (a == 0) & (b != 0), without)
    if not _any(penalised):
        raise CompositeFLError(f"no {field} of {regularizer!r} makes the zero model stationary")
    return penalised


def _objective(problem: Problem, shares: np.ndarray) -> Objective:
    """f with these weights of the clients, and its gradient, in float64."""
    loss = problem.loss
    if not isinstance(loss, (Coupled, External)):
        probe = Probe(problem, "float64", 0, shares)
        return lambda x: jax.device_get(probe.value_and_gradient(x))
    samples = [gather(problem, [i], int(n), np.float64) for i, n in enumerate(problem.sizes)]
    compiled = None
    if isinstance(loss, Coupled) and problem.compiles:
        compiled = jax.jit(jax.value_and_grad(loss.function))

    def client(params: Params, batch: Batch) -> PyTree:
        if compiled is None:
            return full_mean(loss, params, batch)
        return mean_over_parts(partial(compiled, params), loss, batch)

    def objective(x: Vector) -> tuple[float, Vector]:
        params = jax.device_get(x.tree)
        found = [jax.device_get(client(params, batch)) for batch in samples]
        value, gradient = weighted_mean(
            [jax.tree.map(np.asarray, pair) for pair in found], list(shares)
        )
        return float(value), Vector(gradient)

    return objective


def _minimise_free(
    objective: Objective, phi: Regularizer, x: Vector, penalised: Vector
) -> tuple[Vector, Vector]:
    """Minimise f + phi over the entries that are not penalised; returns (x, grad f(x)).

    Accelerated proximal gradient, its step halved until f lies below its quadratic model, its
    momentum dropped when it points uphill.
    """
    value, gradient = objective(x)
    if not _any(penalised.map(np.logical_not)):
        return x, gradient
    scale = _largest(gradient)
    y, momentum = x, 1.0
    step = min(1e3, 0.5 * float(phi.max_prox))

    def forward(y: Vector, gradient: Vector) -> Vector:
        moved = _prox(phi, y - step * gradient, step)
        return moved.map(lambda a, p: np.where(p, 0, a), penalised)

    for _ in range(STEPS):
        value, gradient = objective(y)
        new = forward(y, gradient)
        while not _below_model(objective(new)[0], value, gradient, new - y, step):
            step /= 2
            new = forward(y, gradient)
        if _largest(new - y) <= EXACT * scale * step:
            return y, gradient
        uphill = _dot(y - new, new - x) > 0
        next_momentum = 1.0 if uphill else (1 + (1 + 4 * momentum**2) ** 0.5) / 2
        push = 0.0 if uphill else (momentum - 1) / next_momentum
        x, y, momentum = new, new + push * (new - x), next_momentum
    warnings.warn(
        f"weight_max: the parameters without a weight are not solved for after {STEPS} steps "
        f"(residual {_largest(new - y) / step:.1e}, gradient {scale:.1e})",
        RuntimeWarning,
        stacklevel=3,
    )
    return x, objective(x)[1]


def _below_model(new: float, old: float, gradient: Vector, change: Vector, step: float) -> bool:
    """f(y + d) <= f(y) + <grad f(y), d> + ||d||^2 / (2 step), up to rounding."""
    model = old + _dot(gradient, change) + _dot(change, change) / (2 * step)
    return bool(new <= model + 1e-14 * abs(old))


def _dot(a: Vector, b: Vector) -> float:
    """As `core.vector.dot`, in NumPy."""
    products = a.map(lambda p, q: np.sum(p * q), b)
    return float(sum(jax.tree.leaves(products)))


def _largest(x: Vector) -> float:
    return max(float(np.max(np.abs(leaf), initial=0.0)) for leaf in jax.tree.leaves(x))


def _bisect(is_zero: Callable[[float], bool], complaint: str) -> float:
    """The smallest number with `is_zero`, from above."""
    high = 1.0
    while not is_zero(high):
        high *= 2.0
        if high > LARGEST:
            raise CompositeFLError(complaint)
    low = high / 2.0
    while is_zero(low) and low > 1 / LARGEST:
        high, low = low, low / 2.0
    while high / low > 1 + DIGITS:
        middle = (low * high) ** 0.5
        low, high = (low, middle) if is_zero(middle) else (middle, high)
    return high
