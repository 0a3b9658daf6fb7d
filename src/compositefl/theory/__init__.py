"""The papers' theorems as code: step sizes, bounds, and estimates of the constants in them."""

from compositefl.theory.base import Constants, StepSizes, Theorem
from compositefl.theory.estimation import Estimate, Quantity, estimate
from compositefl.theory.rules import THEOREMS, note_outside, stepsizes, with_theory_steps

__all__ = [
    "THEOREMS",
    "Constants",
    "Estimate",
    "Quantity",
    "StepSizes",
    "Theorem",
    "estimate",
    "note_outside",
    "stepsizes",
    "with_theory_steps",
]
