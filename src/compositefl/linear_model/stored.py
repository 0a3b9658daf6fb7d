"""A fitted model as a JSON file: all that predicting needs, and no samples."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from compositefl.core.errors import CompositeFLError, require_integer, wrong_value
from compositefl.core.types import PlainValues
from compositefl.glm.inference import Inference
from compositefl.linear_model.base import GeneralizedLinearModel
from compositefl.linear_model.by_family import BY_NAME
from compositefl.linear_model.classification import Classifier

KIND = "generalized linear model"
# Beside coefficients, in the order of the file; those that a model has.
NUMBERS = ("alpha_", "alpha_1se_", "l1_ratio_", "alpha_max_", "scale_", "loss_", "residual_")
COUNTS = ("n_iter_", "bytes_up_", "bytes_down_")
ARRAYS = ("means_", "deviations_")


def save_model(
    model: GeneralizedLinearModel, path: str | Path, about: PlainValues | None = None
) -> None:
    """Write a fitted model into the file `path`. about: more to keep, such as the target's name."""
    classes = getattr(model, "classes_", None)
    family = model._family(2 if classes is None else len(classes))
    found = model._inference
    content = {
        "compositefl": KIND,
        "estimator": type(model).__name__,
        "family": family.name,
        "about": about or {},
        "classes": None if classes is None else classes.tolist(),
        "features": list(model._names),
        "intercept": np.asarray(model.intercept_).tolist(),
        "coefficients": np.asarray(model.coef_).tolist(),
        "named": hasattr(model, "feature_names_in_"),
        "sites": model.sites_,
        "parameters": {name: _simple(v) for name, v in model.get_params().items()},
        **{name: float(getattr(model, name)) for name in NUMBERS if hasattr(model, name)},
        **{name: int(getattr(model, name)) for name in COUNTS},
        **{name: getattr(model, name).tolist() for name in ARRAYS},
        "inference": None
        if found is None
        else {
            "estimate": found.estimate.tolist(),
            "covariance": [_without_nan(row) for row in found.covariance],
            "freedom": None if np.isinf(found.freedom) else found.freedom,
        },
    }
    Path(path).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load_model(path: str | Path) -> GeneralizedLinearModel:
    """The fitted model that `save_model` or `compositefl fit` wrote; what was kept is `about_`."""
    path = Path(path)
    if not path.is_file():
        raise CompositeFLError(f"{path} is not a file")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # no JSON, or no text at all
        raise CompositeFLError(f"{path} is no model: {' '.join(str(error).split())}") from None
    if not isinstance(content, dict) or content.get("compositefl") != KIND:
        raise CompositeFLError(f"{path} is no model: compositefl fit writes one, model.json")
    try:
        model = _made(content)
        _check(model)
        return model
    except CompositeFLError as error:
        why = str(error)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"
    raise CompositeFLError(f"{path} is a damaged model, or of another version: {why}")


def _made(content: PlainValues) -> GeneralizedLinearModel:
    model: Any = BY_NAME[content["estimator"]](**content["parameters"])
    names = content["features"]
    model._names, model.n_features_in_ = names, len(names)
    if content["named"]:
        model.feature_names_in_ = np.array(names, dtype=object)
    if content["classes"] is not None:
        model.classes_ = np.array(content["classes"])
    model.coef_ = np.array(content["coefficients"], float)
    intercept = np.array(content["intercept"], float)
    model.intercept_ = intercept if intercept.ndim else float(intercept)
    for name in (*NUMBERS, *COUNTS):
        if name in content:
            setattr(model, name, content[name])
    for name in ARRAYS:
        setattr(model, name, np.array(content[name], float))
    model.sites_, model.about_ = content["sites"], content["about"]
    found = content["inference"]
    model.inference_ = found and Inference(
        np.array(found["estimate"], float),
        np.array(found["covariance"], float),
        np.inf if found["freedom"] is None else float(found["freedom"]),
    )
    return model


def _check(model: Any) -> None:
    """Refuse arrays that do not go together: such a model would predict something, or nothing."""
    names, classes = model._names, getattr(model, "classes_", None)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise CompositeFLError("features must be a list of names")
    if isinstance(model, Classifier) != (classes is not None):
        raise CompositeFLError(f"classes do not go with {type(model).__name__}, or are missing")
    rows: tuple[int, ...] = ()
    if classes is not None:
        if classes.ndim != 1 or len(classes) < 2:
            raise CompositeFLError(f"classes have shape {classes.shape}; they are at least 2")
        if len(set(classes.tolist())) < len(classes):
            raise CompositeFLError(f"classes are {classes.tolist()}; they must differ")
        rows = (1 if len(classes) == 2 else len(classes),)
    p = len(names)
    wanted = {"coef_": (*rows, p), "intercept_": rows, "means_": (p,), "deviations_": (p,)}
    for name, shape in wanted.items():
        found = np.asarray(getattr(model, name))
        if found.shape != shape:
            raise CompositeFLError(f"{name} has shape {found.shape}; it must be {shape}")
        if name in ("coef_", "intercept_") and not np.isfinite(found).all():
            raise CompositeFLError(f"{name} must hold finite numbers")
    if not isinstance(model.sites_, list) or not isinstance(model.about_, dict):
        raise CompositeFLError("sites must be a list, and about entries by names")
    for name in COUNTS:
        require_integer(minimum=0, **{name: getattr(model, name)})
    for name in NUMBERS:
        if not isinstance(getattr(model, name, 0.0), (int, float)):
            raise wrong_value(name, getattr(model, name), "a number")
    found = model.inference_
    if found is not None:
        family = model._family(2 if classes is None else len(classes))
        n = p + bool(family.intercept and model.fit_intercept)
        for name, shape in {"estimate": (n,), "covariance": (n, n)}.items():
            if getattr(found, name).shape != shape:
                raise CompositeFLError(
                    f"{name} has shape {getattr(found, name).shape}; it must be {shape}"
                )


def _without_nan(row: np.ndarray) -> list[float | None]:
    """JSON has no NaN; a covariance that the data do not determine is one."""
    return [float(v) if np.isfinite(v) else None for v in row]


def _simple(value: object) -> Any:
    """A parameter as JSON has it; objects by their text."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [_simple(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, float, str)) else repr(value)
