"""FedAvg here, in hand-written JAX and in a plain PyTorch loop. Usage: python benchmarks/plain.py

The same arrays, start, step size and local steps; minibatches are each one's own draws. The three
take turns in one process, so that a busy machine disturbs all alike; the final losses must agree to
one per cent. Next to each workload stands its floor: the matrix products of a round at the best
rate of the machine, measured in the same run.
"""

import argparse
import itertools
import time

import numpy as np

WORKLOADS = {  # clients, samples, widths, local steps, minibatch
    "softmax regression": (50, 400, (64, 10), 10, 20),
    "784-32-10 network": (100, 600, (784, 32, 10), 10, 32),
}
STEP = 0.05


def data(clients, samples, widths):
    rng = np.random.default_rng(0)
    x = rng.random((clients, samples, widths[0]), dtype=np.float32)
    y = (x[..., : widths[-1]] + 0.1 * rng.random((clients, samples, widths[-1]))).argmax(-1)
    start = [
        (rng.normal(size=(a, b)).astype(np.float32) / np.float32(a**0.5), np.zeros(b, np.float32))
        for a, b in itertools.pairwise(widths)
    ]
    return x, y.astype(np.int32), start


class Ours:
    def __init__(self, x, y, start, steps, batch):
        import compositefl as cfl
        from compositefl.simulation.simulation import Simulation

        n, size, _ = x.shape
        rows = cfl.Stacked((x.reshape(n * size, -1), y.reshape(-1)), sizes=np.full(n, size))
        self.problem = cfl.Problem(loss, start, rows)
        algorithm = cfl.FedAvg(local_steps=steps, local_lr=STEP)
        options = dict(seed=0, batch_size=batch, count=n, weights=np.ones(n), dtype="float32")
        self.run = Simulation(self.problem, [algorithm], [0], **options)

    def rounds(self, count):
        self.run.advance(self.run.round + count)
        self.run.block_until_ready()

    def loss(self):
        return float(self.run.evaluate(1.0)["loss"][0])


def loss(params, batch):
    import jax
    import jax.numpy as jnp

    x, y = batch
    for i, (kernel, bias) in enumerate(params):
        x = (jax.nn.sigmoid(x) if i else x) @ kernel + bias
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1))


class HandWritten:
    """What one writes in JAX without a library: vmap over clients, scan over steps and rounds."""

    def __init__(self, x, y, start, steps, batch):
        import jax
        import jax.numpy as jnp

        self.x, self.y = jnp.asarray(x), jnp.asarray(y)
        self.model, self.key = jax.tree.map(jnp.asarray, start), jax.random.key(0)

        def client(model, x, y, key):
            def step(model, key):
                at = jax.random.randint(key, (batch,), 0, len(y))
                gradient = jax.grad(loss)(model, (x[at], y[at]))
                return jax.tree.map(lambda a, g: a - STEP * g, model, gradient), None

            return jax.lax.scan(step, model, jax.random.split(key, steps))[0]

        def one(model, key):
            keys = jax.random.split(key, len(self.x))
            models = jax.vmap(client, in_axes=(None, 0, 0, 0))(model, self.x, self.y, keys)
            return jax.tree.map(lambda a: a.mean(0), models), None

        self.run = jax.jit(lambda model, keys: jax.lax.scan(one, model, keys)[0])

    def rounds(self, count):
        import jax

        self.key, here = jax.random.split(self.key)
        self.model = jax.block_until_ready(self.run(self.model, jax.random.split(here, count)))

    def loss(self):
        flat = (self.x.reshape(-1, self.x.shape[-1]), self.y.reshape(-1))
        return float(loss(self.model, flat))


class PlainTorch:
    """The usual loop: one client after the other, autograd, in-place steps."""

    def __init__(self, x, y, start, steps, batch):
        import torch

        self.torch, self.steps, self.batch = torch, steps, batch
        self.x, self.y = torch.tensor(x), torch.tensor(y, dtype=torch.int64)
        self.model = [torch.tensor(a) for layer in start for a in layer]
        torch.manual_seed(0)

    def rounds(self, count):
        torch = self.torch
        for _ in range(count):
            total = [torch.zeros_like(a) for a in self.model]
            for x, y in zip(self.x, self.y, strict=True):
                here = [a.clone().requires_grad_(True) for a in self.model]
                for _ in range(self.steps):
                    at = torch.randint(len(y), (self.batch,))
                    gradients = torch.autograd.grad(self._loss(here, x[at], y[at]), here)
                    with torch.no_grad():
                        for a, g in zip(here, gradients, strict=True):
                            a -= STEP * g
                with torch.no_grad():
                    for sum_, a in zip(total, here, strict=True):
                        sum_ += a / len(self.x)
            self.model = total

    def _loss(self, model, x, y):
        for i in range(0, len(model), 2):
            x = (x.sigmoid() if i else x) @ model[i] + model[i + 1]
        return self.torch.nn.functional.cross_entropy(x, y)

    def loss(self):
        with self.torch.no_grad():
            return float(self._loss(self.model, self.x.flatten(0, 1), self.y.flatten()))


def floor(clients, widths, steps, batch):
    """Milliseconds of a round's products of matrices at the best rate of all cores."""
    import jax
    import jax.numpy as jnp

    a = jnp.ones((1024, 1024), jnp.float32)
    product = jax.jit(lambda a: a @ a)
    product(a).block_until_ready()
    best = np.inf
    for _ in range(20):
        began = time.perf_counter()
        product(a).block_until_ready()
        best = min(best, time.perf_counter() - began)
    layers = list(itertools.pairwise(widths))
    # Forward, gradient of the weights, gradient of the inputs but for the first layer.
    flops = sum(2 * i * o * (2 if k == 0 else 3) for k, (i, o) in enumerate(layers)) * batch
    return flops * steps * clients / (2 * 1024**3 / best) * 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5, help="of a turn; PyTorch takes one")
    args = parser.parse_args()
    for title, (clients, samples, widths, steps, batch) in WORKLOADS.items():
        x, y, start = data(clients, samples, widths)
        peers = {"compositefl": Ours, "hand-written JAX": HandWritten, "PyTorch loop": PlainTorch}
        runs = {name: kind(x, y, start, steps, batch) for name, kind in peers.items()}
        for run in runs.values():
            run.rounds(args.rounds)  # compiles what it compiles
        ms = {name: [] for name in runs}
        for _ in range(args.turns):
            for name, run in runs.items():
                began = time.perf_counter()
                run.rounds(args.rounds)
                ms[name].append((time.perf_counter() - began) / args.rounds * 1e3)
        least = {name: min(t) for name, t in ms.items()}
        ideal = floor(clients, widths, steps, batch)
        print(f"{title}: {clients} clients, Q = {steps}, minibatch {batch}; floor {ideal:.2f} ms")
        losses = {name: run.loss() for name, run in runs.items()}
        for name, value in least.items():
            ratio = value / least["compositefl"]
            print(f"  {name:18}{value:9.2f} ms {ratio:7.1f}   loss {losses[name]:.4f}", flush=True)
        apart = max(losses.values()) / min(losses.values()) - 1
        if apart > 0.01:
            raise SystemExit(f"the losses differ by {apart:.1%}: not the same work")


if __name__ == "__main__":
    main()
