"""Names for what signatures speak of."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import jax

PyTree: TypeAlias = Any  # nested containers of arrays
Params: TypeAlias = PyTree  # a model's parameters
Batch: TypeAlias = PyTree  # samples; the leading axis of every array is the sample
Array: TypeAlias = Any  # an array or number of NumPy or JAX, traced or not
Number: TypeAlias = "float | jax.Array"  # a number, or a scalar of JAX, traced or not
DType: TypeAlias = Any  # "float32", "float64" or the type of NumPy
Loss: TypeAlias = Callable[[Params, Batch], Array]  # the mean over the samples of a batch
Accuracy: TypeAlias = Callable[[Params, Batch], Array]  # likewise; higher is better

# What an algorithm keeps and sends, pytrees of `Vector`s and numbers. Each has classes of its own.
ServerState: TypeAlias = PyTree  # what the server keeps from round to round
ClientState: TypeAlias = PyTree  # what a client keeps from round to round, () for nothing
LocalState: TypeAlias = PyTree  # a client's state within a round
Broadcast: TypeAlias = PyTree  # what goes down the wire
Upload: TypeAlias = PyTree  # what goes up the wire
Points: TypeAlias = PyTree  # where gradients are wanted: a `Vector`, or a tuple of them
Answers: TypeAlias = PyTree  # the gradients there, or (loss, gradient), shaped like the points
Extras: TypeAlias = dict[str, PyTree]  # what a method's `begin` asks for besides, by name

HistoryRow: TypeAlias = dict[str, float]  # one evaluation of one run: the columns by name
PlainValues: TypeAlias = dict[str, Any]  # by name, what JSON or TOML can hold
