"""Quadratics + l1 with every constant known in closed form, and runs with exact noise."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import compositefl as cfl
from compositefl.core.component import replace
from compositefl.core.vector import Vector
from compositefl.theory import Constants


def soft(x, t):
    return np.sign(x) * np.maximum(np.abs(x) - t, 0.0)


class Quadratic(NamedTuple):
    """f_i(x) = sum_k h_ik (x_k - a_ik)^2 / 2 and phi = weight ||x||_1."""

    hessian: np.ndarray  # (clients, features)
    centre: np.ndarray
    weight: float = 0.0

    @property
    def phi(self):
        return cfl.L1(self.weight)

    @property
    def curvature(self):
        return self.hessian.mean(0)

    @property
    def solution(self):
        linear = (self.hessian * self.centre).mean(0)
        return soft(linear, self.weight) / self.curvature

    def psi(self, x):
        f = 0.5 * np.mean(np.sum(self.hessian * (x - self.centre) ** 2, 1))
        return f + self.weight * np.abs(x).sum()

    def gradients(self, x):
        return self.hessian * (x - self.centre)

    def stationary_z(self, gamma):
        """The z* with F_nor(z*) = 0."""
        x = self.solution
        return x - gamma * self.gradients(x).mean(0)

    def constants(self, z, gamma, sigma=0.0, **more):
        x = soft(z, gamma * self.weight)
        gradients = self.gradients(x)
        known = dict(
            L=float(self.hessian.max()),
            clients=len(self.hessian),
            sigma=sigma,
            delta=float(max(0.0, self.psi(x) - self.psi(self.solution))),
            mu=float(self.curvature.min()),
            subgradient=self.weight * np.sqrt(len(z)),
            normal_map_sq=float(np.sum((gradients.mean(0) + (z - x) / gamma) ** 2)),
            prox_gap_sq=float(np.sum((x - z) ** 2)),
            gradients_sq=float(np.mean(np.sum(gradients**2, 1))),
        )
        return Constants(**known | more)


def mixed(clients=6, features=4, weight=0.1, seed=0):
    """Clients with different Hessians (L = 1) and different minimisers."""
    rng = np.random.default_rng(seed)
    hessian = rng.uniform(0.3, 1.0, (clients, features))
    hessian[0, 0] = 1.0
    return Quadratic(hessian, rng.normal(size=(clients, features)), weight)


def tiled(clients, weight=0.1, copies=1):
    """Two different clients repeated: f, L and delta do not change with the number of clients.

    copies: how often the four features are repeated.
    """
    hessian = np.array([[1.0, 1.0, 1.0, 1.0], [0.8, 1.0, 0.9, 1.0]])
    centre = np.array([[1.0, -1.0, 0.5, 0.0], [0.5, -0.5, -0.5, 0.2]])
    times = (clients // 2, copies)
    return Quadratic(np.tile(hessian, times), np.tile(centre, times), weight)


SEGMENT = 500  # rounds of one compiled call; together with padding it saves compilations


def run(quadratic, algorithm, z, *, rounds, sigma=0.0, trials=2, seed=0, pad=(8, 4)):
    """Rounds of the algorithm's own functions, gradients with Gaussian noise of variance sigma^2.

    pad: clients and local steps that are compiled for.

    Returns arrays (trials, rounds + 1): "F", the squared stationarity measure of its theorem before
    each round and after the last, "psi" at the model and "distance", ||x - x*||^2.
    """
    assert rounds % SEGMENT == 0
    algorithm = replace(algorithm, regularizer=quadratic.phi)
    clients, features = quadratic.hessian.shape
    most, steps = pad
    fill = [(0, most - clients), (0, 0)]
    data = Data(
        jnp.asarray(np.pad(quadratic.hessian, fill)),
        jnp.asarray(np.pad(quadratic.centre, fill)),
        jnp.asarray(np.arange(most) < clients) / clients,
        jnp.asarray(quadratic.solution),
    )
    start = Vector(jnp.asarray(z, float))
    state = algorithm.init_server(start), algorithm.init_client(start)
    repeat = lambda a, *times: jnp.tile(a, (*times, *[1] * jnp.ndim(a)))  # noqa: E731
    state = (
        jax.tree.map(lambda a: repeat(a, trials), state[0]),
        jax.tree.map(lambda a: repeat(a, trials, most), state[1]),
    )
    rng, rows = np.random.default_rng(seed), []
    for _ in range(rounds // SEGMENT):
        noise = np.zeros((trials, SEGMENT, most, steps, features))  # a new one: JAX may not copy
        if sigma:
            shape = (trials, SEGMENT, clients, algorithm.local_steps, features)
            drawn = sigma / np.sqrt(features) * rng.normal(size=shape)
            noise[:, :, :clients, : algorithm.local_steps] = drawn
        state, out = _segment(algorithm, data, state, noise)
        rows.append(out)
    last = jax.vmap(lambda server: measure(algorithm, data, server))(state[0])
    rows.append({name: value[:, None] for name, value in last.items()})
    return {name: np.concatenate([r[name] for r in rows], 1) for name in last}


class Data(NamedTuple):
    hessian: jax.Array
    centre: jax.Array
    share: jax.Array  # of each client in the mean; 0 for padding
    solution: jax.Array


def measure(algorithm, data, server):
    phi = algorithm.regularizer
    za1 = isinstance(algorithm, cfl.ZA1)
    x = server.p.tree if za1 else server.x.tree
    gradient = data.share @ (data.hessian * (x - data.centre))
    if za1:  # G, the natural residual with parameter eta_hat
        step = algorithm.eta_hat
        residual = (x - phi.prox(x - step * gradient, step)) / step
    else:  # F_nor at the algorithm's own z
        residual = gradient + (server.z.tree - x) / algorithm.gamma
    f = 0.5 * data.share @ jnp.sum(data.hessian * (x - data.centre) ** 2, 1)
    distance = jnp.sum((x - data.solution) ** 2)
    return {"F": jnp.sum(residual**2), "psi": f + phi.value(x), "distance": distance}


@jax.jit
def _segment(algorithm, data, state, noise):
    def body(carry, noise):
        server, states = carry
        message = algorithm.broadcast(server)

        def client(h, a, state, noise):
            def step(l, local):
                x = algorithm.query(local, l).tree
                return algorithm.step(local, Vector(h * (x - a) + noise[l]), l)

            local = algorithm.begin(message, state)
            local = lax.fori_loop(0, algorithm.local_steps, step, local)
            return algorithm.finish(local, algorithm.local_steps)

        uploads, new = jax.vmap(client)(data.hessian, data.centre, states, noise)
        mean = jax.tree.map(lambda a: data.share @ a, uploads)
        return (algorithm.update(server, mean, 1.0), new), measure(algorithm, data, server)

    return jax.vmap(lambda state, noise: lax.scan(body, state, noise))(state, noise)
