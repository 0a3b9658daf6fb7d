"""The first half of the demo: five hospitals, and the coefficients of their pooled table."""

import warnings
from dataclasses import dataclass
from textwrap import fill

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression as PooledLogisticRegression
from sklearn.preprocessing import StandardScaler

from compositefl.cli.tables import TERMINAL
from compositefl.linear_model import LogisticRegression

SITES = 5
ALPHA = 0.01


@dataclass(frozen=True)
class Hospitals:
    """What the demo shows."""

    model: LogisticRegression
    shares: list[float]  # of malignant tumours, by hospital
    rows: int
    difference: float  # largest, of coefficients per standard deviation, to scikit-learn's
    largest: float  # coefficient per standard deviation


def fit_hospitals() -> Hospitals:
    """Tumours sorted by size over five hospitals, one sparse logistic regression of all."""
    x, benign = load_breast_cancer(return_X_y=True, as_frame=True)
    y = 1 - benign.to_numpy()
    order = x["mean radius"].rank(method="first").to_numpy().astype(int) - 1
    hospital = order * SITES // len(y)
    model = LogisticRegression(ALPHA).fit(x, y, sites=hospital)
    units = StandardScaler().fit(x)
    with warnings.catch_warnings():  # scikit-learn's names of penalties change with its version
        warnings.simplefilter("ignore", FutureWarning)
        pooled = PooledLogisticRegression(
            penalty="elasticnet",
            l1_ratio=1.0,
            C=1 / (ALPHA * len(y)),
            solver="saga",
            tol=1e-10,
            max_iter=100_000,
            random_state=0,
        ).fit(units.transform(x), y)
    found = model.coef_ * units.scale_
    return Hospitals(
        model,
        [float(y[hospital == site].mean()) for site in range(SITES)],
        len(y),
        float(np.abs(found - pooled.coef_).max()),
        float(np.abs(found).max()),
    )


def show_hospitals() -> None:
    """Fit, and say what came out."""
    made = fit_hospitals()
    model = made.model
    shares = ", ".join(f"{share:.0%}" for share in made.shares)
    used = int(np.sum(model.coef_ != 0))
    for text in (
        f"Five hospitals. {made.rows} tumours (breast_cancer of scikit-learn), sorted by size: "
        f"{shares} of theirs are malignant. A logistic regression with an l1 penalty over all of "
        "them; a hospital sends sums over its rows.",
        f"- {model.n_iter_} rounds, {model.bytes_up_ / 1e6:.1f} MB sent by all hospitals; "
        f"{used} of {model.coef_.size} coefficients are not zero.",
        f"- Largest difference to scikit-learn's fit of the pooled table: {made.difference:.0e}, "
        f"of coefficients up to {made.largest:.1f} (per standard deviation).",
    ):
        print(fill(text, TERMINAL, subsequent_indent="  " if text.startswith("-") else ""))
    print()
