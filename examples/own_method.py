"""Your own method beside ten others, each tuned with the same budget; the table as LaTeX.

Usage: python examples/own_method.py
"""

# %%
import sys
from dataclasses import KW_ONLY
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
steps = {"local_steps": 5, "local_lr": 0.3}
methods = {
    "MomentumProx": MomentumProx(**steps),
    "FedNMap": cfl.FedNMap(gamma=1.0, **steps),
    "ZA1": cfl.ZA1(**steps),
    "FedCanon": cfl.FedCanon(**steps),
    "FedMiD": cfl.FedMiD(**steps),
    "FedDA": cfl.FedDA(**steps),
    "FedADMM": cfl.FedADMM(eta=1.0, **steps),
    "Scaffold": cfl.Scaffold(composite="server-prox", **steps),
    "FedAvg": cfl.FedAvg(composite="server-prox", **steps),
    "ProxSkip": cfl.ProxSkip(lr=0.3, prox_probability=0.2),
    "FedDR": cfl.FedDR(eta=1.0, **steps),
}
if SMALL:
    methods = dict(list(methods.items())[:3])

# %% [markdown]
# `tune` gives every method the same number of runs to find its numbers. Then each runs with them,
# on other random numbers, and all are measured at the same gamma.

# %%
options = {"rounds": ROUNDS, "batch_size": 10, "eval_gamma": 1.0, "progress": False}
best = cfl.tune(problem, phi, methods, budget=BUDGET, metric="psi", **options)
print(best.to_string(index=False, float_format="{:.4g}".format, na_rep="-"))

# %%
histories = {}
for _, row in best.iterrows():
    algorithm = methods[row["method"]]
    numbers = {
        n: row[n] for n in ("local_lr", "lr", "gamma", "eta") if n in row and row[n] == row[n]
    }
    tuned = replace(algorithm, **{n: v for n, v in numbers.items() if hasattr(algorithm, n)})
    result = cfl.minimize(problem, phi, tuned, trials=3, seed=1, **options)
    histories[row["method"]] = result.history

table = latex(histories)
print(table)
plot(histories, "own_method.png", title="Each method with its best step sizes", gamma=1.0)
print("wrote own_method.png")
