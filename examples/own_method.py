"""Your own method beside ten others, each tuned with the same budget; the table as LaTeX.

Usage: python examples/own_method.py
"""

# %%
import sys
from dataclasses import KW_ONLY, fields
from typing import Any, NamedTuple

import compositefl as cfl
from compositefl import Vector
from compositefl.core.component import replace
from compositefl.report.curves import latex, plot

SMALL = "--small" in sys.argv
ROUNDS, BUDGET = (6, 3) if SMALL else (60, 8)


# %% [markdown]
# The new method: local SGD, with momentum and a proximal step at the server.


# %%
class Server(NamedTuple):
    x: Vector
    v: Vector


class Local(NamedTuple):
    x: Vector
    start: Vector


@cfl.component
class MomentumProx(cfl.FederatedAlgorithm):
    """x_{t+1} = prox_{eta_hat}(x_t - eta_hat v_{t+1}), v a moving mean of the clients' steps."""

    _: KW_ONLY
    momentum: float = 0.5

    def check(self) -> None:
        self.regularizer.check_prox("local_lr*server_lr*local_steps", self.eta_hat)

    def init_server(self, x0: Vector) -> Server:
        return Server(x0, x0.zeros())

    def broadcast(self, server: Server) -> Vector:
        return server.x

    def begin(self, message: Vector, client: Any) -> Local:
        return Local(message, message)

    def query(self, local: Local, l: Any) -> Vector:
        return local.x

    def step(self, local: Local, gradient: Vector, l: Any) -> Local:
        return local._replace(x=local.x - self.local_lr * gradient)

    def finish(self, local: Local, steps: Any) -> tuple[Vector, Any]:
        return (local.start - local.x) / (self.local_lr * steps), ()

    def update(self, server: Server, mean_upload: Vector, participation: Any) -> Server:
        v = self.momentum * server.v + (1 - self.momentum) * mean_upload
        return Server(self.prox(server.x - self.eta_hat * v, self.eta_hat), v)

    def model(self, server: Server) -> Vector:
        return server.x


# %%
clients = cfl.partition.synthetic(1.0, 1.0, 20, 50, 10, 2, normalize=True)
problem = cfl.models.logistic_regression(10).problem(clients)
phi = cfl.L1(0.003)
methods = {
    "MomentumProx": MomentumProx(),
    "FedNMap": cfl.FedNMap(),
    "ZA1": cfl.ZA1(),
    "FedCanon": cfl.FedCanon(),
    "FedMiD": cfl.FedMiD(),
    "FedDA": cfl.FedDA(),
    "FedADMM": cfl.FedADMM(eta=1.0, local_steps=5, local_lr=0.3),
    "Scaffold": cfl.Scaffold(composite="server-prox"),
    "FedAvg": cfl.FedAvg(composite="server-prox"),
    "ProxSkip": cfl.ProxSkip(lr=0.3, prox_probability=0.2),
    "FedDR": cfl.FedDR(eta=1.0, local_steps=5, local_lr=0.3),
}
if SMALL:
    methods = dict(list(methods.items())[:2])

# %% [markdown]
# `tune` gives every method the same number of points to find its numbers. Then each runs with them,
# on other random numbers, and all are measured at the same gamma. FedADMM, FedDR and ProxSkip are
# tuned around the numbers given here, the others leave theirs open.

# %%
options = {"rounds": ROUNDS, "batch_size": 10, "eval_gamma": 1.0, "progress": False}
best = cfl.tune(problem, phi, methods, budget=BUDGET, metric="psi", **options)
print(best.to_string(index=False, float_format="{:.4g}".format, na_rep="-"))

# %%
histories = {}
for _, row in best.iterrows():
    algorithm = methods[row["method"]]
    found = {f.name: row[f.name] for f in fields(algorithm) if f.name in row}
    tuned = replace(algorithm, **{name: v for name, v in found.items() if v == v})
    result = cfl.minimize(problem, phi, tuned, trials=3, seed=1, **options)
    histories[row["method"]] = result.history

table = latex(histories)
print(table)
plot(histories, "own_method.png", title="Each method with its best step sizes", gamma=1.0)
print("wrote own_method.png")
