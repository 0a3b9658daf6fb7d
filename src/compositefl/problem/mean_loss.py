"""Whether a loss is what everything here takes it for: a mean over the samples of its batch."""

from collections.abc import Sequence
from functools import partial

import jax
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Array, Batch, Loss, Params
from compositefl.problem.clients import tried

SAMPLES = 6  # that are tried, of at most three clients
ALLOWED = 1e-2  # relative difference: far above rounding in float32, far below that of a sum


def require_mean(loss: Loss, params: Params, clients: Sequence[Batch], sizes: np.ndarray) -> None:
    """Refuse a loss whose value on a few samples is not the mean of its values on single ones.

    A sum, or a likelihood that compares the samples of a batch, would be solved as another problem:
    evaluations and full gradients are made of single samples. Tried at the start and near it, since
    losses may agree by chance, for example where all are zero.
    """
    if getattr(loss, "mean_over_samples", False):
        return
    batch, count = _some_samples(clients, sizes)
    if count < 2:
        return
    rng = np.random.default_rng(0)
    for scale in (0.0, 0.1):
        point = jax.tree.map(lambda a, s=scale: a + s * _noise(rng, a), params)
        whole, single = _values(loss, point, batch, count)
        size = abs(whole) + float(np.mean(np.abs(single)))
        # A mean that is finite cannot be made of terms that are not.
        if np.isfinite(whole) and not abs(whole - single.mean()) <= ALLOWED * size + 1e-6:
            raise CompositeFLError(
                f"loss(params, batch) of {count} samples is {whole:.6g} and the mean of their "
                f"single losses {single.mean():.6g}: it must be a mean over samples. Divide a sum "
                "by the batch's size; for samples that depend on each other pass coupled_batch=, "
                "the size of their batches",
                parameter="loss",
                value=loss,
            )


def _noise(rng: np.random.Generator, a: np.ndarray) -> np.ndarray:
    return rng.normal(size=a.shape).astype(a.dtype)


def _some_samples(clients: Sequence[Batch], sizes: np.ndarray) -> tuple[Batch, int]:
    """Random samples of the first, the middle and the last client."""
    rng = np.random.default_rng(0)
    chosen = tried(clients)
    share = SAMPLES // len(chosen)
    parts = []
    for client in chosen:
        rows = rng.permutation(int(sizes[client]))[:share]
        parts.append(jax.tree.map(lambda a, rows=rows: np.asarray(a)[rows], clients[client]))
    batch = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
    return batch, len(jax.tree.leaves(batch)[0])


def _values(loss: Loss, params: Params, batch: Batch, count: int) -> tuple[float, np.ndarray]:
    """The loss of the batch, and of each of its samples."""
    if hasattr(loss, "value_and_gradient"):  # computed outside JAX
        cut = lambda i: jax.tree.map(lambda a: a[i : i + 1], batch)  # noqa: E731
        return float(loss(params, batch)), np.array([loss(params, cut(i)) for i in range(count)])
    with np.errstate(over="ignore"):  # numbers beyond float32 are refused where a run takes them
        whole, single = _compiled(loss, params, batch)
    return float(whole), np.asarray(single, float)


@partial(jax.jit, static_argnums=0)
def _compiled(loss: Loss, params: Params, batch: Batch) -> tuple[Array, Array]:
    single = jax.tree.map(lambda a: a[:, None], batch)
    return loss(params, batch), jax.vmap(loss, in_axes=(None, 0))(params, single)
