"""Regularisers phi: value, prox, weak-convexity modulus. One file a family."""

import dataclasses
from collections.abc import Collection
from typing import Any

from compositefl.core.component import is_static
from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.core.resolve import is_reference, resolve
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.by_name import ByName
from compositefl.regularizers.constraints import Box, L1Ball, L2Ball, NonNegative, Simplex
from compositefl.regularizers.elementary import L1, ElasticNet, SquaredL2, Zero
from compositefl.regularizers.groups import GroupLasso, SparseGroupLasso
from compositefl.regularizers.matrices import NuclearNorm
from compositefl.regularizers.nonconvex import MCP, SCAD, LogSum, TransformedL1
from compositefl.regularizers.norms import LInf
from compositefl.regularizers.total_variation import TotalVariation1D
from compositefl.regularizers.two_four import TwoFour

__all__ = [
    "L1",
    "MCP",
    "REGULARIZERS",
    "SCAD",
    "Box",
    "ByName",
    "ElasticNet",
    "GroupLasso",
    "L1Ball",
    "L2Ball",
    "LInf",
    "LogSum",
    "NonNegative",
    "NuclearNorm",
    "Regularizer",
    "Simplex",
    "SparseGroupLasso",
    "SquaredL2",
    "TotalVariation1D",
    "TransformedL1",
    "TwoFour",
    "Zero",
    "parse",
]

REGULARIZERS: dict[str, type[Regularizer]] = {
    "zero": Zero,
    "l1": L1,
    "squared-l2": SquaredL2,
    "elastic-net": ElasticNet,
    "mcp": MCP,
    "scad": SCAD,
    "log-sum": LogSum,
    "transformed-l1": TransformedL1,
    "group-lasso": GroupLasso,
    "sparse-group-lasso": SparseGroupLasso,
    "nuclear-norm": NuclearNorm,
    "linf": LInf,
    "box": Box,
    "nonnegative": NonNegative,
    "l2-ball": L2Ball,
    "l1-ball": L1Ball,
    "simplex": Simplex,
    "total-variation": TotalVariation1D,
    "two-four": TwoFour,
}


def parse(text: str, modules: Collection[str] | None = None) -> Regularizer:
    """The regulariser that `text` names: "l1:0.1", "elastic-net:0.001,0.01", "box:-1,1", "zero".

    One's own: "package.module:Name:0.1", or "package.module:Name" if it needs no parameters.
    modules: those that may be imported for it, None for all.
    """
    name, rest = _split(text)
    own = is_reference(name)
    if not own and name not in REGULARIZERS:
        raise unknown_name("regularizer", name, REGULARIZERS)
    cls = resolve(name, Regularizer, modules=modules) if own else REGULARIZERS[name]
    fields = dataclasses.fields(cls)  # type: ignore[arg-type]
    words = [word.strip() for word in rest.split(",")] if rest.strip() else []
    required = sum(f.default is dataclasses.MISSING for f in fields)
    if not required <= len(words) <= len(fields):
        expected = [
            f.name if f.default is dataclasses.MISSING else f"[{f.name}={f.default}]"
            for f in fields
        ]
        wanted = f"{name}:{','.join(expected)}" if fields else f"{name}, without parameters"
        raise CompositeFLError(f"'{text}' has {len(words)} parameters; expected {wanted}")

    def convert(field: dataclasses.Field[Any], word: str) -> float | str:
        if is_static(field):
            return word
        try:
            return float(word)
        except ValueError:
            raise CompositeFLError(f"'{text}': {field.name}={word} is not a number") from None

    pairs = zip(fields, words, strict=False)
    return cls(**{field.name: convert(field, word) for field, word in pairs})


def _split(text: str) -> tuple[str, str]:
    """The name and the parameters of "l1:0.1" or "package.module:Name:0.1"."""
    name, _, rest = (part.strip() for part in text.partition(":"))
    if name in REGULARIZERS:
        return name, rest
    word, _, numbers = (part.strip() for part in rest.partition(":"))
    reference = f"{name}:{word}"
    return (reference, numbers) if is_reference(reference) else (name, rest)
