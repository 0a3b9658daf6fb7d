"""The workloads' networks as one writes them in JAX, for the adapters that use it."""

import jax
import jax.numpy as jnp


def outputs(workload, p, a):
    """Logits of a batch."""
    dense = lambda a, layer: a @ p[f"{layer}/kernel"] + p[f"{layer}/bias"]  # noqa: E731
    if workload == "softmax":
        return dense(a, "dense0")
    if workload == "mlp":
        return dense(jax.nn.sigmoid(dense(a, "dense0")), "dense1")
    for layer in ("conv0", "conv1"):
        a = jax.lax.conv_general_dilated(
            a, p[f"{layer}/kernel"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        a = jax.nn.relu(a + p[f"{layer}/bias"])
        a = jax.lax.reduce_window(a, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    a = jax.nn.relu(dense(a.reshape(len(a), -1), "dense0"))
    return dense(jax.nn.relu(dense(a, "dense1")), "dense2")


def loss(workload, p, a, labels):
    """The mean cross-entropy of a batch."""
    log = jax.nn.log_softmax(outputs(workload, p, a))
    return -jnp.mean(jnp.take_along_axis(log, labels[:, None], 1))
