"""Group lasso and sparse group lasso: whole rows, columns, channels or listed groups vanish."""

import math
from collections.abc import Sequence
from types import EllipsisType
from typing import TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.core.component import component, static
from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.core.types import Number
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.entries import Entries
from compositefl.regularizers.operators import cast_like, safe_sqrt, soft_threshold, square_scale

Groups: TypeAlias = str | Sequence[int] | np.ndarray  # one of `GROUPS`, or the group of each entry
GROUPS = ("rows", "columns", "channels", "filters")
GROUP_WEIGHTS = ("one", "sqrt-size")


class _Grouped(Regularizer):
    """What both group penalties share: norms of groups, their weights, and the group shrinkage.

    `groups` says what a group is:

    - "rows": leaf[i, :] of a matrix;
    - "columns": leaf[:, j] of a matrix;
    - "channels": leaf[..., j], all that feeds one output: a filter of an HWIO kernel, a neuron of
      an (in, out) matrix, one entry of a bias;
    - "filters": leaf[j, ...], the same in PyTorch's order: (out, in, height, width), (out, in);
    - a sequence of whole numbers, the group of each entry of a leaf, in the leaf's order.

    `group_weights` is "one" (w_g = 1) or "sqrt-size" (w_g = square root of the group's size).
    """

    groups: Groups
    group_weights: str

    def _check_groups(self) -> None:
        if isinstance(self.groups, str):
            if self.groups not in GROUPS:
                raise unknown_name("groups", self.groups, GROUPS)
        else:
            ids = np.asarray(self.groups)
            if ids.ndim != 1 or ids.size == 0 or not np.issubdtype(ids.dtype, np.integer):
                raise CompositeFLError(
                    f"groups must be one of {', '.join(GROUPS)} or a list of whole numbers, "
                    "one for each entry"
                )
            object.__setattr__(self, "groups", tuple(ids.tolist()))
        if self.group_weights not in GROUP_WEIGHTS:
            raise unknown_name("group_weights", self.group_weights, GROUP_WEIGHTS)

    def leaf_problem(self, shape: tuple[int, ...]) -> str | None:
        if self.groups in ("rows", "columns"):
            return None if len(shape) == 2 else f"has no {self.groups}: they need a matrix"
        if self.groups in ("channels", "filters"):
            return None if shape else f"has no {self.groups}: they need at least one axis"
        size = len(self.groups)
        fits = math.prod(shape) == size
        return None if fits else f"does not fit {size} group ids: it must have {size} entries"

    def _norms(self, x: jax.Array) -> tuple[jax.Array, jax.Array, np.ndarray | EllipsisType]:
        """Norms of the groups, their weights w_g, and the group's number of each entry."""
        sizes: int | np.ndarray
        entry: np.ndarray | EllipsisType
        if isinstance(self.groups, str):
            axes = {
                "rows": (1,),
                "columns": (0,),
                "channels": tuple(range(x.ndim - 1)),
                "filters": tuple(range(1, x.ndim)),
            }[self.groups]
            sizes = math.prod(x.shape[axis] for axis in axes)
            scale = square_scale(jnp.max(jnp.abs(x), axes, keepdims=True, initial=0))
            squares = jnp.sum((x / scale) ** 2, axes, keepdims=True)
            entry = ...
        else:
            _, entry = np.unique(self.groups, return_inverse=True)
            sizes = np.bincount(entry)
            flat, count = x.ravel(), len(sizes)
            scale = square_scale(jax.ops.segment_max(jnp.abs(flat), entry, num_segments=count))
            squares = jax.ops.segment_sum((flat / scale[entry]) ** 2, entry, num_segments=count)
        weights = np.sqrt(sizes) if self.group_weights == "sqrt-size" else 1.0
        return scale * safe_sqrt(squares), cast_like(weights, x), entry

    def _sum_of_norms(self, x: jax.Array) -> jax.Array:
        norms, weights, _ = self._norms(x)
        return jnp.sum(weights * norms)

    def _shrink(self, z: jax.Array, u: Number) -> jax.Array:
        """z_g max(1 - u w_g / ||z_g||, 0); exactly 0 for ||z_g|| <= u w_g, exactly z for u = 0."""
        norms, weights, entry = self._norms(z)
        cut = cast_like(u, z) * weights
        safe = jnp.maximum(jnp.maximum(norms, cut), jnp.finfo(z.dtype).tiny)
        factor: jax.Array = (1 - cut / safe)[entry]
        return z * (factor if entry is ... else factor.reshape(z.shape))


@component
class GroupLasso(_Grouped):
    """phi(x) = weight * sum_g w_g ||x_g||_2: whole groups vanish together.

    prox_t(z)_g = z_g max(1 - t weight w_g / ||z_g||, 0), and 0 if z_g = 0. rho = 0, any t.
    `groups` is "rows", "columns", "channels" (the last axis), "filters" (the first axis) or one
    group number for each entry of a leaf; `group_weights` is "one" (w_g = 1) or "sqrt-size".
    """

    weight: Number
    groups: Groups = static(default="rows")
    group_weights: str = static(default="one")

    def __post_init__(self) -> None:
        self.require_nonnegative("weight")
        self._check_groups()

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return self.weight * self._sum_of_norms(x)

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        return self._shrink(z, t * self.weight)


@component
class SparseGroupLasso(_Grouped):
    """phi(x) = l1 * ||x||_1 + l2 * sum_g w_g ||x_g||_2: few groups, and few entries in them.

    prox_t(z): first y = sign(z) max(|z| - t l1, 0), then y_g max(1 - t l2 w_g / ||y_g||, 0).
    rho = 0, any t. `groups` and `group_weights` as in GroupLasso; l1 may have a number for every
    entry.
    """

    l1: Entries
    l2: Number
    groups: Groups = static(default="rows")
    group_weights: str = static(default="one")
    per_entry = ("l1",)

    def __post_init__(self) -> None:
        self.require_nonnegative("l1", "l2")
        self._check_groups()

    def leaf_value(self, x: jax.Array) -> jax.Array:
        return jnp.sum(self.l1 * jnp.abs(x)) + self.l2 * self._sum_of_norms(x)

    def leaf_prox(self, z: jax.Array, t: Number) -> jax.Array:
        return self._shrink(soft_threshold(z, t * self.l1), t * self.l2)
