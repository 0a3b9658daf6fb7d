"""The files of a fit: coefficients, the path, the picture; a page can be made of them later."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from compositefl.core.types import PlainValues
from compositefl.linear_model.base import GeneralizedLinearModel
from compositefl.linear_model.cross_validation import CrossValidated
from compositefl.linear_model.stored import save_model
from compositefl.report import fits

if TYPE_CHECKING:
    import pandas as pd

PER_DEVIATION = "coefficient x deviation"
SCORES = {
    "auc": "AUC",
    "c_index": "C-index",
    "mae": "mean absolute error",
    "mse": "mean squared error",
    "r2": "R²",
}


def write_fit(
    folder: Path,
    model: GeneralizedLinearModel,
    title: str,
    about: PlainValues,
    config: PlainValues,
) -> None:
    """model.json, coefficients.csv, config.json; of a path also path.csv and plot.png.

    about: what model.json keeps, such as the target's name. config: more for config.json.
    """
    folder.mkdir(parents=True, exist_ok=True)
    save_model(model, folder / "model.json", about)
    coefficients(model).to_csv(folder / "coefficients.csv", index=False)
    shown: PlainValues = {"said": [model.summary().title, *said(model)]}
    if isinstance(model, CrossValidated):
        path = path_of(model)
        _path_table(model, path).to_csv(folder / "path.csv", index=False)
        fits.plot(path, folder / "plot.png", title=title)
        shown |= {"score": path.score, "chosen": dict(path.chosen), "unit": path.unit}
        shown["units"] = _units(model).tolist()
    content = config | {"fit": shown}
    (folder / "config.json").write_text(json.dumps(content, indent=2) + "\n")


def coefficients(model: GeneralizedLinearModel) -> "pd.DataFrame":
    """The summary's table with one more column: coefficients per deviation of their features."""
    frame = model.summary().frame.copy()
    spread = dict(zip(model._names, model.deviations_, strict=True))
    at = list(frame.columns).index("coefficient") + 1
    frame.insert(at, PER_DEVIATION, frame["coefficient"] * frame["name"].map(spread))
    return frame


def said(model: GeneralizedLinearModel) -> list[str]:
    """What the numbers say, a line each."""
    if not isinstance(model, CrossValidated):
        note = model.summary().footnote.replace(" (alpha=0)", "")
        return [note] if model._inference is None else []
    score = score_name(model)
    best, one = (
        int(np.argmin(np.abs(model.alphas_ - a))) for a in (model.alpha_, model.alpha_1se_)
    )
    return [
        f"alpha      {model.alpha_:.4g}: {score} {model.cv_mean_[best]:.4g} "
        f"(standard error {model.cv_error_[best]:.2g}), {_nonzero(model, best)}",
        f"alpha_1se  {model.alpha_1se_:.4g}: {score} {model.cv_mean_[one]:.4g} "
        f"(standard error {model.cv_error_[one]:.2g}), {_nonzero(model, one)}",
        *([f"l1_ratio   {model.l1_ratio_:g}"] if np.ndim(model.l1_ratio) else []),
        f"chosen: {'alpha' if model.select == 'best' else 'alpha_1se'} (select: best or 1se)",
    ]


def score_name(model: CrossValidated) -> str:
    """The score of the cross-validation in words."""
    return SCORES.get(model.scoring, model.scoring)


def path_of(model: CrossValidated) -> fits.FitPath:
    """Coefficients of the path per deviation where the penalty counts them so."""
    units = _units(model)
    values = {}
    several = model.coef_path_.ndim == 3
    for c, table in enumerate(model.coef_path_ if several else [model.coef_path_]):
        for j, feature in enumerate(model._names):
            label = f"{model.classes_[c]}: {feature}" if several else feature
            values[label] = table[j] * units[j]
    what = "per standard deviation of the feature" if model.standardize else "in original units"
    return fits.FitPath(
        model.alphas_,
        values,
        model.cv_mean_,
        model.cv_error_,
        score_name(model),
        {"alpha": model.alpha_, "alpha_1se": model.alpha_1se_},
        f"coefficients {what}",
    )


def _units(model: CrossValidated) -> np.ndarray:
    """By which a path's coefficients are multiplied where they are drawn, by feature."""
    return model.deviations_ if model.standardize else np.ones(len(model._names))


def _nonzero(model: CrossValidated, at: int) -> str:
    count = int(np.sum(model.coef_path_[..., at] != 0))
    return f"{count} coefficient{'s' * (count != 1)}"


def _path_table(model: CrossValidated, path: fits.FitPath) -> "pd.DataFrame":
    """A row per alpha: score, number of coefficients, and these in original units."""
    import pandas as pd

    b = model.coef_path_.reshape(-1, len(model.alphas_))
    rows = {
        "alpha": model.alphas_,
        model.scoring: model.cv_mean_,
        "standard error": model.cv_error_,
        "not zero": path.counts,
    }
    return pd.DataFrame(rows | dict(zip(path.values, b, strict=True)))
