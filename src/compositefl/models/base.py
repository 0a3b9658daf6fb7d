"""A model: pure functions to start it, apply it, and measure its loss and accuracy."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.core.arrays import as_arrays
from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Array, Batch, Loss, Params
from compositefl.models.layers import Network
from compositefl.problem import External, OnDemand, Problem, checked_data, pieces

FOR_NUMBERS = "for numbers to predict: linear_regression, or cfl.Problem with a loss of your own"


def squared(outputs: jax.Array, y: jax.Array) -> jax.Array:
    """(output - y)^2 / 2."""
    return 0.5 * jnp.square(outputs - y)


def logistic(logits: jax.Array, y: jax.Array) -> jax.Array:
    """ln(1 + exp(-b z)) with b = 2 y - 1, y in {0, 1}; finite for every z."""
    sign = 1 - 2 * jnp.asarray(y, logits.dtype)  # in floats: unsigned labels would wrap around
    return jax.nn.softplus(sign * logits)


def sigmoid_squared(logits: jax.Array, y: jax.Array) -> jax.Array:
    """||sigmoid(logits) - e_y||^2 / 2, e_y being 1 at the label and 0 elsewhere."""
    wanted = jax.nn.one_hot(y, logits.shape[-1], dtype=logits.dtype)
    return 0.5 * jnp.sum(jnp.square(jax.nn.sigmoid(logits) - wanted), axis=-1)


def cross_entropy(logits: jax.Array, y: jax.Array) -> jax.Array:
    """-ln softmax(logits)_y."""
    import optax  # here: loading it takes a third of a second

    return optax.softmax_cross_entropy_with_integer_labels(logits, y)


@dataclasses.dataclass(frozen=True)
class Model:
    """A model as the functions a `Problem` needs.

    init(key) -> params; apply(params, x) -> outputs; loss(params, batch) -> mean loss;
    accuracy(params, batch) -> fraction of right answers, or None. A batch is (x, y).
    classes: labels are whole numbers below it; None for regression.
    coupled: the samples of a batch depend on each other (batch normalisation).
    """

    name: str
    init: Callable[[jax.Array], Params]
    apply: Callable[[Params, Array], Array]
    loss: Loss
    accuracy: Callable[[Params, Batch], Array] | None = None
    classes: int | None = None
    coupled: bool = False

    def __repr__(self) -> str:
        return f"Model('{self.name}', {self.parameter_count():,} parameters)"

    def parameter_count(self) -> int:
        shapes = jax.eval_shape(self.init, jax.random.key(0))
        return sum(leaf.size for leaf in jax.tree.leaves(shapes))

    def problem(
        self, clients: Sequence[Batch], test: Batch = None, seed: int = 0, **options: Any
    ) -> Problem:
        """The federated problem of fitting this model to the clients' batches.

        options: of `Problem`. A coupled model takes coupled_batch=32 by default.
        """
        if self.coupled:
            options = {"coupled_batch": 32} | options

        clients, test = checked_data(clients, test)
        if isinstance(clients, OnDemand):
            clients = clients.with_check(self._check_targets)
        for name, batch in pieces(clients):
            self._check_targets(name, batch)
        if test is not None:
            self._check_targets("the test set", test)
        params = self.init(jax.random.key(seed))
        made = Problem(self.loss, params, clients, test=test, accuracy=self.accuracy, **options)
        made.short_start = False  # a random start or zero has no digits to lose
        return made

    def _check_targets(self, who: str, batch: Batch) -> None:
        for part in unpack(batch):
            if isinstance(part, (tuple, list, Mapping)) and isinstance(self.loss, External):
                raise CompositeFLError(
                    f"{who}: {self.name} takes one array of inputs and one of targets; put several "
                    "inputs side by side and split them in forward"
                )
            if np.iscomplexobj(part) and isinstance(self.loss, (NetworkLoss, External)):
                raise CompositeFLError(
                    f"{who} has complex numbers; {self.name} takes real ones: the real and the "
                    "imaginary part can be columns of their own"
                )
        y = np.asarray(unpack(batch)[1])
        if isinstance(self.loss, NetworkLoss) and y.ndim > 1:
            what, remedy = "number", "such as y[:, 0], or one column of a table"
            if self.classes is not None:
                what, remedy = "label", "such as y.argmax(axis=1) of rows with a 1 at the label"
            if y.size == len(y):
                remedy = "such as y.ravel(), or one column of a table"
            raise CompositeFLError(
                f"{who}: y has shape {y.shape}; {self.name} takes one {what} per sample, {remedy}"
            )
        if self.classes is not None and y.size:
            self._check_labels(who, y)

    def _check_labels(self, who: str, y: np.ndarray) -> None:
        # compiled code cannot refuse a label, and would take -1 for the last class
        if y.dtype.kind not in "biuf":
            as_arrays(y, who)  # says what to do about names
        assert self.classes is not None
        whole = not np.any(y != np.rint(y))
        if y.min() < 0 or y.max() >= self.classes or not whole:
            others = "" if whole else f" as its classes; {FOR_NUMBERS}"
            raise CompositeFLError(
                f"{who} has labels from {y.min()} to {y.max()}; "
                f"{self.name} takes whole numbers from 0 to {self.classes - 1}{others}"
            )


@dataclasses.dataclass(frozen=True)
class NetworkLoss:
    """The mean over a batch of `function(outputs, y)`.

    An object and not a closure: losses of equal models are equal, so they share compiled programs.
    """

    mean_over_samples: ClassVar[bool] = True  # by construction: need not be tried
    network: Network
    function: Callable[[jax.Array, jax.Array], jax.Array]

    def __call__(self, params: Params, batch: Batch) -> jax.Array:
        return jnp.mean(self.each(params, batch))

    def each(self, params: Params, batch: Batch) -> jax.Array:
        """The loss of each sample of a batch."""
        x, y = unpack(batch)
        return self.function(self.network.apply_to(params, x, np.shape(y)), y)


@dataclasses.dataclass(frozen=True)
class Accuracy:
    """The fraction of a batch whose label is the largest logit, or the sign of the only one."""

    network: Network

    def __call__(self, params: Params, batch: Batch) -> jax.Array:
        return jnp.mean(self.each(params, batch))

    def each(self, params: Params, batch: Batch) -> jax.Array:
        """1 for each sample whose answer is right, else 0."""
        x, y = unpack(batch)
        logits = self.network.apply_to(params, x, np.shape(y))
        answers = logits > 0 if self.network.squeeze else logits.argmax(-1)
        return (answers == y).astype(logits.dtype)


def unpack(batch: Batch) -> tuple[Array, Array]:
    """x and y of a batch, a pair or a mapping."""
    if isinstance(batch, Mapping) and {"x", "y"} <= set(batch):
        return batch["x"], batch["y"]
    if isinstance(batch, (tuple, list)) and len(batch) == 2:
        x, y = batch
        return x, y
    what = f"an array of shape {np.shape(batch)}" if hasattr(batch, "shape") else repr(type(batch))
    raise CompositeFLError(
        f"a batch must be a pair (x, y) or a mapping with 'x' and 'y', not {what}"
    )


@functools.cache
def from_network(
    name: str,
    network: Network,
    function: Callable[[jax.Array, jax.Array], jax.Array],
    classes: int | None,
    coupled: bool = False,
    kind: type[NetworkLoss] = NetworkLoss,
) -> Model:
    """The model of a network and a loss of its outputs; the same object for the same arguments."""
    accuracy = None if classes is None else Accuracy(network)
    loss = kind(network, function)
    return Model(name, network.init, network.apply, loss, accuracy, classes, coupled)
