"""Different regularisers for different leaves, chosen by name."""

from collections import OrderedDict
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import reduce
from typing import Any

import jax
import jax.numpy as jnp

from compositefl.core.component import component
from compositefl.core.errors import CompositeFLError, is_concrete
from compositefl.core.trees import named_leaves
from compositefl.regularizers.base import Regularizer


@component
class ByName(Regularizer):
    """phi(x) = the sum of the regularisers in `rules`, each on the leaves whose names it matches.

    A name is the path of a leaf, such as "layers/0/kernel"; patterns are those of fnmatch ("*" is
    any text, "/" included) and the first match wins. A regulariser sees its leaves jointly, so an
    L2Ball binds the norm of all of them together. rho is the largest of the parts.

    Biases unpenalised, first kernel of low rank, all else sparse:

        ByName({"*bias": Zero(), "layers/0/kernel": NuclearNorm(0.1), "*": L1(0.01)})
    """

    rules: Mapping[str, Regularizer]

    def __post_init__(self) -> None:
        rules = self.rules
        if not isinstance(rules, Mapping) or not rules:
            raise CompositeFLError("ByName takes a dict {pattern: regularizer, ...}, not empty")
        for pattern, regularizer in rules.items():
            if not isinstance(pattern, str) or not isinstance(regularizer, Regularizer):
                raise CompositeFLError(
                    f"ByName: {pattern!r}: {regularizer!r} is not a pair of a name pattern and "
                    "a regularizer"
                )
        # JAX sorts the keys of a plain dict, and here the order matters.
        object.__setattr__(self, "rules", OrderedDict(rules))

    @property
    def convex(self) -> bool:  # type: ignore[override]
        return all(r.convex for r in self.rules.values())

    @property
    def indicator(self) -> bool:  # type: ignore[override]
        return all(r.indicator for r in self.rules.values())

    @property
    def constrains(self) -> bool:  # type: ignore[override]
        return any(r.constrains for r in self.rules.values())

    @property
    def is_separable(self) -> bool:  # type: ignore[override]
        return all(r.is_separable for r in self.rules.values())

    @property
    def rho(self) -> Any:
        rhos = [r.rho for r in self.rules.values()]
        return max(rhos) if all(map(is_concrete, rhos)) else reduce(jnp.maximum, rhos)

    def _owner(self, name: str) -> str:
        for pattern in self.rules:
            if fnmatchcase(name, pattern):
                return pattern
        raise CompositeFLError(
            f"ByName: leaf '{name}' matches none of {', '.join(self.rules)}; "
            'add a "*" pattern for the rest, for example "*": Zero()'
        )

    def _parts(self, x: Any) -> list[tuple[Regularizer, Any]]:
        """Each regulariser with x as it sees it: the leaves of others are None, that is, absent."""
        owned = [(self._owner(name), leaf) for name, leaf in named_leaves(x)]

        def part(pattern: str) -> Any:
            mine = [leaf if owner == pattern else None for owner, leaf in owned]
            return jax.tree.unflatten(jax.tree.structure(x), mine)

        return [(regularizer, part(pattern)) for pattern, regularizer in self.rules.items()]

    def check_tree(self, x: Any) -> None:
        for regularizer, part in self._parts(x):
            regularizer.check_tree(part)

    def value(self, x: Any) -> Any:
        return sum((r.value(part) for r, part in self._parts(x)), 0.0)

    def prox(self, z: Any, t: Any) -> Any:
        def present(*leaves: Any) -> Any:
            return next((leaf for leaf in leaves if leaf is not None), None)

        parts = [r.prox(part, t) for r, part in self._parts(z)]
        return jax.tree.map(present, *parts, is_leaf=lambda leaf: leaf is None)
