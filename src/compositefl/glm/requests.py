"""What a site may be asked, checked before anything is computed."""

from typing import Any

import numpy as np

from compositefl.core.errors import CompositeFLError
from compositefl.glm.scores import POINTS, SCORES
from compositefl.glm.site import Request, Site
from compositefl.glm.sites import METHODS
from compositefl.glm.validation import BINS

__all__ = ["METHODS", "answer_shapes", "check_request"]

ENTRIES: dict[str, tuple[set[str], set[str]]] = {  # that a request must have, and may have
    "describe": ({"problems"}, set()),
    "spread": ({"problems", "mean"}, set()),
    "evaluate": (
        {"points", "problems", "hessians", "columns", "mean", "scale", "intercept"},
        {"expected"},
    ),
    "validate": ({"points", "problems", "mean", "scale", "score"}, {"centre", "spread"}),
}


def check_request(site: Site, method: str, request: Request, problems: int) -> None:
    """Refuse a request of a wrong form, or for problems that there are not."""
    needed, possible = ENTRIES[method]
    if not needed <= request.keys() <= needed | possible:
        raise CompositeFLError(f"a request for {method} must have {', '.join(sorted(needed))}")
    p = site.x.shape[1]
    size = (1 + p) * site.outputs + site.family.has_scale
    if method in ("describe", "spread"):
        _require(request["problems"] == problems, f"problems must be {problems}")
    else:
        _check_points(request, size, problems, POINTS if method == "validate" else problems)
    for name in ("mean", "scale"):
        if name in request:
            _check_numbers(name, request[name], (p,))
    if "scale" in request:
        _require((request["scale"] >= 0).all(), "scale must not be negative")
    if method == "evaluate":
        columns, wanted = request["columns"], request["hessians"]
        ok = (
            columns.ndim == 1
            and columns.dtype.kind == "i"
            and len(np.unique(columns)) == len(columns)
        )
        _require(ok and ((columns >= 0) & (columns < p)).all(), "columns must be features")
        _require(wanted.shape == request["problems"].shape, "hessians must be one per problem")
        _require(wanted.dtype == bool, "hessians must be true or false")
        for name in ("intercept", "expected"):
            is_flag = isinstance(request.get(name, False), bool)
            _require(is_flag, f"{name} must be true or false")
    if method == "validate":
        known = {*SCORES[site.family.response], "pearson"}
        _require(request["score"] in known, f"score must be one of {', '.join(sorted(known))}")
        for name in ("centre", "spread"):
            if name in request:
                _check_numbers(name, request[name], request["problems"].shape)


def _check_points(request: Request, size: int, problems: int, most: int) -> None:
    which = request["problems"]
    ok = isinstance(which, np.ndarray) and which.ndim == 1 and which.dtype.kind == "i"
    _require(ok and 0 < len(which) <= most, f"there must be 1 to {most} problems")
    _require(((which >= 0) & (which < problems)).all(), f"problems must be below {problems}")
    _check_numbers("points", request["points"], (len(which), size))


def _check_numbers(name: str, array: Any, shape: tuple[int, ...]) -> None:
    ok = isinstance(array, np.ndarray) and array.dtype == np.float64 and array.shape == shape
    _require(ok, f"{name} must be numbers of shape {shape}")
    _require(np.isfinite(array).all(), f"{name} must be finite")


def _require(condition: object, sentence: str) -> None:
    if not condition:
        raise CompositeFLError(f"refused a request: {sentence}")


def answer_shapes(
    method: str, request: Request, *, features: int, targets: int, outputs: int, scale: bool
) -> dict[str, tuple[int, ...]]:
    """The arrays of an answer and their shapes."""
    if method == "describe":
        q = request["problems"]
        one: tuple[int, ...] = ()
        return {
            "rows": one,
            "weight": (q,),
            "sum_x": (features,),
            "weight_x": (features,),
            "missing": (features,),
            "sum_y": (q, targets),
            "sum_yy": (q, targets),
            "sum_offset": one,
            "saturated": one,
        }
    if method == "spread":
        q = request["problems"]
        return {"sum_z": (q, features), "sum_zz": (q, features)}
    count = len(request["problems"])
    if method == "evaluate":
        entries = (len(request["columns"]) + request["intercept"]) * outputs + scale
        found = int(np.count_nonzero(request["hessians"]))
        return {
            "loss": (count,),
            "gradient": (count, request["points"].shape[1]),
            "hessian": (found, entries * (entries + 1) // 2),
        }
    if "centre" in request:
        return {"positive": (count, BINS), "negative": (count, BINS)}
    names = {
        "deviance": ("deviance",),
        "accuracy": ("right",),
        "auc": ("score", "score_square"),
        "c_index": ("concordant", "comparable"),
        "pearson": ("pearson",),
    }.get(request["score"], ("squared", "absolute", "sum_y", "sum_yy"))
    return {name: (count,) for name in ("weight", *names)}
