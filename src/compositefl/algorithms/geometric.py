"""Rounds of random length."""

import jax
import jax.numpy as jnp

from compositefl.core.types import Number


def geometric(key: jax.Array, p: Number) -> jax.Array:
    """The number of tosses up to the first head, heads having probability p in (0, 1].

    jax.random.geometric is not safe at p = 1 and at a uniform draw of exactly 0.
    """
    # In float32 whatever the type of the run. u is in [0, 1), so log(1 - u) is finite.
    u = jax.random.uniform(key, dtype=jnp.float32)
    return 1 + jnp.floor(jnp.log1p(-u) / jnp.log1p(-jnp.float32(p))).astype(jnp.int32)
