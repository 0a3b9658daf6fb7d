"""How many clients and runs a device works on at the same time."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from compositefl.core.types import Array, PyTree
from compositefl.problem import Coupled, Problem

if TYPE_CHECKING:
    from jax.extend.core import Jaxpr

# Numbers that the largest arrays of all clients worked on at the same time may hold on one device:
# with a handful of such arrays in float32, what a core's own cache keeps. Clients and runs beyond
# it wait their turn, which bounds the working memory and saves time (docs/decisions.md).
WORKING_SET = 2**17
EVALUATED = 2**21  # the same for samples that are evaluated: one model, so few arrays live long


def working_numbers(problem: Problem, batch_size: int | None) -> int:
    """How many numbers the largest array holds in one client's gradient of a minibatch.

    At least the parameters; the layers' outputs in a network of convolutions.
    """
    samples = batch_size or int(problem.sizes.max())
    if isinstance(problem.loss, Coupled):
        samples = min(samples, problem.loss.size)

    def like(shape: tuple[int, ...], leaf: Array) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(shape, leaf.dtype)

    params = jax.tree.map(lambda a: like(a.shape, a), problem.params)
    batch = jax.tree.map(
        lambda a: like((samples, *a.shape[1:]), a), jax.tree.map(np.asarray, problem.clients[0])
    )
    gradient = jax.make_jaxpr(jax.grad(problem.loss))(params, batch)
    return max(problem.parameter_count, _largest_array(gradient.jaxpr))


def samples_at_once(part: Callable[[int], PyTree], most: int) -> tuple[int, PyTree]:
    """How many samples to evaluate at the same time, and zeros like what `part(samples)` gives.

    At most `most`, and no more than keep arrays that grow with the samples within `EVALUATED`: the
    outputs of a network of convolutions.
    """

    def largest(samples: int) -> tuple[int, PyTree]:
        program, out = jax.make_jaxpr(lambda: part(samples), return_shape=True)()
        return _largest_array(program.jaxpr), out

    numbers, out = largest(most)
    if numbers > EVALUATED and most > 1:
        each = (numbers - largest(most // 2)[0]) / (most - most // 2)
        if each > 0:
            most = min(most, max(1, int(EVALUATED / each)))
    return most, jax.tree.map(lambda a: np.zeros(a.shape, a.dtype), out)


def even_block(rows: int, most: int) -> int:
    """The size of the fewest blocks of at most `most` rows, all about equally full."""
    return -(-rows // -(-rows // max(1, most)))


def _inner(parameters: dict[str, Any]) -> Iterator[Any]:
    """Traced functions that an operation calls. jax.extend has it, and takes long to load."""
    for value in parameters.values():
        for part in value if isinstance(value, (tuple, list)) else [value]:
            part = getattr(part, "jaxpr", part)  # of one that is closed
            if hasattr(part, "eqns"):
                yield part


def _largest_array(program: "Jaxpr") -> int:
    """Numbers in the largest array that a traced function or one that it calls computes."""
    largest = 0
    for equation in program.eqns:
        inner = list(_inner(equation.params))
        if inner:
            largest = max(largest, *map(_largest_array, inner))
        else:
            sizes = (getattr(out.aval, "size", 0) for out in equation.outvars)
            largest = max(largest, *sizes)
    return largest
