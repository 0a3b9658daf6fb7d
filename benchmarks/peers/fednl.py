"""FedNL's convex benchmark with ProxNewton: l2-logistic regression on A9A over 142 clients.

The setting of Burlachenko and Richtarik (arXiv:2410.08760), as their scripts have it: samples in
random order, equal shares of what 142 divides, an intercept, lambda = 1e-3 on all coefficients.
Usage: python benchmarks/peers/fednl.py [--clients 142] [--repeats 5]
"""

import argparse
import time

import numpy as np

WANTED = 1e-9  # norm of the gradient


def problem(clients):
    """f of every client, in float64."""
    import compositefl as cfl

    train = cfl.data.load("a9a").train
    order = np.random.default_rng(0).permutation(len(train.y))
    order = order[: len(order) // clients * clients].reshape(clients, -1)
    x = np.asarray(train.x, np.float64)
    x = np.concatenate([x, np.ones((len(x), 1))], axis=1)
    own = [cfl.data.Samples(x[rows], train.y[rows]) for rows in order]
    return cfl.models.logistic_regression(x.shape[1]).problem(own)


def gradient_norm(f, w, lam):
    """||grad f(w) + lam w||, in NumPy."""
    x = np.concatenate([np.asarray(c.x) for c in f.clients])
    b = 2.0 * np.concatenate([np.asarray(c.y) for c in f.clients]) - 1
    return float(np.linalg.norm(-(x.T @ (b / (1 + np.exp(b * (x @ w))))) / len(b) + lam * w))


def main():
    import compositefl as cfl

    parser = argparse.ArgumentParser()
    parser.add_argument("--clients", type=int, default=142)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    lam, f = 1e-3, problem(args.clients)
    phi = cfl.SquaredL2(lam / 2)  # which has no factor 1/2 of its own
    options = dict(dtype="float64", progress=False, eval_every=100)
    for rounds in range(2, 30):
        result = cfl.minimize(f, phi, cfl.ProxNewton(), rounds=rounds, **options)
        norm = gradient_norm(f, result.params["dense0"]["kernel"][:, 0], lam)
        print(f"{rounds} rounds: norm of the gradient {norm:.1e}")
        if norm <= WANTED:
            break
    times = []
    for _ in range(args.repeats):
        began = time.perf_counter()
        cfl.minimize(f, phi, cfl.ProxNewton(), rounds=rounds, **options)
        times.append(time.perf_counter() - began)
    print(f"{rounds} rounds in {np.median(times):.2f} s, compiled before, two evaluations included")


if __name__ == "__main__":
    main()
