"""What each number does, for docs/choosing.md. Usage: python benchmarks/choosing.py FILE"""

import sys
import warnings

from auto_problems import Case, problem_of

import compositefl as cfl
from compositefl.report.curves import plot

STEP = 0.16  # about 1/L of the worst client at the start
NUMBERS = {
    "auto": {},
    "Q 100, local_lr 1/L": dict(local_steps=100, local_lr=STEP, gamma=100 * STEP),
    "Q 10, local_lr 1/L": dict(local_steps=10, local_lr=STEP, gamma=10 * STEP),
    "Q 100, local_lr 5/L": dict(local_steps=100, local_lr=5 * STEP, gamma=500 * STEP),
    "Q 100, local_lr 1/L, gamma 1": dict(local_steps=100, local_lr=STEP, gamma=1.0),
}


def main(path):
    problem, phi = problem_of(Case("logistic", "breast-cancer", "label", "l1:0.01"))
    histories = {}
    for name, numbers in NUMBERS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = cfl.minimize(
                problem, phi, cfl.FedNMap(**numbers), rounds=120, eval_every=2, progress=False
            )
        histories[name] = result.history
        print(name, result.summary())
    plot(histories, path)


if __name__ == "__main__":
    main(sys.argv[1])
