"""Hand-written JAX: vmap over the clients, scan over their steps, a loop over rounds, one jit."""

import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax_networks import loss
from protocol import Clock, Task

task = Task(sys.argv[1])
clock = Clock(task)
x, y = jnp.asarray(task.x), jnp.asarray(task.y)
samples = x.shape[1]


def client(server, control, own, key, data, labels):
    """The model and the control of a client after its steps."""
    order = jax.random.permutation(key, samples) if task.batch else jnp.arange(samples)

    def step(p, rows):
        gradient = jax.grad(loss, 1)(task.workload, p, data[rows], labels[rows])
        if task.method == "scaffold":
            gradient = jax.tree.map(lambda g, c, i: g + c - i, gradient, control, own)
        return jax.tree.map(lambda w, g: w - task.lr * g, p, gradient), None

    rows = order.reshape(task.steps, -1) if task.batch else jnp.tile(order, (task.steps, 1))
    p, _ = jax.lax.scan(step, server, rows)
    if task.method == "scaffold":
        own = jax.tree.map(
            lambda i, c, s, w: i - c + (s - w) / (task.steps * task.lr), own, control, server, p
        )
    return p, own


@partial(jax.jit, donate_argnums=1)
def run(rounds, state, key):
    def one(t, state):
        server, control, owns = state
        keys = jax.random.split(jax.random.fold_in(key, t), task.clients)
        each = jax.vmap(client, in_axes=(None, None, 0, 0, 0, 0))
        models, new = each(server, control, owns, keys, x, y)
        mean = partial(jnp.mean, axis=0)
        if task.method == "scaffold":
            control = jax.tree.map(lambda c, a, b: c + mean(a - b), control, new, owns)
        return jax.tree.map(mean, models), control, new

    return jax.lax.fori_loop(0, rounds, one, state)


server = {k: jnp.asarray(v) for k, v in task.start.items()}
control, owns = {}, {}
if task.method == "scaffold":
    control = jax.tree.map(jnp.zeros_like, server)
    owns = jax.tree.map(lambda a: jnp.zeros((task.clients, *a.shape)), server)
state, done = (server, control, owns), 0


def advance(rounds):
    global state, done
    state = jax.block_until_ready(run(np.int32(rounds), state, jax.random.key(done)))
    done += rounds


clock.drive(advance, lambda: state[0])
clock.report(version=jax.__version__)
