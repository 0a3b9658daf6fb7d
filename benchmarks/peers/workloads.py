"""The workloads: arrays, a start, settings; and the loss by which all models are judged.

A client has as many samples as its steps take, so that one pass over them is a round in every
library, and what `full` runs, every step on all samples, is the same in all of them bit by bit but
for rounding.
"""

import json
import math

import numpy as np

WORKLOADS = {
    "softmax": dict(
        title="softmax regression, 50 clients, d = 64, Q = 10, minibatch 20",
        clients=50,
        shape=(64,),
        steps=10,
        batch=20,
        lr=0.1,
        layers=(("dense0", (64, 10)),),
    ),
    "mlp": dict(
        title="784-32-10 network, 100 clients, Q = 10, minibatch 32",
        clients=100,
        shape=(784,),
        steps=10,
        batch=32,
        lr=0.05,
        layers=(("dense0", (784, 32)), ("dense1", (32, 10))),
    ),
    "cnn": dict(
        title="CNN with 112,394 parameters, 10 clients, Q = 10, minibatch 10",
        clients=10,
        shape=(28, 28, 1),
        steps=10,
        batch=10,
        lr=0.02,
        layers=(
            ("conv0", (3, 3, 1, 32)),
            ("conv1", (3, 3, 32, 32)),
            ("dense0", (1568, 64)),
            ("dense1", (64, 32)),
            ("dense2", (32, 10)),
        ),
    ),
}
CLASSES = 10


def arrays(name):
    """Inputs (clients, samples, ...) and labels: ten classes with noise, skewed by client."""
    spec, rng = WORKLOADS[name], np.random.default_rng(0)
    clients, samples = spec["clients"], spec["steps"] * spec["batch"]
    means = rng.normal(size=(CLASSES, *spec["shape"]))
    means *= 3 / math.sqrt(math.prod(spec["shape"]))  # so far apart that a tenth is mistaken
    shares = rng.dirichlet(np.ones(CLASSES), clients)
    y = np.stack([rng.choice(CLASSES, samples, p=share) for share in shares])
    x = means[y] + rng.normal(size=(clients, samples, *spec["shape"])) * 0.5
    return x.astype(np.float32), y.astype(np.int32)


def start(name):
    """Zeros for the regression, else normals of variance 2 / (fan in + fan out), no bias."""
    rng, params = np.random.default_rng(1), {}
    for layer, shape in WORKLOADS[name]["layers"]:
        window = math.prod(shape[:-2])
        scale = math.sqrt(2 / (window * (shape[-2] + shape[-1]))) if name != "softmax" else 0.0
        params[f"{layer}/kernel"] = (rng.normal(size=shape) * scale).astype(np.float32)
        params[f"{layer}/bias"] = np.zeros(shape[-1], np.float32)
    return params


def write_task(folder, name, method, device, rounds, full):
    """A folder for an adapter."""
    spec = WORKLOADS[name]
    folder.mkdir(parents=True, exist_ok=True)
    x, y = arrays(name)
    np.savez(folder / "data.npz", x=x, y=y)
    np.savez(folder / "start.npz", **start(name))
    task = {k: spec[k] for k in ("steps", "lr")}
    task |= {"workload": name, "method": method, "device": device, "rounds": rounds, "seed": 0}
    (folder / "task.json").write_text(json.dumps(task | {"batch": 0 if full else spec["batch"]}))


def loss(name, params):
    """The mean cross-entropy over all samples of all clients, in float64 NumPy."""
    x, y = arrays(name)
    p = {k: np.asarray(v, np.float64) for k, v in params.items()}
    x = x.reshape(-1, *x.shape[2:])
    if not all(np.all(np.isfinite(a)) for a in p.values()):
        return math.nan
    found = [
        _losses(name, p, part, labels) for part, labels in zip(*_parts(x, y.ravel()), strict=True)
    ]
    return float(np.concatenate(found).mean())


def _parts(x, y, size=250):
    cuts = range(size, len(x), size)
    return np.split(x, cuts), np.split(y, cuts)


def _losses(name, p, x, y):
    dense = lambda a, layer: a @ p[f"{layer}/kernel"] + p[f"{layer}/bias"]  # noqa: E731
    relu = lambda a: np.maximum(a, 0)  # noqa: E731
    if name == "softmax":
        out = dense(x, "dense0")
    elif name == "mlp":
        out = dense(1 / (1 + np.exp(-dense(x, "dense0"))), "dense1")
    else:
        for layer in ("conv0", "conv1"):
            x = _pool(relu(_conv(x, p[f"{layer}/kernel"]) + p[f"{layer}/bias"]))
        out = relu(dense(x.reshape(len(x), -1), "dense0"))
        out = dense(relu(dense(out, "dense1")), "dense2")
    out = out - out.max(1, keepdims=True)
    return np.log(np.exp(out).sum(1)) - out[np.arange(len(y)), y]


def _conv(x, kernel):
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    _, height, width, _ = x.shape
    shifts = [padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return np.concatenate(shifts, -1) @ kernel.reshape(-1, kernel.shape[-1])


def _pool(x):
    samples, height, width, channels = x.shape
    return x.reshape(samples, height // 2, 2, width // 2, 2, channels).max((2, 4))
