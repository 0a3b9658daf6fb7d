"""Sparse digits across clients that differ: each client holds one or two of the ten digits.

Usage: python examples/sparse_digits.py
"""

# %%
import sys

from rich import print

import compositefl as cfl
from compositefl.report.curves import plot, table

ROUNDS = 40 if "--small" in sys.argv else 100

# %%
digits = cfl.data.load("digits")  # bundled with scikit-learn
clients = cfl.partition.by_label(digits.train, clients=10)
problem = cfl.models.mlp((64, 16, 10), activation="sigmoid").problem(clients, test=digits.test)

# %%
result = cfl.minimize(
    problem,
    cfl.ElasticNet(1e-3, 1e-2),
    cfl.FedNMap(gamma=4.0, local_steps=10, local_lr=0.1),
    rounds=ROUNDS,
    batch_size=32,
    eval_gamma=4.0,
    progress=False,
)

# %%
histories = {"FedNMap": result.history}
print(table(histories, title="Sorted by label: no client sees all digits"))
plot(histories, "sparse_digits.png", title="Sparse digits", gamma=4.0)
print("wrote sparse_digits.png")
