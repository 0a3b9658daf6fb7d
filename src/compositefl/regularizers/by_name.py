"""Different regularisers for different leaves, chosen by name."""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from functools import reduce

import jax
import jax.numpy as jnp

from compositefl.core.component import component, same
from compositefl.core.errors import CompositeFLError, is_concrete
from compositefl.core.trees import named_leaves
from compositefl.core.types import Number, Params
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.elementary import Zero
from compositefl.regularizers.entries import Entries


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
    def rho(self) -> Number:
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

    def _parts(self, x: Params) -> list[tuple[Regularizer, Params]]:
        """Each regulariser with x as it sees it: the leaves of others are None, that is, absent."""
        owned = [(self._owner(name), leaf) for name, leaf in named_leaves(x)]

        def part(pattern: str) -> Params:
            mine = [leaf if owner == pattern else None for owner, leaf in owned]
            return jax.tree.unflatten(jax.tree.structure(x), mine)

        return [(regularizer, part(pattern)) for pattern, regularizer in self.rules.items()]

    def check_tree(self, x: Params) -> None:
        self._check_patterns([name for name, _ in named_leaves(x)])
        for regularizer, part in self._parts(x):
            regularizer.check_tree(part)

    def _check_patterns(self, names: list[str]) -> None:
        """Refuse a pattern that names no leaf, or only leaves that another pattern took before."""
        owners = {name: self._owner(name) for name in names}
        for pattern in self.rules:
            if pattern == "*" or pattern in owners.values():
                continue
            takers = {owner for name, owner in owners.items() if fnmatchcase(name, pattern)}
            if not takers:
                raise CompositeFLError(
                    f"ByName: pattern '{pattern}' matches no parameter; there are "
                    f"{', '.join(repr(name) for name in names)}"
                )
            if not all(same(self.rules[taker], self.rules[pattern]) for taker in takers):
                raise CompositeFLError(
                    f"ByName: all that pattern '{pattern}' matches was taken by "
                    f"{', '.join(repr(taker) for taker in sorted(takers))} before it; the first "
                    "match wins, so put it first"
                )

    def with_fields(self, changes: Mapping[str, Entries]) -> "ByName":
        """A copy with other numbers in some fields of the parts.

        "weight" is set in every part that has a weight; "*kernel.weight" in that of the pattern
        "*kernel" alone.
        """
        rules = dict(self.rules)
        own: dict[str, dict[str, Entries]] = {pattern: {} for pattern in rules}
        for name, value in changes.items():
            for pattern, field in self._places(name):
                own[pattern][field] = value
        return ByName({p: r.with_fields(own[p]) if own[p] else r for p, r in rules.items()})

    def _places(self, name: str) -> list[tuple[str, str]]:
        """The parts, by pattern, that a name of a field speaks of, and the field's name there."""
        for pattern in sorted(self.rules, key=len, reverse=True):
            if name.startswith(f"{pattern}."):
                return [(pattern, name.removeprefix(f"{pattern}."))]
        places = [(pattern, name) for pattern, part in self.rules.items() if part.has_field(name)]
        if not places:
            known = ", ".join(self.field_names()) or "none"
            raise CompositeFLError(f"ByName: no part has the field '{name}'; there are {known}")
        return places

    def field_names(self) -> list[str]:
        return [f"{p}.{field}" for p, part in self.rules.items() for field in part.field_names()]

    def has_field(self, name: str) -> bool:
        return any(part.has_field(name) for part in self.rules.values())

    def value(self, x: Params) -> Number:
        return sum((r.value(part) for r, part in self._parts(x)), 0.0)

    def prox(self, z: Params, t: Number) -> Params:
        def present(*leaves: jax.Array | None) -> jax.Array | None:
            return next((leaf for leaf in leaves if leaf is not None), None)

        parts = [r.prox(part, t) for r, part in self._parts(z)]
        return jax.tree.map(present, *parts, is_leaf=lambda leaf: leaf is None)


def unpenalized(phi: Regularizer, patterns: Collection[str]) -> Regularizer:
    """phi without a weight on the leaves whose names match one of the patterns."""
    rules = phi.rules if isinstance(phi, ByName) else {"*": phi}
    return ByName({**{pattern: Zero() for pattern in patterns}, **rules}) if patterns else phi
