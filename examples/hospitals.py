"""Which features matter, when no hospital may show its patients?

Eight hospitals with different patients fit one lasso together. Beside it: the lasso of all patients
in one place, which is what one would like to have, and a vote among lassos that each hospital fits
alone, which is what is done without federated learning.

Usage: python examples/hospitals.py
"""

# %%
import sys

import numpy as np
from matplotlib.figure import Figure
from sklearn.linear_model import Lasso

import compositefl as cfl
from compositefl.report.curves import describe, save
from compositefl.report.style import COLOURS

ROUNDS = 60 if "--small" in sys.argv else 600
FEATURES, WEIGHT = 30, 0.08

# %% [markdown]
# Six features matter. The hospitals differ: other averages, other sizes, and in each some features
# hardly vary, so that no hospital alone can see all that matters.

# %%
rng = np.random.default_rng(0)
truth = np.zeros(FEATURES)
truth[:6] = [1.5, -1.2, 1.0, -0.8, 0.6, 0.5]
hospitals = []
for _ in range(8):
    rows = int(rng.integers(25, 80))
    spread = np.where(rng.random(FEATURES) < 0.4, 0.15, 1.0)
    x = rng.normal(size=(rows, FEATURES)) * spread + 0.3 * rng.normal(size=FEATURES)
    hospitals.append((x, x @ truth + rng.normal(size=rows)))

# %%
problem = cfl.models.linear_regression(FEATURES).problem(hospitals)
result = cfl.minimize(
    problem,
    cfl.L1(WEIGHT),
    cfl.FedNMap(gamma=0.5, local_steps=5, local_lr=0.05),
    rounds=ROUNDS,
    weights="size",  # every patient counts the same: the problem of all patients in one place
    dtype="float64",
    progress=False,
)
together = np.ravel(result.params["dense0"]["kernel"])
print(result.summary())

# %%
every_x, every_y = (np.concatenate(parts) for parts in zip(*hospitals, strict=True))
pooled = Lasso(WEIGHT, fit_intercept=False, tol=1e-10, max_iter=100_000).fit(every_x, every_y).coef_
alone = [Lasso(WEIGHT, fit_intercept=False).fit(x, y).coef_ for x, y in hospitals]
votes = np.mean([coefficients != 0 for coefficients in alone], axis=0)
chosen = {
    "together, data stay": together != 0,
    "all data in one place": pooled != 0,
    "majority vote": votes > 0.5,
}
print(f"largest difference to the lasso of all data: {np.abs(together - pooled).max():.1e}")
for name, found in chosen.items():
    right, wrong = np.sum(found & (truth != 0)), np.sum(found & (truth == 0))
    print(f"{name:24} {right} of 6 found, {wrong} false")

# %%
figure = Figure(figsize=(9, 3.6), dpi=110, layout="constrained", facecolor="white")
left, right = figure.subplots(1, 2, width_ratios=[3, 2])
at = np.arange(FEATURES)
left.bar(at, truth, 0.9, color="#dddddd", label="truth")
left.plot(at, pooled, "o", ms=8, mfc="none", color=COLOURS[1], label="all data in one place")
left.plot(at, together, ".", ms=6, color=COLOURS[0], label="together, data stay")
left.legend(frameon=False, fontsize=9)
describe(left, "Coefficients: the federated lasso is the lasso of all data", "feature")
right.bar(at, 100 * votes, 0.9, color=[COLOURS[2] if t else "#cccccc" for t in truth])
right.axhline(50, color=COLOURS[4], linewidth=1)
describe(right, "Hospitals that choose a feature alone, %", "feature (green: matters)")
save(figure, "hospitals.png")
print("wrote hospitals.png")
