"""The least time that a round could take on this machine, from its arithmetic and its states.

The matrix products of all clients' gradients at the best rate that a product reaches here, plus
one read and one write of the clients' models and states. Nothing else is counted: no draws, no
gathering of samples, no activations, no exchange.
"""

import math
import time

import numpy as np


def product_rate(clock=time.perf_counter):
    """Operations a second of the fastest matrix product found, all cores at work.

    clock: `time.process_time` counts seconds of processor time, which others' work disturbs less.
    """
    import jax
    from jax import lax
    from jax.sharding import PartitionSpec as P

    from compositefl.simulation.placement import AXIS, device_mesh

    mesh, best = device_mesh(), 0.0
    for size in (512, 1024, 2048):
        repeats = max(1, 2**31 // size**3)
        a = np.random.default_rng(0).random((mesh.size, size, size), np.float32)

        def products(a, repeats=repeats):
            # each product needs the one before
            body = lambda _, b: a[0] @ b * (1 / a.shape[1])  # noqa: E731
            return lax.fori_loop(0, repeats, body, a[0])[None]

        run = jax.jit(jax.shard_map(products, mesh=mesh, in_specs=P(AXIS), out_specs=P(AXIS)))
        run(a).block_until_ready()
        spent = min(_time(lambda run=run, a=a: run(a).block_until_ready(), clock) for _ in range(5))
        best = max(best, mesh.size * repeats * 2 * size**3 / spent)
        spent = min(_time(lambda a=a: a[0] @ a[0], clock) for _ in range(5))  # NumPy's library
        best = max(best, 2 * size**3 / spent)
    return best


def memory_rate(clock=time.perf_counter):
    """Bytes a second of a copy, read and written, that no cache holds; one core."""
    a = np.ones(2**26, np.float32)
    b = np.empty_like(a)
    return 2 * a.nbytes / min(_time(lambda: np.copyto(b, a), clock) for _ in range(5))


def operations(loss, params, batch):
    """Multiplications and additions in the matrix products of one gradient."""
    import jax
    from jax.interpreters.partial_eval import dce_jaxpr

    made = jax.make_jaxpr(jax.grad(loss))(params, batch).jaxpr
    used, _ = dce_jaxpr(made, [True] * len(made.outvars))  # the images need no gradient
    return _count(used)


def _count(jaxpr):
    from jax.extend.core import jaxprs_in_params

    total = 0
    for equation in jaxpr.eqns:
        total += sum(map(_count, jaxprs_in_params(equation.params)))
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left = equation.invars[0].aval.shape
            inner = math.prod(left[axis] for axis in contracted)
            total += 2 * inner * equation.outvars[0].aval.size
    return total


def floor_ms(problem, batch_size, steps, states, rates):
    """Milliseconds: (products, states) of a round in which every client takes part.

    states: vectors as long as the model that a client reads and writes in a round.
    """
    import jax

    batch = jax.tree.map(lambda a: np.asarray(a)[:batch_size], problem.clients[0])
    clients = len(problem.sizes)
    products = operations(problem.loss, problem.params, batch) * steps * clients
    moved = 2 * 4 * problem.parameter_count * clients * states
    return 1e3 * products / rates[0], 1e3 * moved / rates[1]


def _time(call, clock):
    began = clock()
    call()
    return clock() - began
