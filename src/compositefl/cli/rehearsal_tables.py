"""`deploy try` of a federation with [glm]: invented tables, and their fit in this process."""

import numpy as np
import pandas as pd

from compositefl.deployment.federation import Federation
from compositefl.glm.site import Site
from compositefl.glm.sites import LocalSites
from compositefl.linear_model.base import GeneralizedLinearModel

ROWS = 200  # of a site


def invented_tables(federation: Federation) -> list[pd.DataFrame]:
    """A table for every site, random numbers with a rule in them, as family and [data] want it."""
    rng = np.random.default_rng(federation.seed)
    data, glm = federation.data, federation.glm
    assert data is not None and glm is not None
    outputs = max(2, len(data.labels))
    rule = rng.normal(size=(len(data.features), outputs)) / np.sqrt(len(data.features))
    made = []
    for _ in federation.sites:
        x = rng.normal(size=(ROWS, len(data.features)))
        for i, name in enumerate(data.features):
            kind = data.kinds.get(name, "number")
            if kind != "number":
                x[:, i] = np.round(3 * x[:, i]) if kind == "whole" else x[:, i] > 0
        table = pd.DataFrame(x, columns=list(data.features))
        if glm.weight:
            table[glm.weight] = rng.uniform(0.5, 2.0, ROWS)
        if glm.offset:
            table[glm.offset] = rng.normal(scale=0.1, size=ROWS)
        scores = x @ rule
        if data.labels:
            chosen = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
            table[data.target] = np.array(data.labels, object)[chosen]
        else:
            table[data.target] = _response(glm.family, scores[:, 0], rng)
        if glm.event:
            table[glm.event] = (rng.random(ROWS) < 0.7).astype(int)
        made.append(table)
    return made


def _response(family: str, eta: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    mean = np.exp(np.clip(eta, -3, 3))
    if family == "binomial":
        return (rng.random(len(eta)) < mean / (1 + mean)).astype(int)
    if family == "poisson":
        return rng.poisson(mean)
    if family == "gamma":
        return rng.gamma(2.0, mean / 2)
    return rng.exponential(1 / mean) if family == "cox" else eta + rng.normal(size=len(eta))


def fit_here(federation: Federation, tables: list[pd.DataFrame]) -> GeneralizedLinearModel:
    """The fit of these tables in this process."""
    data, glm = federation.data, federation.glm
    assert data is not None and glm is not None
    classes = len(data.labels) or 2
    model = glm.estimator(federation.seed, federation.modules)
    sites = []
    for name, table in zip(federation.sites, tables, strict=True):
        y = table[data.target].to_numpy()
        if data.labels:
            y = np.array([data.labels.index(word) for word in y])
        if glm.event:
            y = np.column_stack([y, table[glm.event]])
        weight, offset = (table[c].to_numpy() if c else None for c in (glm.weight, glm.offset))
        x = table[list(data.features)].to_numpy(float)
        sites.append(Site(name, model._family(classes), x, y, weight, offset, classes))
        if glm.cv:
            sites[-1].draw(glm.cv, federation.seed)
    return model.fit_over(LocalSites(sites), list(data.features), data.labels or None)


def apart(model: GeneralizedLinearModel, other: GeneralizedLinearModel) -> float:
    """The largest difference of two models' coefficients, per deviation of their features."""
    return float(np.abs((model.coef_ - other.coef_) * other.deviations_).max())
