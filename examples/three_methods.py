"""Three methods over the same step sizes: `sweep` runs all steps of a method side by side.

Usage: python examples/three_methods.py
"""

import numpy as np

import compositefl as cfl

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

print("squared natural residual after 200 rounds, mean over 3 trials")
for name, algorithm in METHODS.items():
    history = cfl.sweep(
        problem,
        cfl.L1(0.003),
        algorithm,
        {"local_lr": np.geomspace(0.03, 1.0, 4)},
        rounds=200,
        trials=3,
        batch_size=10,
        progress=False,
    )
    last = history[history["round"] == 200]
    residual = last.groupby("local_lr")["natural_residual_sq"].mean()
    print(f"{name:28}", "  ".join(f"lr {lr:.2f}: {v:.1e}" for lr, v in residual.items()))
