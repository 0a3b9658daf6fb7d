"""Sparse digits across clients that differ: each client holds one or two of the ten digits.

Usage: python examples/sparse_digits.py [picture.png]
"""

import sys

from rich import print

import compositefl as cfl
from compositefl.report.curves import plot, table

digits = cfl.data.load("digits")  # bundled with scikit-learn
clients = cfl.partition.by_label(digits.train, clients=10)
problem = cfl.models.mlp((64, 16, 10), activation="sigmoid").problem(clients, test=digits.test)

result = cfl.minimize(
    problem,
    cfl.ElasticNet(1e-3, 1e-2),
    cfl.FedNMap(gamma=4.0, local_steps=10, local_lr=0.1),
    rounds=100,
    batch_size=32,
    eval_gamma=4.0,
    progress=False,
)

histories = {"FedNMap": result.history}
print(table(histories, title="Sorted by label: no client sees all digits"))
picture = sys.argv[1] if len(sys.argv) > 1 else "sparse_digits.png"
plot(histories, picture, title="Sparse digits", gamma=4.0)
print(f"wrote {picture}")
