"""What is a sample made of? Parts of a mixture: not negative, and they sum to one.

Laboratories measure spectra of one mixture with instruments of their own. The constraint is the
regulariser: every model that the method hands out satisfies it exactly.

Usage: python examples/mixtures.py
"""

# %%
import sys

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

import compositefl as cfl
from compositefl.report.curves import describe, save
from compositefl.report.style import COLOURS

ROUNDS = 60 if "--small" in sys.argv else 500
PARTS, BANDS = 12, 40

# %%
rng = np.random.default_rng(0)
truth = np.zeros(PARTS)
truth[[1, 4, 7]] = [0.5, 0.3, 0.2]
centres = np.linspace(4, BANDS - 4, PARTS)
bands = np.arange(BANDS)[:, None]
spectra = np.exp(-(((bands - centres) / 5.0) ** 2))  # neighbouring parts look alike
laboratories = []
for _ in range(6):
    seen = rng.choice(BANDS, 14, replace=False)
    gain = rng.uniform(0.7, 1.3, size=(14, 1))
    matrix = spectra[seen] * gain
    laboratories.append((matrix, matrix @ truth + 0.02 * rng.normal(size=14)))


def loss(parts, batch):
    """Half the mean squared error of the measured bands."""
    matrix, values = batch
    return 0.5 * jnp.mean((matrix @ parts - values) ** 2)


# %%
problem = cfl.Problem(loss, np.full(PARTS, 1 / PARTS), laboratories)
kinds = {"no constraint": cfl.Zero(), "not negative": cfl.NonNegative(), "simplex": cfl.Simplex()}
found = {}
for name, phi in kinds.items():
    result = cfl.minimize(
        problem,
        phi,
        cfl.FedNMap(gamma=1.0, local_steps=5, local_lr=0.2),
        rounds=ROUNDS,
        dtype="float64",
        progress=False,
    )
    found[name] = np.asarray(result.params)
    error = np.abs(found[name] - truth).sum()
    least = found[name].min()
    print(f"{name:14} sum {found[name].sum():.4f}, least {least:+.3f}, error {error:.2f}")

# %%
figure = Figure(figsize=(9, 3.4), dpi=110, layout="constrained", facecolor="white")
axis = figure.subplots()
at = np.arange(PARTS)
axis.bar(at, truth, 0.95, color="#dddddd", label="truth")
for number, (name, parts) in enumerate(found.items()):
    axis.bar(at + 0.27 * (number - 1), parts, 0.25, color=COLOURS[(1, 2, 0)[number]], label=name)
axis.axhline(0, color="#777777", linewidth=0.8)
axis.legend(frameon=False, fontsize=9)
describe(axis, "Share of each part", "part")
save(figure, "mixtures.png")
print("wrote mixtures.png")
