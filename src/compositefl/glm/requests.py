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
    """Refuse a request of a wrong form, or for problems that there are not.

    Whatever a server sends, nothing else than a refusal comes of it, and what is not refused has
    an answer of the shapes that `answer_shapes` says.
    """
    known = isinstance(method, str) and method in ENTRIES
    _require(known, f"it must be one of {', '.join(ENTRIES)}")
    needed, possible = ENTRIES[method]
    fits = needed <= request.keys() <= needed | possible
    _require(fits, f"{method} must have {', '.join(sorted(needed))}")
    p = site.x.shape[1]
    if method in ("describe", "spread"):
        asked = request["problems"]
        _require(type(asked) is int and asked == problems, f"problems must be {problems}")
    else:
        _check_points(site, request, problems, POINTS if method == "validate" else problems)
    for name in ("mean", "scale"):
        if name in request:
            _check_numbers(name, request[name], (p,))
    if "scale" in request:
        _require((request["scale"] >= 0).all(), "scale must not be negative")
    if method == "evaluate":
        _check_evaluate(site, request, p)
    if method == "validate":
        _check_validate(site, request)


def _check_points(site: Site, request: Request, problems: int, most: int) -> None:
    size = (1 + site.x.shape[1]) * site.outputs + site.family.has_scale
    which = request["problems"]
    ok = _is_array(which, "i") and which.ndim == 1 and 0 < len(which) <= most
    _require(ok, f"problems must be 1 to {most} whole numbers")
    _require(((which >= 0) & (which < problems)).all(), f"problems must be below {problems}")
    _check_numbers("points", request["points"], (len(which), size))


def _check_evaluate(site: Site, request: Request, p: int) -> None:
    columns, wanted = request["columns"], request["hessians"]
    ok = _is_array(columns, "i") and columns.ndim == 1
    ok = ok and len(np.unique(columns)) == len(columns)
    _require(ok and ((columns >= 0) & (columns < p)).all(), "columns must be features")
    ok = _is_array(wanted, "b") and wanted.shape == request["problems"].shape
    _require(ok, "hessians must be true or false for each problem")
    for name in ("intercept", "expected"):
        _require(type(request.get(name, False)) is bool, f"{name} must be true or false")
    _require(
        site.family.intercept or not request["intercept"],
        f"intercept must be false for the family {site.family.name}",
    )


def _check_validate(site: Site, request: Request) -> None:
    score, known = request["score"], set(SCORES[site.family.response])
    if site.family.dispersion:
        known.add("pearson")
    if site.classes > 2:
        known.discard("auc")
    _require(
        isinstance(score, str) and score in known,
        f"score must be one of {', '.join(sorted(known))}",
    )
    bins = {"centre", "spread"} & request.keys()
    _require(len(bins) != 1, "centre and spread go together")
    _require(not bins or score == "auc", "centre and spread go with the score auc")
    for name in sorted(bins):
        _check_numbers(name, request[name], request["problems"].shape)


def _check_numbers(name: str, array: Any, shape: tuple[int, ...]) -> None:
    ok = _is_array(array, "f") and array.dtype == np.float64 and array.shape == shape
    _require(ok, f"{name} must be numbers of shape {shape}")
    _require(np.isfinite(array).all(), f"{name} must be finite")


def _is_array(value: Any, kind: str) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == kind


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
            "counted": one,
            "weight": (q,),
            "sum_x": (features,),
            "weight_x": (features,),
            "missing": (features,),
            "sum_y": (q, targets),
            "sum_yy": (q, targets),
            "sum_tilt": (q,),
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
