"""Compiled measurements of a problem: gradients, curvature and noise of every client.

Clients are visited in small blocks and their samples in chunks, so that memory does not grow with
the data.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from compositefl.metrics import squared_norm
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer
from compositefl.simulation.client import weighted_loss
from compositefl.vector import Vector

CHUNK = 512  # samples of a client worked on at the same time
WORKING_SET = 2**22  # numbers that one array over a block of clients may hold


class Probe:
    """A problem's data on one device, and the compiled measurements of it."""

    def __init__(self, problem: Problem, dtype: str, seed: int):
        self.loss, self.dtype, self.sizes = problem.loss, np.dtype(dtype), problem.sizes
        total = int(problem.sizes.sum())
        self.samples = jax.tree.map(
            jnp.asarray, problem.gather(range(len(problem.sizes)), total, self.dtype)
        )
        start = np.concatenate([[0], np.cumsum(problem.sizes)[:-1]])
        self.clients = (
            jnp.arange(len(start), dtype=jnp.int32),
            jnp.asarray(start, jnp.int32),
            jnp.asarray(problem.sizes, jnp.int32),
        )
        weight = np.repeat(1.0 / (len(start) * problem.sizes), problem.sizes)
        self.weight = jnp.asarray(weight, self.dtype)
        self.chunk = min(CHUNK, int(problem.sizes.max()))
        row = sum(a.size for a in jax.tree.leaves(self.samples)) // total
        room = WORKING_SET // max(problem.parameter_count, self.chunk * row)
        self.block = int(np.clip(room, 1, len(start)))
        self.key = jax.random.key(seed)

    def prox(self, phi: Regularizer, z: Vector, t: float) -> Vector:
        return Vector(phi.prox(z.tree, t)).map(lambda a: jnp.asarray(a, self.dtype))

    def value_and_gradient(self, x: Vector) -> tuple[jax.Array, Vector]:
        """f and its gradient at x."""
        return _value_and_gradient(self.loss, self.chunk, self.samples, self.weight, x)

    def descend(self, phi: Regularizer, x: Vector, step: float, count: int) -> Vector:
        """`count` proximal-gradient steps from x."""
        step = self.dtype.type(step)
        return _descend(self.loss, self.chunk, self.samples, self.weight, phi, x, step, count)

    def curvature(self, x: Vector, point: int, power_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """||H_i v|| after a power iteration for every client, and ||H_i v - (v'H_i v) v||."""
        key = jax.random.fold_in(self.key, point)
        out = _curvature(
            self.loss, self.chunk, self.block, self.samples, self.clients, x, key, power_steps
        )
        return np.asarray(out[0]), np.asarray(out[1])

    def dissimilarity(self, x: Vector, gradient: Vector) -> tuple[np.ndarray, np.ndarray]:
        """||grad f_i - gradient||^2 and ||grad f_i||^2 for every client."""
        out = _dissimilarity(
            self.loss, self.chunk, self.block, self.samples, self.clients, x, gradient
        )
        return np.asarray(out[0]), np.asarray(out[1])

    def noise(
        self, x: Vector, point: int, batch_size: int, batches: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """For every client: mean of ||g - grad f_i||^2, its standard error, and max ||g||."""
        key = jax.random.fold_in(jax.random.fold_in(self.key, batch_size), point)
        out = _noise(
            self.loss,
            self.chunk,
            max(1, self.block // batch_size),
            batch_size,
            batches,
            self.samples,
            self.clients,
            x,
            key,
        )
        mean, error, largest = map(np.asarray, out)
        return mean, error, largest


def _sum_chunks(
    function: Callable[[Any, Any], Any],
    samples: Any,
    chunk: int,
    start: Any,
    size: Any,
    weight: jax.Array | None = None,
) -> Any:
    """Sum of function(batch, weights) over `size` samples from `start`; weights 1/size if None."""

    def part(j: Any) -> Any:
        offset = j * chunk + jnp.arange(chunk, dtype=jnp.int32)
        read = lambda a: a.at[start + offset].get(mode="clip")  # noqa: E731
        scale = 1.0 / size if weight is None else read(weight)
        return function(jax.tree.map(read, samples), jnp.where(offset < size, scale, 0.0))

    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(part, 0))
    add = lambda j, total: jax.tree.map(jnp.add, total, part(j))  # noqa: E731
    return lax.fori_loop(0, (size + chunk - 1) // chunk, add, zero)


def _client_gradient(
    loss: Callable[[Any, Any], Any], chunk: int, samples: Any, start: Any, size: Any, x: Vector
) -> Vector:
    gradient = lambda batch, weight: jax.grad(weighted_loss, argnums=1)(  # noqa: E731
        loss, x.tree, batch, weight
    )
    return Vector(_sum_chunks(gradient, samples, chunk, start, size))


def normal_like(key: jax.Array, x: Vector) -> Vector:
    leaves, structure = jax.tree.flatten(x)
    keys = jax.random.split(key, len(leaves))
    drawn = [jax.random.normal(k, a.shape, a.dtype) for k, a in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


@partial(jax.jit, static_argnames=("loss", "chunk"))
def _value_and_gradient(loss: Any, chunk: int, samples: Any, weight: jax.Array, x: Vector) -> Any:
    both = lambda batch, w: jax.value_and_grad(weighted_loss, argnums=1)(  # noqa: E731
        loss, x.tree, batch, w
    )
    value, gradient = _sum_chunks(both, samples, chunk, 0, weight.shape[0], weight)
    return value, Vector(gradient)


@partial(jax.jit, static_argnames=("loss", "chunk"))
def _descend(
    loss: Any,
    chunk: int,
    samples: Any,
    weight: jax.Array,
    phi: Regularizer,
    x: Vector,
    step: Any,
    count: int,
) -> Vector:
    def body(_: Any, x: Vector) -> Vector:
        _, gradient = _value_and_gradient(loss, chunk, samples, weight, x)
        new = Vector(phi.prox((x - step * gradient).tree, step))
        return new.map(lambda a, b: a.astype(b.dtype), x)

    return lax.fori_loop(0, count, body, x)


@partial(jax.jit, static_argnames=("loss", "chunk", "block"))
def _curvature(
    loss: Any,
    chunk: int,
    block: int,
    samples: Any,
    clients: Any,
    x: Vector,
    key: jax.Array,
    power_steps: int,
) -> Any:
    def one(client: Any) -> Any:
        id_, start, size = client

        def times_hessian(v: Vector) -> Vector:
            def part(batch: Any, weight: Any) -> Any:
                gradient = lambda p: jax.grad(weighted_loss, argnums=1)(  # noqa: E731
                    loss, p, batch, weight
                )
                return jax.jvp(gradient, (x.tree,), (v.tree,))[1]

            return Vector(_sum_chunks(part, samples, chunk, start, size))

        def body(_: Any, carry: Any) -> Any:
            v = carry[0]
            norm = jnp.sqrt(squared_norm(v))
            v = v / jnp.where(norm > 0, norm, 1.0)  # a zero Hessian ends in zeros
            image = times_hessian(v)
            along = jnp.sum(jnp.stack([jnp.vdot(*p) for p in _pairs(v, image)]))
            length, rest = squared_norm(image), squared_norm(image - along * v)
            return image, jnp.sqrt(length), jnp.sqrt(rest)

        v = normal_like(jax.random.fold_in(key, id_), x)
        nothing = jnp.zeros((), jnp.result_type(*jax.tree.leaves(x)))
        _, length, rest = lax.fori_loop(0, power_steps, body, (v, nothing, nothing))
        return length, rest

    return lax.map(one, clients, batch_size=block)


def _pairs(a: Vector, b: Vector) -> Any:
    return zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)


@partial(jax.jit, static_argnames=("loss", "chunk", "block"))
def _dissimilarity(
    loss: Any, chunk: int, block: int, samples: Any, clients: Any, x: Vector, gradient: Vector
) -> Any:
    def one(client: Any) -> Any:
        own = _client_gradient(loss, chunk, samples, client[1], client[2], x)
        return squared_norm(own - gradient), squared_norm(own)

    return lax.map(one, clients, batch_size=block)


@partial(jax.jit, static_argnames=("loss", "chunk", "block", "batch_size", "batches"))
def _noise(
    loss: Any,
    chunk: int,
    block: int,
    batch_size: int,
    batches: int,
    samples: Any,
    clients: Any,
    x: Vector,
    key: jax.Array,
) -> Any:
    def one(client: Any) -> Any:
        id_, start, size = client
        exact = _client_gradient(loss, chunk, samples, start, size, x)

        def draw(key: jax.Array) -> Any:
            rows = start + jax.random.randint(key, (batch_size,), 0, size)
            batch = jax.tree.map(lambda a: a.at[rows].get(mode="clip"), samples)
            own = Vector(jax.grad(loss)(x.tree, batch))
            return squared_norm(own - exact), squared_norm(own)

        keys = jax.random.split(jax.random.fold_in(key, id_), batches)
        apart, norms = lax.map(draw, keys)
        error = jnp.std(apart, ddof=1) / jnp.sqrt(batches)
        return jnp.mean(apart), error, jnp.sqrt(jnp.max(norms))

    return lax.map(one, clients, batch_size=block)
