"""The equations of one round as server and sites run them, with the simulation's own functions.

Keys, minibatches and local steps are those of client i of trial 0 in the simulation, i the place
of the site in the federation, so that both follow the same trajectory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.algorithms.base import Algorithm, automatic
from compositefl.core.trees import as_number
from compositefl.core.types import (
    Accuracy,
    Array,
    Batch,
    Broadcast,
    ClientState,
    Loss,
    Number,
    Params,
    PyTree,
    ServerState,
    Upload,
)
from compositefl.core.vector import Vector
from compositefl.deployment.federation import Federation
from compositefl.engine import eager
from compositefl.engine import stationarity as measure
from compositefl.engine.accounting import example_extras
from compositefl.engine.client import ClientInfo, Oracle, client_keys, client_round
from compositefl.engine.curvature import curvature_by_differences, direction, largest_curvature
from compositefl.engine.samples import converted_test, gather
from compositefl.engine.sampling import trial_key
from compositefl.problem import Problem
from compositefl.solve.steering import BEFORE


class Shapes(NamedTuple):
    """Pytrees that look like what travels and what is kept: shapes and types only."""

    params: Params
    server: ServerState
    client: ClientState
    message: Broadcast
    upload: Upload


class Plan:
    """A federation ready to compute: the algorithm with numbers of the right type, the start."""

    def __init__(self, federation: Federation):
        self.federation = federation.check()
        self.dtype = np.dtype(federation.dtype)
        self.model = federation.make_model()
        self.method = federation.make_algorithm()  # with "auto" where a number sets itself
        self.automatic = bool(automatic(self.method))
        self.batch_size = None if self.method.exact_gradients else federation.batch_size
        self.params = jax.tree.map(lambda a: a.astype(self.dtype), federation.start())
        self.use(self.method.at(BEFORE))
        self.server, self.client = self.start()
        self.shapes = self._shapes()

    def use(self, algorithm: Algorithm) -> None:
        """Go on with these numbers of the method."""
        self.steps = int(algorithm.steps)
        with self.precision():
            self.algorithm: Algorithm = jax.tree.map(partial(as_number, self.dtype), algorithm)

    def start(self) -> tuple[ServerState, ClientState]:
        """The states of the server and of a site before the first round."""
        with self.precision():
            server, client = jax.device_get(_initial(self.algorithm, self.params))
        return server, client

    def steps_in(self, t: int) -> tuple[int, int]:
        """The fewest and the most local steps that a site can take in round t."""
        algorithm = self.algorithm
        most = self.steps
        if type(algorithm).draw_steps is not Algorithm.draw_steps:  # the same draw at all sites
            with self.precision():
                keys = client_keys(trial_key(np.uint32(self.federation.seed), 0), t, 0)
                most = int(algorithm.draw_steps(keys.shared))
        return (0 if algorithm.stops_early else most), most

    @contextmanager
    def precision(self) -> Iterator[None]:
        """The floating-point type of the federation, for this thread."""
        with jax.enable_x64(self.dtype == np.float64):
            yield

    def _shapes(self) -> Shapes:
        def one_round(
            algorithm: Algorithm, server: ServerState, client: ClientState, start: Params
        ) -> tuple[Broadcast, Upload]:
            message = algorithm.broadcast(server)
            extras = example_extras(algorithm, Vector(start))
            local = algorithm.begin(message, client, **extras)
            return message, algorithm.finish(local, jnp.int32(1))[0]

        with self.precision():
            message, upload = jax.eval_shape(
                one_round, self.algorithm, self.server, self.client, self.params
            )
        like = partial(jax.tree.map, lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype))
        return Shapes(like(self.params), like(self.server), like(self.client), message, upload)


@jax.jit
def _initial(algorithm: Algorithm, params: Params) -> tuple[ServerState, ClientState]:
    """Server and client state before the first round, in the type of the parameters."""
    dtype = jnp.result_type(*jax.tree.leaves(params))
    real = lambda a: a.astype(dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a  # noqa: E731
    start = Vector(params)
    states = (algorithm.init_server(start), algorithm.init_client(start))
    return jax.tree.map(lambda a: real(jnp.asarray(a)), states)


# What is compiled in at a site: the loss, the batch size, the number of samples.
SiteProgram: TypeAlias = tuple[Loss, int | None, int]


class SiteEngine:
    """A site's data on its device, and what it can compute from them."""

    def __init__(self, plan: Plan, number: int, problem: Problem):
        self.plan = plan
        self.size = int(problem.sizes[0])
        self.loss: Any = problem.loss
        self.program = (problem.loss, plan.batch_size, self.size)
        with plan.precision():
            self.samples = self._keep(gather(problem, [0], self.size, plan.dtype))
            self.info = ClientInfo(
                np.int32(number), np.int32(0), np.int32(self.size), plan.dtype.type(1)
            )
        self.test = None
        if problem.test is not None and problem.accuracy is not None:
            self.test = converted_test(problem, plan.dtype)
        self.accuracy: Any = problem.accuracy
        self.test_size = 0 if self.test is None else len(jax.tree.leaves(self.test)[0])

    def _keep(self, samples: Batch) -> Batch:
        return jax.device_put(samples)

    def opening(self, message: Broadcast) -> Vector:
        """The full gradient at the round's anchor, for methods that need the mean of those."""
        with self.plan.precision():
            return jax.device_get(
                _opening(self.program, self.plan.algorithm, self.samples, self.info, message)
            )

    def curvature(self) -> float:
        """The largest curvature of the loss at the start, on the site's first minibatch."""
        plan, x = self.plan, Vector(self.plan.params)
        seed = plan.federation.seed
        with plan.precision():
            v = direction(seed, x)
            found = _curvature(self.program, self.samples, self.info, np.uint32(seed), x, v)
            return float(found)

    def round(
        self, t: int, message: Broadcast, state: ClientState, mean: PyTree
    ) -> tuple[Upload, ClientState, int]:
        """(upload, new private state, steps taken) of round t."""
        plan = self.plan
        with plan.precision():
            upload, new, taken = jax.device_get(
                _round(
                    self.program,
                    plan.algorithm,
                    self.samples,
                    self.info,
                    np.uint32(plan.federation.seed),
                    np.int32(t),
                    message,
                    state,
                    mean,
                )
            )
        return upload, new, int(taken)

    def state_after(self, message: Broadcast, state: ClientState, sent: Upload) -> ClientState:
        """The private state after an upload that noise has changed."""
        if not jax.tree.leaves(state):
            return state
        with self.plan.precision():
            return jax.device_get(_state_after(self.plan.algorithm, message, state, sent))

    def loss_and_gradient(self, x: Params) -> tuple[float, Params]:
        """Mean loss over all samples of the site, and its gradient."""
        with self.plan.precision():
            value, gradient = jax.device_get(
                eager.mean_over_parts(
                    partial(_value_and_grad, self.loss, x), self.loss, self.samples
                )
            )
        return float(value), gradient

    def right_answers(self, x: Params) -> float:
        """How many samples of the site's test set the model gets right."""
        if self.test is None or self.accuracy is None:
            return 0.0
        with self.plan.precision():
            right = partial(_apply, self.accuracy, x)
            share = eager.mean_over_parts(right, self.accuracy, self.test)
        return float(share) * self.test_size


class ExternalSiteEngine(SiteEngine):
    """The same for a loss that JAX cannot compile."""

    def _keep(self, samples: Batch) -> Batch:
        return samples

    def opening(self, message: Broadcast) -> Vector:
        """The full gradient at the round's anchor."""
        with self.plan.precision():
            oracle = self._oracle(jax.random.key(0))
            return oracle.full(jax.device_get(eager.anchor(self.plan.algorithm, message)))[1]

    def curvature(self) -> float:
        """The largest curvature of the loss at the start, by differences of gradients."""
        x, seed = Vector(self.plan.params), self.plan.federation.seed
        with self.plan.precision():
            keys = client_keys(trial_key(np.uint32(seed), 0), 0, self.info.id)
            oracle = self._oracle(keys.minibatch)
            gradient = lambda point: jax.device_get(oracle(point, 0)[1])  # noqa: E731
            return curvature_by_differences(gradient, x, direction(seed, x))

    def round(
        self, t: int, message: Broadcast, state: ClientState, mean: PyTree
    ) -> tuple[Upload, ClientState, int]:
        """(upload, new private state, steps taken) of round t."""
        plan = self.plan
        with plan.precision():
            keys = client_keys(trial_key(np.uint32(plan.federation.seed), 0), t, self.info.id)
            upload, new, taken = eager.client_round(
                plan.algorithm,
                self._oracle(keys.minibatch),
                int(plan.algorithm.draw_steps(keys.shared)),
                message,
                state,
                keys.extras(plan.algorithm, mean),
            )
            return *jax.device_get((upload, new)), taken

    def loss_and_gradient(self, x: Params) -> tuple[float, Params]:
        """Mean loss over all samples of the site, and its gradient."""
        value, gradient = eager.full_mean(self.loss, x, self.samples)
        return float(value), gradient

    def right_answers(self, x: Params) -> float:
        """How many samples of the site's test set the model gets right."""
        if self.test is None or self.accuracy is None:
            return 0.0
        return eager.mean_value(self.accuracy, x, self.test) * self.test_size

    def _oracle(self, key: jax.Array) -> eager.LoopOracle:
        return eager.LoopOracle(self.loss, self.program[1], key, int(self.info.id), self.samples)


def make_site_engine(plan: Plan, number: int, train: Batch, test: Batch) -> SiteEngine:
    """The engine of the site at place `number` of the federation."""
    problem: Problem = plan.model.problem([train], test=test, seed=plan.federation.seed)
    return (SiteEngine if problem.compiles else ExternalSiteEngine)(plan, number, problem)


@partial(jax.jit, static_argnums=0)
def _value_and_grad(loss: Loss, x: Params, batch: Batch) -> tuple[Array, Params]:
    return jax.value_and_grad(loss)(x, batch)


@partial(jax.jit, static_argnums=0)
def _apply(function: Accuracy, x: Params, batch: Batch) -> Array:
    return function(x, batch)


@partial(jax.jit, static_argnames="program")
def _opening(
    program: SiteProgram, algorithm: Algorithm, samples: Batch, info: ClientInfo, message: Broadcast
) -> Vector:
    return Oracle(*program, True, samples, jax.random.key(0), info).full(algorithm.anchor(message))[
        1
    ]


@partial(jax.jit, static_argnames="program")
def _curvature(
    program: SiteProgram, samples: Batch, info: ClientInfo, seed: Number, x: Vector, v: Vector
) -> jax.Array:
    keys = client_keys(trial_key(seed, 0), 0, info.id)
    oracle = Oracle(*program, True, samples, keys.minibatch, info)
    return largest_curvature(lambda point: oracle(point, 0)[1], x, v)


@partial(jax.jit, static_argnames="program")
def _round(
    program: SiteProgram,
    algorithm: Algorithm,
    samples: Batch,
    info: ClientInfo,
    seed: Number,
    t: Number,
    message: Broadcast,
    state: ClientState,
    mean: PyTree,
) -> tuple[Upload, ClientState, jax.Array]:
    keys = client_keys(trial_key(seed, 0), t, info.id)
    oracle = Oracle(*program, True, samples, keys.minibatch, info)
    steps = algorithm.draw_steps(keys.shared)
    return client_round(algorithm, oracle, steps, message, state, keys.extras(algorithm, mean))


@jax.jit
def _state_after(
    algorithm: Algorithm, message: Broadcast, state: ClientState, sent: Upload
) -> ClientState:
    return algorithm.state_after(message, state, sent)


@jax.jit
def rescale(old: Algorithm, server: ServerState, new: Algorithm) -> ServerState:
    """The server's state for other numbers of the method, at the same model."""
    return old.rescale(server, new)


# The equations of the server, compiled one by one.
broadcast, update, model = eager.broadcast, eager.update, eager.model
normal_map_point = eager.normal_map_point
prox_point, stationarity = jax.jit(measure.prox_point), jax.jit(measure.stationarity)
