"""Stationarity and accuracy of a model, computed in the network as the simulation computes it."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from compositefl.core.trees import weighted_mean
from compositefl.core.types import Array, ServerState
from compositefl.core.vector import Vector
from compositefl.deployment import compute
from compositefl.deployment.calls import Reply, SiteCalls
from compositefl.deployment.compute import Plan
from compositefl.deployment.messages import pack
from compositefl.engine.stationarity import METRICS
from compositefl.solve.options import residual_gamma


class Measured(NamedTuple):
    """What a round is worth."""

    metrics: dict[str, float]  # NaN where nobody answered
    sites: list[str]  # that they come from
    finite: bool  # no site had NaN or infinity


class Judge:
    """Asks the sites for loss and full gradient at the model, and for right answers.

    Of methods without a z of their own it asks for the gradient at the point of the normal map too.
    weights: the weights of some sites in f.
    """

    def __init__(self, plan: Plan, calls: SiteCalls, weights: Callable[[list[str]], list[float]]):
        self.plan, self.calls, self.weights = plan, calls, weights

    def measure(self, t: int, server: ServerState, sites: list[str]) -> Measured:
        """Metrics of the model in round t, from those of `sites` that answer."""
        plan = self.plan
        with plan.precision():
            x = jax.device_get(compute.model(plan.algorithm, server))
            own = jax.device_get(compute.normal_map_point(plan.algorithm, server))
        not_finite: list[str] = []
        got = self._gradients(t, x, sites, not_finite, accuracy=True)
        if not got:
            return Measured(dict.fromkeys(METRICS[:-1], float("nan")), [], not not_finite)
        phi = plan.algorithm.regularizer
        gamma = plan.dtype.type(plan.federation.eval_gamma or residual_gamma([plan.method]))
        loss, gradient = self._mean(got)
        whole, gradient_z = True, None
        if own is None:
            with plan.precision():
                x_z = jax.device_get(compute.prox_point(phi, gamma, x, gradient))
            again = self._gradients(t, x_z, list(got), [], accuracy=False)
            whole = again.keys() == got.keys()
            gradient_z = self._mean(again)[1] if whole else gradient
        with plan.precision():
            measured = jax.device_get(
                compute.stationarity(phi, gamma, x, loss, gradient, own, gradient_z)
            )
        if not whole:
            measured["normal_map_sq"] = float("nan")
        tests = sum(answer.number("tests", int) for answer in got.values())
        if tests:
            right = sum(answer.number("right", float) for answer in got.values())
            measured["accuracy"] = right / tests
        metrics = {name: float(measured[name]) for name in METRICS if name in measured}
        return Measured(metrics, list(got), not not_finite)

    def _gradients(
        self, t: int, x: Vector, sites: list[str], not_finite: list[str], accuracy: bool
    ) -> dict[str, Reply]:
        like, arrays = Vector(self.plan.shapes.params), pack("x", x)
        return self.calls.ask(
            t, sites, "evaluate", arrays, "gradient", like, not_finite, accuracy=accuracy
        )

    def _mean(self, got: dict[str, Reply]) -> tuple[Array, Vector]:
        """Loss and gradient of f from those of the sites."""
        weights = np.array(self.weights(list(got)))
        losses = np.array([answer.number("loss", float) for answer in got.values()])
        gradient = weighted_mean([a.tree for a in got.values()], list(weights))
        return self.plan.dtype.type(losses @ weights / weights.sum()), gradient
