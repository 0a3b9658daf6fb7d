"""The largest curvature of a client's loss, measured on the devices."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import PartitionSpec as P

from compositefl.core.vector import Vector
from compositefl.engine.client import ClientInfo, Oracle
from compositefl.engine.curvature import CLIENTS, largest_curvature
from compositefl.simulation.placement import AXIS, Placed, specs
from compositefl.simulation.program import Program


def _on_device(program: Program, placed: Placed, key: jax.Array, x: Vector, v: Vector) -> jax.Array:
    def one(info: ClientInfo) -> jax.Array:
        oracle = Oracle(
            program.loss,
            program.batch_size,
            program.largest,
            program.equal,
            placed.samples,
            key,
            info,
        )
        found = largest_curvature(lambda point: oracle(point, 0)[1], x, v)
        return jnp.where(info.weight > 0, found, 0.0)

    count = min(CLIENTS, len(placed.info.id))
    # Where the table is that of all clients, each device looks at others.
    first = lax.axis_index(AXIS) * program.rows if placed.shared else 0
    some = jax.tree.map(lambda a: lax.dynamic_slice_in_dim(a, first, count), placed.info)
    return jnp.max(lax.map(one, some))[None]


@partial(jax.jit, static_argnames="program")
def curvatures(program: Program, placed: Placed, key: jax.Array, x: Vector, v: Vector) -> jax.Array:
    """The largest curvature at x over the clients of each device, of their first minibatches."""
    return jax.shard_map(
        partial(_on_device, program),
        mesh=program.mesh,
        in_specs=(specs(placed), P(), P(), P()),
        out_specs=P(AXIS),
        check_vma=False,
    )(placed, key, x, v)
