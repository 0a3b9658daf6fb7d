"""Compiled measurements of a problem: gradients, curvature and noise of every client.

Clients are visited in small blocks and their samples in chunks, so that memory does not grow with
the data.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Batch, Loss, Number, Params, PyTree
from compositefl.core.vector import Vector, dot, squared_norm
from compositefl.engine.client import weighted_loss
from compositefl.engine.samples import gather
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer

CHUNK = 512  # samples of a client worked on at the same time
WORKING_SET = 2**22  # numbers that one array over a block of clients may hold


class Statistics(NamedTuple):
    """What is measured of every client at one point."""

    apart: np.ndarray  # ||grad f_i - grad f||^2
    norm: np.ndarray  # ||grad f_i||^2
    noise: np.ndarray  # mean of ||g - grad f_i||^2 over minibatch gradients g
    error: np.ndarray  # its standard error
    largest: np.ndarray  # largest gradient norm of a single drawn sample


class Probe:
    """A problem's data on one device, and the compiled measurements of it.

    Random numbers come from NumPy: drawn inside, they took most of the time to compile.
    `weights` are those of the clients in f, by default equal.
    """

    def __init__(self, problem: Problem, dtype: str, seed: int, weights: np.ndarray | None = None):
        if not problem.compiles:
            raise CompositeFLError(
                "the constants of a PyTorch module are not estimated, as this takes second "
                "derivatives; give constants=compositefl.theory.Constants(...)"
            )
        self.loss, self.dtype, self.sizes = problem.loss, np.dtype(dtype), problem.sizes
        self.seed = seed
        total = int(problem.sizes.sum())
        self.samples = jax.tree.map(
            jnp.asarray, gather(problem, range(len(problem.sizes)), total, self.dtype)
        )
        self.starts = np.concatenate([[0], np.cumsum(problem.sizes)[:-1]])
        self.clients = jnp.asarray(self.starts, jnp.int32), jnp.asarray(self.sizes, jnp.int32)
        shares = np.ones(len(self.sizes)) if weights is None else np.asarray(weights, float)
        weight = np.repeat(shares / (shares.sum() * self.sizes), self.sizes)
        self.weight = jnp.asarray(weight, self.dtype)
        largest = int(problem.sizes.max())
        row = sum(a.size for a in jax.tree.leaves(self.samples)) // total
        chunk = min(CHUNK, largest)
        room = WORKING_SET // max(problem.parameter_count, chunk * row)
        self.cut = Cut(chunk, -(-largest // chunk), int(np.clip(room, 1, len(self.sizes))))

    def generator(self, point: int) -> np.random.Generator:
        """The random numbers of one point of the run."""
        return np.random.default_rng([self.seed, point])

    def prox(self, phi: Regularizer, z: Vector, t: float) -> Vector:
        """prox_t of phi at z, in the type of the probe."""
        return Vector(phi.prox(z.tree, t)).map(lambda a: jnp.asarray(a, self.dtype))

    def value_and_gradient(self, x: Vector) -> tuple[jax.Array, Vector]:
        """f and its gradient at x."""
        return _value_and_gradient(self.loss, self.cut, self.samples, self.weight, x)

    def descend(self, phi: Regularizer, x: Vector, step: float, count: int) -> Vector:
        """`count` proximal-gradient steps from x."""
        size = self.dtype.type(step)
        return _descend(self.loss, self.cut, self.samples, self.weight, phi, x, size, count)

    def curvature(self, x: Vector, power_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """||H_i v|| after a power iteration for every client, and ||H_i v - (v'H_i v) v||."""
        v = normal_like(self.generator(0), x)
        out = _curvature(self.loss, self.cut, self.samples, self.clients, x, v, power_steps)
        return np.asarray(out[0]), np.asarray(out[1])

    def statistics(
        self, x: Vector, gradient: Vector, point: int, batch_size: int | None, batches: int
    ) -> Statistics:
        """Heterogeneity and noise of every client; batch_size None draws single samples."""
        shape = (len(self.sizes), batches, batch_size or 1)
        draws = self.generator(point).integers(0, self.sizes[:, None, None], shape)
        rows = jnp.asarray(self.starts[:, None, None] + draws, jnp.int32)
        cut = self.cut._replace(block=max(1, self.cut.block // shape[2]))
        out = _statistics(self.loss, cut, self.samples, self.clients, rows, x, gradient)
        return Statistics(*map(np.asarray, out))


class Cut(NamedTuple):
    """How the work is cut: samples at a time, chunks of the largest client, clients at a time."""

    chunk: int
    chunks: int
    block: int


def normal_like(rng: np.random.Generator, x: Vector) -> Vector:
    """Standard normal numbers in the shape and type of x."""
    return x.map(lambda a: jnp.asarray(rng.normal(size=a.shape), a.dtype))


def _sum_chunks(
    function: Callable[[Batch, jax.Array], PyTree],
    samples: Batch,
    cut: Cut,
    start: Number,
    size: Number,
    weight: jax.Array | None = None,
) -> PyTree:
    """Sum of function(batch, weights) over a client's samples, each with weight 1/size.

    With `weight`, one number a sample, over the samples of all clients.
    """

    def part(j: Number) -> PyTree:
        offset = j * cut.chunk + jnp.arange(cut.chunk, dtype=jnp.int32)
        read = lambda a: a.at[start + offset].get(mode="clip")  # noqa: E731
        scale = 1.0 / size if weight is None else read(weight)
        return function(jax.tree.map(read, samples), jnp.where(offset < size, scale, 0.0))

    if weight is None and cut.chunks == 1:
        return part(0)
    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(part, 0))
    add = lambda j, total: jax.tree.map(jnp.add, total, part(j))  # noqa: E731
    return lax.fori_loop(0, (size + cut.chunk - 1) // cut.chunk, add, zero)


@partial(jax.jit, static_argnames=("loss", "cut"))
def _value_and_gradient(
    loss: Loss, cut: Cut, samples: Batch, weight: jax.Array, x: Vector
) -> tuple[jax.Array, Vector]:
    both = lambda batch, w: jax.value_and_grad(weighted_loss, argnums=1)(  # noqa: E731
        loss, x.tree, batch, w
    )
    value, gradient = _sum_chunks(both, samples, cut, 0, weight.shape[0], weight)
    return value, Vector(gradient)


@partial(jax.jit, static_argnames=("loss", "cut"))
def _descend(
    loss: Loss,
    cut: Cut,
    samples: Batch,
    weight: jax.Array,
    phi: Regularizer,
    x: Vector,
    step: Number,
    count: int,
) -> Vector:
    def body(_: Number, x: Vector) -> Vector:
        _, gradient = _value_and_gradient(loss, cut, samples, weight, x)
        new = Vector(phi.prox((x - step * gradient).tree, step))
        return new.map(lambda a, b: a.astype(b.dtype), x)

    return lax.fori_loop(0, count, body, x)


@partial(jax.jit, static_argnames=("loss", "cut"))
def _curvature(
    loss: Loss,
    cut: Cut,
    samples: Batch,
    clients: tuple[jax.Array, jax.Array],
    x: Vector,
    v: Vector,
    power_steps: int,
) -> tuple[jax.Array, jax.Array]:
    def one(client: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        def part(v: Vector, batch: Batch, weight: Number) -> Params:
            gradient = lambda p: jax.grad(weighted_loss, argnums=1)(  # noqa: E731
                loss, p, batch, weight
            )
            return jax.jvp(gradient, (x.tree,), (v.tree,))[1]

        def body(
            _: Number, carry: tuple[Vector, jax.Array, jax.Array]
        ) -> tuple[Vector, jax.Array, jax.Array]:
            v = carry[0]
            norm = jnp.sqrt(squared_norm(v))
            v = v / jnp.where(norm > 0, norm, 1.0)  # a zero Hessian ends in zeros
            image = Vector(_sum_chunks(partial(part, v), samples, cut, *client))
            along = dot(v, image)
            return image, jnp.sqrt(squared_norm(image)), jnp.sqrt(squared_norm(image - along * v))

        nothing = jnp.zeros((), jnp.result_type(*jax.tree.leaves(x)))
        _, length, rest = lax.fori_loop(0, power_steps, body, (v, nothing, nothing))
        return length, rest

    return lax.map(one, clients, batch_size=cut.block)


@partial(jax.jit, static_argnames=("loss", "cut"))
def _statistics(
    loss: Loss,
    cut: Cut,
    samples: Batch,
    clients: tuple[jax.Array, jax.Array],
    rows: jax.Array,
    x: Vector,
    gradient: Vector,
) -> tuple[jax.Array, ...]:
    def one(client: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, ...]:
        start, size, rows = client
        mean = lambda batch, weight: jax.grad(weighted_loss, argnums=1)(  # noqa: E731
            loss, x.tree, batch, weight
        )
        exact = Vector(_sum_chunks(mean, samples, cut, start, size))

        def draw(rows: jax.Array) -> tuple[jax.Array, jax.Array]:
            batch = jax.tree.map(lambda a: a.at[rows].get(mode="clip"), samples)
            single = jax.tree.map(lambda a: a[:1], batch)
            drawn, of_one = (Vector(jax.grad(loss)(x.tree, b)) for b in (batch, single))
            return squared_norm(drawn - exact), squared_norm(of_one)

        apart, norms = lax.map(draw, rows)
        error = jnp.std(apart, ddof=1) / jnp.sqrt(len(rows))
        both = squared_norm(exact - gradient), squared_norm(exact)
        return *both, jnp.mean(apart), error, jnp.sqrt(jnp.max(norms))

    return lax.map(one, (*clients, rows), batch_size=cut.block)
