"""A federated problem: clients' data, the model's loss and the starting point."""

import copy
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.core.errors import CompositeFLError, require_integer, wrong_value
from compositefl.core.types import Accuracy, Batch, DType, Loss, Params
from compositefl.problem.clients import (
    OnDemand,
    Stacked,
    check_test,
    checked_data,
    checked_sizes,
)
from compositefl.problem.losses import Coupled, External, uncoupled
from compositefl.problem.mean_loss import require_mean


class DataIdentity:
    """Stands for a problem's data: the same object in all problems that share them.

    Engines keep what they made of the data under it, for as long as a problem has it.
    """


class Problem:
    """f(x) = sum_i w_i f_i(x), f_i the mean of `loss` over client i's samples.

    loss(params, batch) -> scalar: the mean loss of a batch, differentiable in params.
    params: any pytree of arrays, the starting point.
    clients: a sequence of batches, pytrees whose leading axis is the samples; clients may hold
        different numbers of samples. What `compositefl.data.partition` returns is such a sequence;
        `Stacked(batch, offsets)` is one for clients that lie one after the other in one batch,
        `OnDemand(client, sizes)` one for clients that are read or made when they are wanted.
    test, accuracy: optional test batch and accuracy(params, batch) -> scalar mean over the batch.
    coupled_batch: for a loss that is no mean over samples, because the samples of a batch depend
        on each other (batch normalisation). f_i is then the mean of `loss` over the batches of
        this many consecutive samples of the client; its last batch ends with its last sample and
        may overlap the one before. Minibatches of that size estimate it. So is accuracy.
    eval_samples: the history is computed from this many samples of each client, a fixed random
        subset, where all would take too long. None: all.
    eval_clients: likewise from this many clients, a fixed random subset, whose f is then that of
        the history. None: all.
    """

    def __init__(
        self,
        loss: Loss,
        params: Params,
        clients: Sequence[Batch],
        *,
        test: Batch = None,
        accuracy: Accuracy | None = None,
        coupled_batch: int | None = None,
        eval_samples: int | None = None,
        eval_clients: int | None = None,
    ):
        self.loss = loss
        self.params = jax.tree.map(np.asarray, params)
        self.clients, self.test = clients, test = checked_data(clients, test)
        self.accuracy = accuracy
        self.data = DataIdentity()
        self.short_start = False  # params have fewer digits than float64
        self._check_params()
        first = clients[0]  # a partition copies on every access
        self.sizes = checked_sizes(clients)
        if test is not None:
            check_test(test)
        self._check_loss(first)
        if coupled_batch is not None:
            require_integer(2, coupled_batch=coupled_batch)
            self.loss = Coupled(loss, int(coupled_batch))
            self.accuracy = accuracy and Coupled(accuracy, int(coupled_batch))
        else:
            require_mean(loss, self.params, clients, self.sizes)
        if eval_samples is not None:
            require_integer(eval_samples=eval_samples)
            eval_samples = int(eval_samples)
        self.eval_samples = eval_samples
        if eval_clients is not None:
            require_integer(eval_clients=eval_clients)
            eval_clients = int(eval_clients)
            if eval_clients > len(self.sizes):
                raise wrong_value("eval_clients", eval_clients, f"in 1..{len(self.sizes)}")
        self.eval_clients = eval_clients

    def __repr__(self) -> str:
        shapes = jax.tree.map(lambda a: tuple(a.shape), self.params)
        return (
            f"Problem({len(self.clients)} clients, {self.sizes.sum()} samples, "
            f"{self.parameter_count} parameters {shapes})"
        )

    @property
    def compiles(self) -> bool:
        """Whether JAX can compile the loss."""
        return not isinstance(uncoupled(self.loss), External)

    @property
    def parameter_count(self) -> int:
        """The number of parameters."""
        return sum(a.size for a in jax.tree.leaves(self.params))

    def gradient(self, x: Params, batch: Batch) -> Params:
        """The gradient of the mean loss of a batch."""
        loss = uncoupled(self.loss)
        if isinstance(loss, External):
            return loss.value_and_gradient(jax.device_get(x), batch)[1]
        return jax.grad(self.loss)(x, jax.tree.map(jnp.asarray, batch))

    def with_params(self, params: Params) -> "Problem":
        """The same problem with another starting point; the data are shared."""
        other = copy.copy(self)
        other.params = jax.tree.map(np.asarray, params)
        other._check_params()
        return other

    @property
    def evaluated_clients(self) -> np.ndarray:
        """The clients that the history is computed from."""
        everyone = np.arange(len(self.sizes))
        if self.eval_clients is None:
            return everyone
        return np.sort(np.random.default_rng(0).permutation(everyone)[: self.eval_clients])

    def for_evaluation(self) -> "Problem":
        """The problem whose f the history shows: `eval_clients` with `eval_samples` each."""
        problem = self
        if self.eval_clients is not None:
            problem = self._only(self.evaluated_clients)
        return problem if self.eval_samples is None else problem._thinned(self.eval_samples)

    def _only(self, who: np.ndarray) -> "Problem":
        """The problem of some of the clients."""
        other, clients = copy.copy(self), self.clients
        other.data, other.sizes, other.eval_clients = DataIdentity(), self.sizes[who], None
        if isinstance(clients, (Stacked, OnDemand)):
            other.clients = clients.only(who)
        else:
            other.clients = [clients[i] for i in who]
        return other

    def _thinned(self, most: int) -> "Problem":
        """The problem with at most `most` samples of each client."""
        other, rng = copy.copy(self), np.random.default_rng(0)
        other.data, other.sizes = DataIdentity(), np.minimum(self.sizes, most)
        if isinstance(self.clients, (Stacked, OnDemand)):
            other.clients = self.clients.sample(most)
            return other
        other.clients = []
        for client, size in zip(self.clients, self.sizes, strict=True):
            rows = np.sort(rng.permutation(size)[:most])
            other.clients.append(jax.tree.map(lambda a, rows=rows: np.asarray(a)[rows], client))
        return other

    def start(self, dtype: DType) -> Params:
        """The starting point in the given floating-point type."""
        return jax.tree.map(lambda a: jnp.asarray(a, dtype), self.params)

    def _check_params(self) -> None:
        leaves = jax.tree_util.tree_leaves_with_path(self.params)
        if not leaves:
            raise CompositeFLError("params has no arrays")
        for path, leaf in leaves:
            name = jax.tree_util.keystr(path) or "params"
            if not np.issubdtype(leaf.dtype, np.floating):
                raise CompositeFLError(
                    f"params{name} has dtype {leaf.dtype}; parameters must be floating-point"
                )
            if not np.all(np.isfinite(leaf)):
                raise CompositeFLError(f"params{name} contains NaN or infinity")
        self.short_start = any(leaf.dtype.itemsize < 8 and np.any(leaf) for _, leaf in leaves)

    def _check_loss(self, client: Batch) -> None:
        if not callable(self.loss):
            raise wrong_value(
                "loss", self.loss, "a function loss(params, batch)", shown=repr(self.loss)
            )
        if isinstance(self.loss, External):
            self.loss.check(jax.tree.map(lambda a: np.resize(a, (2, *np.shape(a)[1:])), client))
            return
        batch = jax.tree.map(lambda a: np.asarray(a)[:1], client)
        out = jax.eval_shape(self.loss, self.params, batch)
        shape = getattr(out, "shape", None)
        if shape != ():
            raise CompositeFLError(
                f"loss(params, batch) returned {out}; it must return a scalar, the mean loss"
            )
        if not jnp.issubdtype(out.dtype, jnp.floating):
            raise CompositeFLError(
                f"loss(params, batch) returned {out.dtype} numbers for data of "
                f"{', '.join(str(a.dtype) for a in jax.tree.leaves(batch))}; it must return a real "
                "number with a fraction, the mean loss"
            )
