"""Estimates of a problem's constants, each with its uncertainty said.

Everything is measured along a short proximal-gradient run from the start.
"""

from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from compositefl.core.errors import CompositeFLError, require_integer, require_positive, wrong_value
from compositefl.core.vector import Vector, squared_norm
from compositefl.engine.metrics import normal_map
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.elementary import Zero
from compositefl.theory.base import Constants
from compositefl.theory.probe import Probe, Statistics, normal_like

SAFE = 0.9  # share of 1/(L + rho) taken as step: L is a lower bound
HALVINGS = 20  # of the step, when psi rises


@dataclass(frozen=True)
class Quantity:
    """A measured number. `note` says what the uncertainty is, and what is not in it."""

    value: float
    uncertainty: float
    note: str

    def __str__(self) -> str:
        return f"{self.value:.6g} +- {self.uncertainty:.2g} ({self.note})"


@dataclass(frozen=True)
class Estimate:
    """What `estimate` measured. `constants()` turns it into `Constants`."""

    L: Quantity
    rho: Quantity
    sigma: Quantity
    delta: Quantity
    zeta: Quantity
    lipschitz: Quantity
    subgradient: Quantity
    normal_map_sq: float
    prox_gap_sq: float
    gradients_sq: float
    gamma: float  # of x_0 = prox_gamma(z_0), F_nor and delta
    clients: int
    batch_size: int | None

    def constants(self, **known: Any) -> Constants:
        """The values as `Constants`; what is known better, or not measured (mu, nu), is passed."""
        measured = {f.name: getattr(self, f.name) for f in fields(self)}
        values = {k: v.value if isinstance(v, Quantity) else v for k, v in measured.items()}
        del values["gamma"], values["batch_size"]
        return Constants(**{**values, **known})

    def __str__(self) -> str:
        measured = [(f.name, getattr(self, f.name)) for f in fields(self)]
        return "\n".join(f"{k:12} {v}" for k, v in measured if isinstance(v, Quantity))


def estimate(
    problem: Problem,
    regularizer: Regularizer | None = None,
    *,
    batch_size: int | None = None,
    gamma: float | None = None,
    seed: int = 0,
    dtype: str = "float32",
    steps: int = 100,
    iterates: int = 5,
    power_steps: int = 30,
    batches: int = 64,
    samples: int | None = None,
) -> Estimate:
    """Measure L, sigma, delta, zeta and the other constants of the theorems.

    batch_size: of the stochastic gradients, None for full local gradients (sigma = 0).
    gamma: prox parameter of the start x_0 = prox_gamma(z_0), None for 1/(5 (L + rho)).
    steps, iterates: proximal-gradient steps of the run, and points on it where things are measured
        besides x_0. power_steps: of the power iteration for L. batches: minibatches drawn per
        client and point for sigma.
    samples: at most so many samples of a client are used, for large data; None for all.
    """
    require_integer(steps=steps, iterates=iterates, power_steps=power_steps)
    require_integer(minimum=2, batches=batches)
    require_integer(minimum=0, seed=seed)
    for name, value in (("batch_size", batch_size), ("samples", samples)):
        if value is not None:
            require_integer(**{name: value})
    if dtype not in ("float32", "float64"):
        raise wrong_value("dtype", dtype, "'float32' or 'float64'", shown=repr(dtype))
    phi = regularizer or Zero()
    phi.check_tree(problem.params)
    rho = float(np.max(np.asarray(phi.rho)))
    if gamma is not None:
        require_positive(gamma=gamma)
        phi.check_prox("gamma", gamma)
    if samples is not None:
        problem = _thin(problem, samples, seed)
    with jax.enable_x64(dtype == "float64"):
        probe = Probe(problem, dtype, seed)
        z = Vector(problem.start(dtype))
        x = probe.prox(phi, z, gamma or (0.5 / rho if rho > 0 else 1.0))
        if gamma is None:
            x = probe.prox(phi, z, _theorem_gamma([_look(probe, phi, x, power_steps)], rho))
        points = _run(probe, phi, x, rho, steps, iterates, power_steps)
        if gamma is None:  # L of the whole run is known only now
            gamma = _theorem_gamma(points, rho)
            points.insert(0, _look(probe, phi, probe.prox(phi, z, gamma), power_steps))
        return _measure(probe, phi, z, gamma, rho, points, batch_size, batches)


class _Point(NamedTuple):
    """A point of the run with psi, grad f, and the curvature of every f_i there."""

    x: Vector
    psi: float
    gradient: Vector
    curvature: np.ndarray  # of every client, a lower bound
    residual: np.ndarray  # how far the power iteration is from an eigenvector


def _theorem_gamma(points: list[_Point], rho: float) -> float:
    """1/(5 (L + rho)) with the largest curvature seen."""
    L = max(float(p.curvature.max()) for p in points)
    if L + rho == 0:
        raise CompositeFLError("L = 0: the losses have no curvature at the start; give gamma")
    return 1 / (5 * (L + rho))


def _look(probe: Probe, phi: Regularizer, x: Vector, power_steps: int) -> _Point:
    value, gradient = probe.value_and_gradient(x)
    psi = float(value) + float(phi.value(x.tree))
    if not np.isfinite(psi):
        raise CompositeFLError(f"psi is {psi} at a point near the start; is the loss finite there?")
    curvature, residual = probe.curvature(x, power_steps)
    if not np.all(np.isfinite(curvature)):
        raise CompositeFLError("the loss has second derivatives that are not finite")
    return _Point(x, psi, gradient, curvature, residual)


def _run(
    probe: Probe,
    phi: Regularizer,
    first: Vector,
    rho: float,
    steps: int,
    iterates: int,
    power_steps: int,
) -> list[_Point]:
    """A proximal-gradient run, its step 0.9/(L + rho) with the L seen so far."""
    points = [_look(probe, phi, first, power_steps)]
    for part in range(iterates):
        here = points[-1]
        count = (part + 1) * steps // iterates - part * steps // iterates
        L = max(float(p.curvature.max()) for p in points)
        step = SAFE / max(L + rho, np.finfo(probe.dtype).tiny ** 0.5)
        x = probe.descend(phi, here.x, step, count)
        for _ in range(HALVINGS):
            psi = float(probe.value_and_gradient(x)[0]) + float(phi.value(x.tree))
            if psi <= here.psi + 10 * np.finfo(probe.dtype).eps * abs(here.psi):
                break
            step /= 2
            x = probe.descend(phi, here.x, step, count)
        points.append(_look(probe, phi, x, power_steps))
    return points


def _measure(
    probe: Probe,
    phi: Regularizer,
    z: Vector,
    gamma: float,
    rho: float,
    points: list[_Point],
    batch_size: int | None,
    batches: int,
) -> Estimate:
    start = points[0]
    tops = np.array([p.curvature.max() for p in points])
    best = points[int(np.argmax(tops))]
    residual = float(best.residual[int(np.argmax(best.curvature))])
    seen = [probe.statistics(p.x, p.gradient, k, batch_size, batches) for k, p in enumerate(points)]
    far = np.sqrt([s.apart.max() for s in seen])
    singles = [s.largest.max() for s in seen]
    psi = [p.psi for p in points]
    here = f"over {len(points)} points of a short run"
    return Estimate(
        L=Quantity(
            float(tops.max()),
            float(max(np.ptp(tops), residual)),
            f"lower bound by power iteration, the largest client; uncertainty: spread {here}, "
            "or residual of the power iteration",
        ),
        rho=Quantity(rho, 0.0, "known from the regularizer"),
        sigma=_sigma(seen, batches) if batch_size else Quantity(0.0, 0.0, "full local gradients"),
        delta=Quantity(
            max(0.0, psi[0] - min(psi)),
            max(0.0, psi[-2] - psi[-1]),
            "lower bound: psi(x_0) minus the best psi of a short run; uncertainty: what the last "
            "part of the run still gained",
        ),
        zeta=Quantity(
            float(far.max()),
            float(np.ptp(far)),
            f"largest ||grad f_i - grad f|| seen; uncertainty: spread {here}",
        ),
        lipschitz=Quantity(
            float(max(singles)),
            float(np.ptp(singles)),
            f"largest gradient of a sample seen; uncertainty: spread {here}",
        ),
        subgradient=_subgradient_bound(phi, z, rho, probe.generator(0)),
        normal_map_sq=float(squared_norm(normal_map(gamma, z, start.x, start.gradient))),
        prox_gap_sq=float(squared_norm(start.x - z)),
        gradients_sq=float(seen[0].norm.mean()),
        gamma=gamma,
        clients=len(probe.sizes),
        batch_size=batch_size,
    )


def _sigma(seen: list[Statistics], batches: int) -> Quantity:
    means = np.concatenate([s.noise for s in seen])
    errors = np.concatenate([s.error for s in seen])
    top = int(np.argmax(means))
    sigma = float(np.sqrt(means[top]))
    return Quantity(
        sigma,
        float(errors[top]) / (2 * sigma) if sigma else 0.0,
        f"largest over clients and {len(seen)} points, {batches} minibatches each; uncertainty: "
        "standard error there, taking the largest favours high values",
    )


def _subgradient_bound(
    phi: Regularizer, z: Vector, rho: float, rng: np.random.Generator
) -> Quantity:
    """B_g from (z - prox_t(z))/t, a subgradient at prox_t(z), at random points of seven sizes."""
    t = 0.5 / rho if rho > 0 else 1.0
    norms = []
    with jax.enable_x64(True):  # at large points float32 loses z - prox(z)
        direction = normal_like(rng, z).map(lambda a: jnp.asarray(a, jnp.float64))
        for scale in 10.0 ** np.arange(-3, 4):
            point = float(scale) * direction
            step = point - Vector(phi.prox(point.tree, t))
            norms.append(float(jnp.sqrt(squared_norm(step))) / t)
    if norms[-1] > 2 * norms[-2] > 0:  # grows with the point: no bound
        return Quantity(np.inf, 0.0, "subgradients of the regularizer are not bounded")
    return Quantity(max(norms), 0.0, "largest subgradient seen at random points, a lower bound")


def _thin(problem: Problem, samples: int, seed: int) -> Problem:
    """The problem with at most `samples` random samples of each client."""
    rng = np.random.default_rng(seed)
    clients = []
    for client, size in zip(problem.clients, problem.sizes, strict=True):
        keep = np.sort(rng.permutation(size)[:samples])
        clients.append(jax.tree.map(lambda a, keep=keep: np.asarray(a)[keep], client))
    return Problem(problem.loss, problem.params, clients)
