"""Three methods over the same step sizes: `sweep` runs all steps of a method side by side.

Usage: python examples/three_methods.py
"""

# %%
import sys

import numpy as np
from matplotlib.figure import Figure

import compositefl as cfl
from compositefl.report.curves import describe, save
from compositefl.report.style import styles

ROUNDS = 50 if "--small" in sys.argv else 200

# %%
clients = cfl.partition.synthetic(1.0, 1.0, 20, 50, 10, 2, normalize=True)
problem = cfl.models.logistic_regression(10).problem(clients)
LOCAL_STEPS = 10
METHODS = {
    "FedNMap": cfl.FedNMap(gamma=1.0, local_steps=LOCAL_STEPS, local_lr=0.1),
    "ZA1": cfl.ZA1(local_steps=LOCAL_STEPS, local_lr=0.1),
    "FedAvg, prox on the server": cfl.FedAvg(
        local_steps=LOCAL_STEPS, local_lr=0.1, composite="server-prox"
    ),
}

# %%
print(f"squared natural residual after {ROUNDS} rounds, mean over 3 trials")
figure = Figure(figsize=(6, 3.6), dpi=110, layout="constrained", facecolor="white")
axis = figure.subplots()
for name, algorithm in METHODS.items():
    history = cfl.sweep(
        problem,
        cfl.L1(0.003),
        algorithm,
        {"local_lr": np.geomspace(0.03, 1.0, 4)},
        rounds=ROUNDS,
        trials=3,
        batch_size=10,
        progress=False,
    )
    last = history[history["round"] == ROUNDS]
    residual = last.groupby("local_lr")["natural_residual_sq"].mean()
    print(f"{name:28}", "  ".join(f"lr {lr:.2f}: {v:.1e}" for lr, v in residual.items()))
    colour, dash, _ = styles(METHODS)[name]
    axis.loglog(residual.index, residual, color=colour, linestyle=dash, marker="o", label=name)

# %%
axis.legend(frameon=False, fontsize=9)
describe(axis, f"Natural residual² after {ROUNDS} rounds", "local step size")
save(figure, "three_methods.png")
print("wrote three_methods.png")
