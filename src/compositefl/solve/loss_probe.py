"""A few values of a loss, by which a checkpoint knows the loss that it belongs to."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.core.trees import floats_to
from compositefl.core.types import Array, Batch, DType, Loss, Params
from compositefl.engine.eager import external
from compositefl.problem import Coupled, Problem
from compositefl.problem.clients import tried

SAMPLES = 6  # of a loss that is a mean over samples; of another one a batch
NEAR = 0.1  # deviation of the second point: at zero many losses are alike
SAME = 1e-3  # relative difference: far above rounding, also that of another machine


def loss_probe(problem: Problem, dtype: DType) -> list[float]:
    """The loss of a few samples at the start and near it, in the precision of a run."""
    batch = _few_samples(problem, dtype)
    start, rng = jax.tree.map(partial(floats_to, dtype), problem.params), np.random.default_rng(0)
    near = jax.tree.map(lambda a: np.asarray(a + NEAR * rng.normal(size=a.shape), a.dtype), start)
    loss: Any = problem.loss
    value = partial(_compiled, loss) if problem.compiles else external(loss)
    return [float(value(point, batch)) for point in (start, near)]


def require_same_loss(path: Path, there: Sequence[float], here: Sequence[float]) -> None:
    """Refuse a checkpoint with the values of another loss."""
    for a, b in zip(there, here, strict=True):
        if not np.isclose(a, b, rtol=SAME, atol=1e-6, equal_nan=True):
            raise CompositeFLError(
                f"checkpoint={path} belongs to another run: the loss is another one, {a:.6g} there "
                f"and {b:.6g} here on the same samples",
                parameter="checkpoint",
                value=path,
            )


def _few_samples(problem: Problem, dtype: DType) -> Batch:
    """Samples of the first, the middle and the last client."""
    count = problem.loss.size if isinstance(problem.loss, Coupled) else SAMPLES
    who = tried(problem.clients)
    share, parts = -(-count // len(who)), []
    for client in who:
        batch = problem.clients[client]
        rows = np.arange(share) % int(problem.sizes[client])  # a small client repeats its samples
        parts.append(jax.tree.map(lambda a, rows=rows: np.asarray(a)[rows], batch))
    return jax.tree.map(lambda *a: floats_to(dtype, np.concatenate(a)[:count]), *parts)


@partial(jax.jit, static_argnums=0)
def _compiled(loss: Loss, params: Params, batch: Batch) -> Array:
    return loss(params, batch)
