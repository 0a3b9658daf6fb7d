"""What each number does, for docs/choosing.md: a picture per number.

Usage: python benchmarks/choosing.py FOLDER

Every picture varies one number of FedNMap around Q = 100, local_lr = 1/L, server_lr = 1 and
gamma = eta_hat, on breast_cancer with ten clients sorted by label and an l1 penalty: with full
gradients, with minibatches of 8, and the zeros of the model.
"""

import sys
import warnings
from pathlib import Path

from auto import smoothness
from auto_problems import Case, problem_of
from matplotlib.figure import Figure

import compositefl as cfl
from compositefl.report.curves import describe, save
from compositefl.report.style import styles
from compositefl.solve._sweep import run_all
from compositefl.solve.options import Options

CASE = Case("logistic", "breast-cancer", "label", "l1:0.01")
ROUNDS = 100
# name of the picture: what its lines are called, and (local_lr L, Q, server_lr, gamma / eta_hat)
PICTURES = {
    "local_lr": {
        "0.1/L": (0.1, 100, 1, 1),
        "1/L": (1, 100, 1, 1),
        "5/L": (5, 100, 1, 1),
        "20/L": (20, 100, 1, 1),
    },
    "local_steps": {
        "Q = 1": (1, 1, 1, 1),
        "Q = 10": (1, 10, 1, 1),
        "Q = 100": (1, 100, 1, 1),
        "Q = 100, 0.1/L": (0.1, 100, 1, 1),
    },
    "gamma": {
        "eta_hat / 10": (1, 100, 1, 0.1),
        "eta_hat / 2": (1, 100, 1, 0.5),
        "eta_hat": (1, 100, 1, 1),
        "10 eta_hat": (1, 100, 1, 10),
    },
    "server_lr": {
        "0.5": (1, 100, 0.5, 1),
        "1": (1, 100, 1, 1),
        "2": (1, 100, 2, 1),
        "4": (1, 100, 4, 1),
    },
}


def fednmap(scale, lr, steps, server, ratio):
    numbers = dict(local_lr=lr * scale, local_steps=steps, server_lr=float(server))
    return cfl.FedNMap(**numbers, gamma=ratio * lr * scale * steps * server)


def histories(batch_size):
    """Of every picture and line the history."""
    problem, phi = problem_of(CASE)
    scale = 1 / smoothness(problem)
    names = [(picture, line) for picture, lines in PICTURES.items() for line in lines]
    methods = [
        cfl.core.component.replace(fednmap(scale, *PICTURES[p][line]), regularizer=phi)
        for p, line in names
    ]
    options = Options(
        rounds=ROUNDS, eval_every=1, batch_size=batch_size, weights="uniform", progress=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table, *_ = run_all(problem, methods, 1, options)
    return {name: table[table["point"] == i] for i, name in enumerate(names)}


def draw(picture, full, noisy, path):
    figure = Figure(figsize=(10, 2.9), dpi=90, layout="constrained", facecolor="white")
    panels = {
        "natural residual², full gradients": (full, "natural_residual_sq", 1.0),
        "natural residual², minibatches of 8": (noisy, "natural_residual_sq", 1.0),
        "zeros of the model, %": (full, "zeros", 100.0),
    }
    looks = styles(PICTURES[picture])
    for axes, (heading, (found, column, scale)) in zip(
        figure.subplots(1, 3), panels.items(), strict=True
    ):
        for line in PICTURES[picture]:
            rows, (colour, dash, _) = found[picture, line], looks[line]
            axes.plot(rows["round"], scale * rows[column], color=colour, linestyle=dash, label=line)
        if "residual" in heading:
            axes.set_yscale("log")
        describe(axes, heading, "round")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(
        handles, labels, title=picture, loc="outside right upper", frameon=False, fontsize=9
    )
    save(figure, path)


def main(folder):
    full, noisy = histories(None), histories(8)
    for picture in PICTURES:
        draw(picture, full, noisy, Path(folder) / f"choosing-{picture}.png")


if __name__ == "__main__":
    main(sys.argv[1])
