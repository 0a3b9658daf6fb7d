"""The curvature of a client's loss at a point: one number, by a power iteration on its Hessian."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.core.types import Number
from compositefl.core.vector import Vector, squared_norm

POWER_STEPS = 12
CLIENTS = 32  # at most so many clients of a device are asked
RELATIVE = 1e-2  # length of a difference of gradients beside that of the point


def direction(seed: int, x: Vector) -> Vector:
    """Where the power iteration starts, the same for every client and engine."""
    rng = np.random.default_rng([seed, 16])
    return x.map(lambda a: np.asarray(rng.normal(size=np.shape(a)), np.asarray(a).dtype))


def largest_curvature(gradient: Callable[[Vector], Vector], x: Vector, v: Vector) -> jax.Array:
    """||H v|| after a power iteration, with products H v from differentiating the gradient."""
    product = lambda v: jax.jvp(gradient, (x,), (v,))[1]  # noqa: E731
    length = jnp.zeros((), jnp.result_type(*jax.tree.leaves(x)))

    def body(_: Number, carry: tuple[Vector, jax.Array]) -> tuple[Vector, jax.Array]:
        v, _ = carry
        norm = jnp.sqrt(squared_norm(v))
        image = product(v / jnp.where(norm > 0, norm, 1.0))
        return image, jnp.sqrt(squared_norm(image)).astype(length.dtype)

    return jax.lax.fori_loop(0, POWER_STEPS, body, (v, length))[1]


def curvature_by_differences(gradient: Callable[[Vector], Vector], x: Vector, v: Vector) -> float:
    """The same for a gradient that JAX cannot differentiate: H v from two gradients."""
    here, length = gradient(x), 0.0
    size = RELATIVE * max(1.0, float(squared_norm(x)) ** 0.5)
    for _ in range(POWER_STEPS):
        norm = float(squared_norm(v)) ** 0.5
        if norm == 0:
            return 0.0
        v = (gradient(x + v * (size / norm)) - here) / size
        length = float(squared_norm(v)) ** 0.5
    return length
