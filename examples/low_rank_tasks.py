"""Many related tasks: a matrix of coefficients of low rank, from clients with few samples.

Every sample has 20 inputs and 15 targets that depend on 3 hidden directions only. The nuclear norm
keeps few directions; least squares has full rank and a larger error.

Usage: python examples/low_rank_tasks.py
"""

# %%
import sys

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import compositefl as cfl
from compositefl.report.curves import describe, save
from compositefl.report.style import COLOURS

ROUNDS = 40 if "--small" in sys.argv else 300
INPUTS, TASKS, RANK = 20, 15, 3

# %%
rng = np.random.default_rng(0)
truth = rng.normal(size=(INPUTS, RANK)) @ rng.normal(size=(RANK, TASKS)) / np.sqrt(INPUTS)
clients = []
for _ in range(6):
    mixing = np.eye(INPUTS) + 0.3 * rng.normal(size=(INPUTS, INPUTS))  # every client has its own
    x = rng.normal(size=(8, INPUTS)) @ mixing
    clients.append((x, x @ truth + 1.0 * rng.normal(size=(8, TASKS))))


def loss(w, batch):
    """Half the squared error of all tasks."""
    x, y = batch
    return 0.5 * jnp.mean(jnp.sum((x @ w - y) ** 2, axis=1))


# %%
problem = cfl.Problem(loss, np.zeros((INPUTS, TASKS)), clients)
result = cfl.minimize(
    problem,
    cfl.NuclearNorm(1.6),
    cfl.FedNMap(gamma=0.2, local_steps=5, local_lr=0.02),
    rounds=ROUNDS,
    dtype="float64",
    progress=False,
)
print(result.summary())
x, y = (np.concatenate(parts) for parts in zip(*clients, strict=True))
estimates = {"least squares": np.linalg.lstsq(x, y)[0], "nuclear norm": result.params}
for name, w in estimates.items():
    error = np.linalg.norm(w - truth) / np.linalg.norm(truth)
    print(f"{name:14} rank {np.linalg.matrix_rank(w, tol=1e-6)}, error {error:.2f}")

# %%
figure = Figure(figsize=(6, 3.6), dpi=110, layout="constrained", facecolor="white")
axis = figure.subplots()
for (name, w), colour, mark in zip(
    {"truth": truth, **estimates}.items(), ["#999999", *COLOURS[1::-1]], "sov", strict=True
):
    values = np.linalg.svd(w, compute_uv=False)
    axis.plot(np.arange(1, TASKS + 1), values, mark + "-", ms=5, color=colour, label=name)
axis.legend(frameon=False, fontsize=9)
describe(axis, "Singular values of the coefficients", "number")
save(figure, "low_rank_tasks.png")
print("wrote low_rank_tasks.png")
