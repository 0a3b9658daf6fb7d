"""FedJAX: its federated averaging, clients one after the other or by vmap as it chooses."""

import sys
from importlib.metadata import version

import fedjax
import jax
import jax.numpy as jnp
from jax_networks import loss
from protocol import Clock, Task

task = Task(sys.argv[1])
if task.method != "fedavg":
    sys.exit("FedJAX has no SCAFFOLD")
clock = Clock(task)


def gradient(p, batch, _):
    return jax.grad(loss, 1)(task.workload, p, batch["x"], batch["y"])


algorithm = fedjax.algorithms.fed_avg.federated_averaging(
    gradient,
    fedjax.optimizers.sgd(task.lr),
    fedjax.optimizers.sgd(1.0),
    fedjax.ShuffleRepeatBatchHParams(
        batch_size=task.batch_size,
        num_epochs=task.epochs,
        skip_shuffle=not task.batch,
        seed=task.seed,
    ),
)
clients = [
    (str(i), fedjax.ClientDataset({"x": x, "y": y}))
    for i, (x, y) in enumerate(zip(task.x, task.y, strict=True))
]
state, done = algorithm.init({k: jnp.asarray(v) for k, v in task.start.items()}), 0


def advance(rounds):
    global state, done
    for _ in range(rounds):
        keys = jax.random.split(jax.random.PRNGKey(done), task.clients)
        state, _ = algorithm.apply(
            state, [(name, data, key) for (name, data), key in zip(clients, keys, strict=True)]
        )
        done += 1
    jax.block_until_ready(state.params)


clock.drive(advance, lambda: state.params)
clock.report(version=version("fedjax"), jax=jax.__version__)
