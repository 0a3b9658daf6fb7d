"""A page with every section there is, from made-up numbers."""

import numpy as np
import pandas as pd

from compositefl.report import sections
from compositefl.report.overview import Shown, data_of_clients, run_sections

WEIGHTS = np.geomspace(1, 0.01, 8)


def history(scale=1.0, trials=3):
    rows = [
        {
            "round": t,
            "trial": k,
            "psi": 1 + scale * (1 + 0.1 * k) / (1 + t),
            "natural_residual_sq": scale * 0.8**t,
            "zeros": t / 40,
            "accuracy": 0.5 + 0.02 * t,
            "bytes_up": 1e6 * t,
            "gradients": 10 * t,
            "seconds": 0.1 * t,
        }
        for t in range(0, 21, 2)
        for k in range(trials)
    ]
    return pd.DataFrame(rows)


def shown():
    rng = np.random.default_rng(0)
    kernel = rng.normal(size=(3, 12, 8)) * (rng.random((3, 12, 8)) < 0.3)
    arrays = {"dense0/bias": np.zeros((3, 8)), "dense0/kernel": kernel}
    bad = history(7.0)
    bad.loc[bad["round"] > 10, "psi"] = np.inf
    return [
        Shown("FedNMap", history(), "converged in 20 rounds", {"gamma": 1}, arrays, 3),
        Shown("ZA1 <b>", history(2.0), "still falling & so on", {"gamma": 1}, arrays, 3),
        Shown("PGD", bad, "diverged", {"gamma": 1}, {}, 3),
    ]


def everything():
    rng = np.random.default_rng(1)
    batches = [(rng.normal(size=(9, 4)), rng.integers(0, 3, 9)) for _ in range(5)]
    numbers = [(x, x[:, 0]) for x, _ in batches]
    path = {name: np.linspace(0, size, 8) for name, size in {"age": 2, "dose": -1, "no": 0}.items()}
    rounds = {1: ["a", "b"], 2: ["a"], 3: ["a", "b"]}
    made = run_sections(
        shown(), clients=data_of_clients(batches), rounds=rounds, sites=["a", "b"], command="run x"
    )
    return [
        *made,
        sections.coefficients({"lasso": {"age": 2.0, "dose": -1.0, "no": 0.0}}),
        sections.path(WEIGHTS, path, chosen=0.1),
        sections.cv_curve(WEIGHTS, WEIGHTS + 1, WEIGHTS / 9, {"least": 0.1, "one error": 0.3}),
        sections.clients(data_of_clients(numbers)),
    ]
