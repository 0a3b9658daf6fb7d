"""What a fit ends with: the solutions of a path, and the way back to original units."""

from dataclasses import dataclass

import numpy as np

from compositefl.glm.scaling import Scaling
from compositefl.glm.spec import Spec

Array = np.ndarray


@dataclass
class Path:
    """Solutions for all alphas. Arrays are by problem and alpha, in standard units."""

    alphas: Array
    x: Array  # (problems, alphas, entries)
    loss: Array
    residual: Array  # relative to the gradient at the start
    scaling: Scaling
    rows: float
    alpha_max: float
    enough: float  # the residual that counts as converged: the tolerance, or what rounding leaves


def in_original_units(spec: Spec, path: Path, x: Array) -> tuple[Array, Array]:
    """(intercepts (..., k), coefficients (..., p, k)) of solutions (..., entries).

    With several classes what is not penalised is known up to a constant, the same for all classes:
    its mean over the classes is made zero.
    """
    k, p = spec.family.outputs(spec.classes), len(path.scaling.scale)
    b = x[..., k : k + p * k].reshape(*x.shape[:-1], p, k)
    intercept, b = path.scaling.to_original(x[..., :k], b)
    if k > 1:
        loose = np.zeros(p, bool) if spec.factors is None else spec.factors == 0
        if spec.penalty is None and not isinstance(spec.alphas, int) and not np.any(spec.alphas):
            loose[:] = True
        if not spec.bounded:
            b = np.where(loose[:, None], b - b.mean(axis=-1, keepdims=True), b)
        intercept = intercept - intercept.mean(axis=-1, keepdims=True)
    if spec.bounded:  # which dividing by the scale may miss by a rounding
        b = np.clip(b, _column(spec.lower), _column(spec.upper))
    return intercept if spec.intercept else np.zeros_like(intercept), b


def _column(bound: Array | None) -> Array | None:
    return None if bound is None else bound[:, None]
