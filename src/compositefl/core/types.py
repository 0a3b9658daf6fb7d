"""Names for what signatures speak of."""

from collections.abc import Callable
from typing import Any, TypeAlias

PyTree: TypeAlias = Any  # nested containers of arrays
Params: TypeAlias = PyTree  # a model's parameters
Batch: TypeAlias = PyTree  # samples; the leading axis of every array is the sample
Number: TypeAlias = Any  # a Python or NumPy number, or a scalar or array of JAX, traced or not
Loss: TypeAlias = Callable[[Params, Batch], Any]  # the mean over the samples of a batch
