"""2:4 sparsity: at most two of four neighbouring weights are not zero, as GPUs can use it.

The weights are stored as (outputs, inputs), so that the groups lie along the inputs, and packed as
PyTorch's semi-structured tensors take them.

Usage: python examples/two_four.py
"""

# %%
import sys

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import compositefl as cfl
from compositefl.export import pack_two_four
from compositefl.report.curves import describe, save
from compositefl.report.style import COLOURS

ROUNDS = 5 if "--small" in sys.argv else 300
HIDDEN = 32

# %%
digits = cfl.data.load("digits")
clients = cfl.partition.dirichlet(digits.train, clients=10, alpha=0.5)


def logits(params, x):
    hidden = jax.nn.relu(x @ params["first"].T + params["bias"])
    return hidden @ params["second"].T


def loss(params, batch):
    x, y = batch
    rows = jnp.arange(len(y))
    return -jnp.mean(jax.nn.log_softmax(logits(params, x))[rows, y])


def accuracy(params, batch):
    return jnp.mean(logits(params, batch[0]).argmax(-1) == batch[1])


rng = np.random.default_rng(0)
start = {
    "first": rng.normal(size=(HIDDEN, 64)) * np.sqrt(2 / 64),
    "bias": np.zeros(HIDDEN),
    "second": rng.normal(size=(10, HIDDEN)) * np.sqrt(1 / HIDDEN),
}
problem = cfl.Problem(loss, start, clients, test=digits.test, accuracy=accuracy)

# %% [markdown]
# The penalty is zero exactly where each group has at most two nonzeros: it does not shrink what is
# already 2:4.

# %%
phi = cfl.ByName({"first": cfl.TwoFour(0.3), "*": cfl.Zero()})
result = cfl.minimize(
    problem,
    phi,
    cfl.FedNMap(gamma=0.6, local_steps=5, local_lr=0.05),
    rounds=ROUNDS,
    batch_size=32,
    weights="size",
    progress=False,
)
weight = np.asarray(result.params["first"])
full = np.count_nonzero(weight.reshape(-1, 4), axis=1)
last = result.history.iloc[-1]
print(f"groups with at most two nonzeros: {np.mean(full <= 2):.1%}; accuracy {last.accuracy:.1%}")

# %% [markdown]
# Rounding off the few groups that are left (if any) gives a matrix that can be packed: half of the
# numbers, and two bits for the place of each.

# %%
groups = weight.reshape(-1, 4).copy()
np.put_along_axis(groups, np.argsort(np.abs(groups), axis=1)[:, :2], 0.0, axis=1)
packed = pack_two_four(groups.reshape(weight.shape))
rounded = {**result.params, "first": groups.reshape(weight.shape)}
size = packed.values.nbytes + packed.metadata.nbytes
print(f"accuracy of the packed model {float(accuracy(rounded, digits.test)):.1%}")
print(f"{size} bytes instead of {weight.size * 2} in half precision")

# %%
figure = Figure(figsize=(9, 3.4), dpi=110, layout="constrained", facecolor="white")
one, two = figure.subplots(1, 2, width_ratios=[2, 1])
one.imshow(np.sign(weight), cmap="RdBu", vmin=-1.4, vmax=1.4, aspect="auto", interpolation="none")
describe(one, "Signs of the first layer's weights, white: zero", "input")
one.grid(False)
counts = np.bincount(full, minlength=5)
two.bar(np.arange(5), counts, color=[COLOURS[2]] * 3 + [COLOURS[4]] * 2)
describe(two, "Groups of four", "nonzeros in the group")
save(figure, "two_four.png")
print("wrote two_four.png")
