"""Full-data evaluation of models: loss, psi, stationarity, sparsity, test accuracy."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from compositefl.core.types import Accuracy, Array, Batch, Loss, Number, Params, PyTree
from compositefl.core.vector import Vector
from compositefl.engine.client import CHUNK, coupled_mean, weighted_loss
from compositefl.engine.stationarity import prox_point, stationarity
from compositefl.problem import Coupled
from compositefl.regularizers.base import Regularizer
from compositefl.simulation.placement import AXIS, Placed, specs
from compositefl.simulation.working_set import samples_at_once


def sum_over_samples(
    function: Callable[[Batch, jax.Array], PyTree],
    samples: Batch,
    weight: jax.Array,
    chunk: int = CHUNK,
    shared: bool = False,
) -> PyTree:
    """Sum of function(batch, weights) over chunks of all samples on all devices.

    shared: all devices have the same samples, and each takes its part of them.
    """
    length = weight.shape[0]
    count = -(-length // lax.axis_size(AXIS)) if shared else length
    begin = lax.axis_index(AXIS) * count if shared else 0

    def part(j: Number, size: int) -> PyTree:
        first = begin + j * size
        start = jnp.minimum(first, length - size)  # the last chunk overlaps the one before
        cut = lambda a: lax.dynamic_slice_in_dim(a, start, size)  # noqa: E731
        at = start + jnp.arange(size)
        fresh = at >= first
        if shared:
            fresh &= at < begin + count
        return function(jax.tree.map(cut, samples), jnp.where(fresh, cut(weight), 0.0))

    size, zero = samples_at_once(lambda size: part(0, size), min(chunk, count))
    add = lambda j, total: jax.tree.map(jnp.add, total, part(j, size))  # noqa: E731
    return lax.psum(lax.fori_loop(0, -(-count // size), add, zero), AXIS)


def mean_over_clients(loss: Coupled, x: Params, placed: Placed) -> tuple[Array, Params]:
    """f and its gradient, from the batches of each client of all devices."""
    info, clients = placed.info, len(placed.info.weight)
    begin: Number = 0
    count = clients
    if placed.shared:  # each device takes its part of the clients
        count = -(-clients // lax.axis_size(AXIS))
        begin = lax.axis_index(AXIS) * count

    def part(i: Number) -> tuple[Array, Params]:
        row = jax.tree.map(lambda a: a.at[i].get(mode="clip"), info)
        weight = jnp.where(i < clients, row.weight, 0.0)
        mean = coupled_mean(loss, x, placed.samples, row)
        return jax.tree.map(lambda a: a * weight.astype(a.dtype), mean)

    zero = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), jax.eval_shape(part, 0))
    add = lambda i, total: jax.tree.map(jnp.add, total, part(begin + i))  # noqa: E731
    total = lax.psum(lax.fori_loop(0, count, add, zero), AXIS)
    weight = placed.everything
    if weight is None:
        weight = lax.psum(jnp.sum(info.weight), AXIS)
    return jax.tree.map(lambda a: a / weight.astype(a.dtype), total)


def objective(loss: Loss, placed: Placed, x: Params) -> tuple[Array, Params]:
    """f and its gradient at x, from the clients of all devices."""
    if isinstance(loss, Coupled):
        return mean_over_clients(loss, x, placed)
    return sum_over_samples(
        lambda batch, weight: jax.value_and_grad(weighted_loss, argnums=1)(loss, x, batch, weight),
        placed.samples,
        placed.sample_weight,
        shared=placed.shared,
    )


def mean_accuracy(accuracy: Accuracy, x: Params, test: Batch) -> jax.Array:
    """Accuracy over the test set; a coupled one in batches of its size."""
    samples, weight = test
    if isinstance(accuracy, Coupled):
        share = lambda batch, w: accuracy(x, batch) * jnp.sum(w)  # noqa: E731
        return sum_over_samples(share, samples, weight, accuracy.size)
    return sum_over_samples(lambda batch, w: weighted_loss(accuracy, x, batch, w), samples, weight)


def _evaluate(
    loss: Loss,
    accuracy: Accuracy | None,
    placed: Placed,
    test: Batch,
    gamma: Number,
    regularizers: Regularizer,
    models: Vector,
    normal_map_points: tuple[Vector, Array] | None,
) -> dict[str, jax.Array]:
    value_and_gradient = partial(objective, loss, placed)

    def one(run: tuple[Regularizer, Vector, tuple[Vector, Array] | None]) -> dict[str, jax.Array]:
        phi, x, own = run
        value, tree = value_and_gradient(x.tree)
        gradient, gradient_z = Vector(tree), None
        if own is None:
            gradient_z = Vector(value_and_gradient(prox_point(phi, gamma, x, gradient).tree)[1])
        row = stationarity(phi, gamma, x, value, gradient, own, gradient_z)
        if accuracy is not None:
            row["accuracy"] = mean_accuracy(accuracy, x.tree, test)
        return row

    return lax.map(one, (regularizers, models, normal_map_points))


@partial(jax.jit, static_argnames=("loss", "accuracy", "mesh"))
def evaluate(
    loss: Loss,
    accuracy: Accuracy | None,
    mesh: Mesh,
    placed: Placed,
    test: Batch,
    gamma: Number,
    regularizers: Regularizer,
    models: Vector,
    normal_map_points: tuple[Vector, Array] | None,
) -> dict[str, jax.Array]:
    """Metrics of one model per run. gamma is the common prox parameter of the residuals.

    normal_map_points: what the algorithms answer to it, with the runs as leading axis, or None.
    """
    return jax.shard_map(
        partial(_evaluate, loss, accuracy),
        mesh=mesh,
        in_specs=(specs(placed), P(AXIS), P(), P(), P(), P()),
        out_specs=P(),
        check_vma=False,
    )(placed, test, gamma, regularizers, models, normal_map_points)


@partial(jax.jit, static_argnames=("loss", "mesh"))
def part_of_objective(
    loss: Loss, mesh: Mesh, placed: Placed, models: Vector
) -> tuple[Array, Params]:
    """What some clients, brought to the devices, add to f and its gradient; a model per run."""
    each = lambda placed, models: lax.map(lambda x: objective(loss, placed, x.tree), models)  # noqa: E731
    return jax.shard_map(
        each,
        mesh=mesh,
        in_specs=(specs(placed, brought=True), P()),
        out_specs=P(),
        check_vma=False,
    )(placed, models)


@jax.jit
def prox_points(
    gamma: Number, regularizers: Regularizer, models: Vector, gradients: Params
) -> Vector:
    """The points where the normal map is measured, for methods without one of their own."""
    at = lambda phi, x, gradient: prox_point(phi, gamma, x, Vector(gradient))  # noqa: E731
    return jax.vmap(at)(regularizers, models, gradients)


@partial(jax.jit, static_argnames=("accuracy", "mesh"))
def measure(
    accuracy: Accuracy | None,
    mesh: Mesh,
    test: Batch,
    gamma: Number,
    regularizers: Regularizer,
    models: Vector,
    normal_map_points: tuple[Vector, Array] | None,
    values: Array,
    gradients: Params,
    gradients_z: Params | None,
) -> dict[str, jax.Array]:
    """The metrics of `evaluate`, from f and its gradient that somebody has added up."""

    def one(test: Batch, run: PyTree) -> dict[str, jax.Array]:
        phi, x, own, value, gradient, gradient_z = run
        gradient_z = None if gradient_z is None else Vector(gradient_z)
        row = stationarity(phi, gamma, x, value, Vector(gradient), own, gradient_z)
        if accuracy is not None:
            row["accuracy"] = mean_accuracy(accuracy, x.tree, test)
        return row

    runs = regularizers, models, normal_map_points, values, gradients, gradients_z
    return jax.shard_map(
        lambda test, runs: lax.map(partial(one, test), runs),
        mesh=mesh,
        in_specs=(P(AXIS), P()),
        out_specs=P(),
        check_vma=False,
    )(test, runs)
