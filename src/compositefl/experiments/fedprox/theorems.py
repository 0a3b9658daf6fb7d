"""Yuan, Li (2022): the rates of FedProx and FedMSPP, Theorems 1 to 4, which the paper only proves.

Every theorem bounds the mean over the iterates of a squared gradient norm, for steps that depend on
the number of rounds T, devices per round I and minibatch size b. Here those steps are used and the
mean is measured.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from compositefl.algorithms import (
    PGD,
    FedMSPP,
    FedMSPPNonsmooth,
    FedProx,
    FedProxNonsmooth,
)
from compositefl.algorithms.certified import Solve, begin_solve, improve
from compositefl.core.types import Array, Batch, Params
from compositefl.core.vector import Vector
from compositefl.experiments.declaration import Experiment, Kind, TableRow, Verdict
from compositefl.experiments.rates import SLACK, draw, panels, robust
from compositefl.experiments.statistics import Estimate, slope_error
from compositefl.problem import Problem
from compositefl.solve._minimize import minimize
from compositefl.solve.trajectory import Trajectory
from compositefl.theory import Constants, StepSizes, stepsizes

DEVICES = 64
SAMPLES = 50
FEATURES = 2
LOOKS = 512  # evaluations of a run of a smooth loss
STOPS = 32  # iterates of a run whose Moreau envelope is evaluated
ENVELOPE_STEPS = 300
SIGMOID_NU = 1 / (6 * math.sqrt(3))  # largest second derivative of the sigmoid


@dataclass(frozen=True)
class Data:
    """Rows x of norm 1; device i has targets x.w_i + noise, w_i = w + spread * normal.

    With spread 0 all devices hold the same samples.
    """

    distance: float  # ||w||, how far the start 0 is from the mean model
    spread: float
    noise: float

    def __call__(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(x, y) of each device."""
        rng = np.random.default_rng(0)
        w = rng.normal(size=FEATURES)
        w *= self.distance / np.linalg.norm(w)
        devices = []
        for _ in range(DEVICES):
            own = w + self.spread * rng.normal(size=FEATURES)
            x = rng.normal(size=(SAMPLES, FEATURES))
            x /= np.linalg.norm(x, axis=1, keepdims=True)
            y = x @ own + self.noise * rng.normal(size=SAMPLES)
            devices.append((x.astype(np.float32), y.astype(np.float32)))
        return devices if self.spread else devices[:1] * DEVICES


def absolute(w: Params, batch: Batch) -> jax.Array:
    """|sigmoid(x.w) - sigmoid(y)|: nonsmooth, Lipschitz, weakly convex and not convex."""
    x, y = batch
    return jnp.mean(jnp.abs(jax.nn.sigmoid(x @ w) - jax.nn.sigmoid(y)))


SMOOTH = Data(distance=1.0, spread=0.5, noise=0.3)
ALIKE = Data(distance=1.0, spread=0.0, noise=0.3)
NONSMOOTH = Data(distance=3.0, spread=1.0, noise=1.0)
# of one sample; the losses are not negative, so f at the start bounds Delta
ROBUST = Constants(L=1.0, lipschitz=3 * math.sqrt(3) / 16, clients=DEVICES)
ABSOLUTE = Constants(L=SIGMOID_NU, nu=SIGMOID_NU, lipschitz=0.25, clients=DEVICES)


@cache
def smooth_problem(data: Data, at_solution: bool) -> Problem:
    """The robust loss on `data`, started at 0 or at its solution."""
    problem = Problem(robust, np.zeros(FEATURES), data())
    if at_solution:
        options: dict[str, Any] = dict(dtype="float64", progress=False, devices=1)
        found = minimize(problem, None, PGD(lr=1.0), rounds=2000, eval_every=2000, **options)
        problem = problem.with_params(found.params)
    return problem


@cache
def nonsmooth_problem() -> Problem:
    """The absolute loss, started at 0."""
    return Problem(absolute, np.zeros(FEATURES), NONSMOOTH())


def start_value(problem: Problem) -> float:
    """f at the start, which bounds Delta for a nonnegative loss."""
    return float(np.mean([problem.loss(problem.params, c) for c in problem.clients]))


def sampling(devices: int | None) -> dict[str, Any]:
    """I devices with replacement, or all."""
    if devices is None:
        return {"participation": 1.0}
    return {"participation": devices if devices > 1 else 1 / DEVICES, "replacement": True}


def gradient_steps(steps: StepSizes) -> int:
    """Local gradient steps that prove a gap of at most eps.

    With step 1/(L + 1/eta) each one shrinks the gradient of the local problem, at most G at first,
    by 2 L eta / (1 + L eta), and the gap is at most ||gradient||^2 / (2 (1/eta - L)).
    """
    L, g = steps.constants.L, steps.constants.need("lipschitz", "FedProx")
    assert steps.eta and steps.eps
    shrink = 2 * L * steps.eta / (1 + L * steps.eta)
    gap = g**2 / (2 * (1 / steps.eta - L))
    count = 1
    while gap * shrink ** (2 * count) > steps.eps:
        count += 1
    return count


def smooth_run(
    problem: Problem, delta: float, rounds: int, devices: int | None, batch: int | None, trials: int
) -> TableRow:
    """The mean of ||grad f(x_t)||^2 over t < T with the steps of Theorem 1, or 3 with batches."""
    constants = Constants(**{**vars(ROBUST), "delta": delta})
    steps = stepsizes(
        "fedprox" if batch is None else "fedmspp",
        constants,
        rounds=rounds,
        participants=devices,
        batch_size=batch,
    )
    assert steps.eta and steps.local_lr
    kind = FedProx if batch is None else FedMSPP
    algorithm = kind(
        local_steps=gradient_steps(steps), local_lr=steps.local_lr, eta=steps.eta, accuracy=0.0
    )
    history = minimize(
        problem,
        None,
        algorithm,
        rounds=rounds,
        batch_size=batch,
        trials=trials,
        eval_every=max(1, rounds // LOOKS),
        dtype="float64",
        devices=1,
        client_block=min(devices or DEVICES, 8),
        progress=False,
        **sampling(devices),
    ).history
    means = [
        np.trapezoid(run["natural_residual_sq"], run["round"]) / rounds
        for _, run in history.groupby("trial")
    ]
    loss = history.groupby("round")["loss"].mean()
    return {
        "eta": steps.eta,
        "measured": float(np.mean(means)),
        "error": float(np.std(means) / math.sqrt(trials)),
        "descent": float((loss.iloc[0] - loss.iloc[-1]) / (steps.eta * rounds)),
        "bound": steps.bound(),
    }


@partial(jax.jit, static_argnums=0)
def envelope_gradient_sq(
    parameter: float, samples: Batch, models: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """||grad f_r(w)||^2 = ||w - prox_r f(w)||^2 / r^2 of each model, and a bound on its error.

    The minimiser is known to sqrt(2 gap / m), m being the strong convexity of its problem.
    """
    m = 1 / parameter - SIGMOID_NU

    def one(w: jax.Array) -> tuple[jax.Array, jax.Array]:
        def body(k: Array, solve: Solve) -> Solve:
            value, slope = jax.value_and_grad(absolute)(solve.u.tree, samples)
            return improve(solve, value, Vector(slope), SIGMOID_NU, m, k == 0)

        solve = jax.lax.fori_loop(0, ENVELOPE_STEPS, body, begin_solve(Vector(w)))
        step = (w - solve.best.tree) / parameter
        return jnp.vdot(step, step), 2 * jnp.maximum(solve.gap, 0) / (m * parameter**2)

    return jax.vmap(one)(models)


def nonsmooth_run(rounds: int, devices: int, batch: int | None, trials: int) -> TableRow:
    """The mean of ||grad f_r(x_t)||^2 over t < T with the steps of Theorem 2, or 4 with batches."""
    problem = nonsmooth_problem()
    constants = Constants(**{**vars(ABSOLUTE), "delta": start_value(problem)})
    name = "fedprox" if batch is None else "fedmspp"
    theorem = "2" if batch is None else "4"
    steps = stepsizes(
        name, constants, rounds=rounds, participants=devices, batch_size=batch, theorem=theorem
    )
    assert steps.eta and steps.envelope and constants.lipschitz
    kind = FedProxNonsmooth if batch is None else FedMSPPNonsmooth
    algorithm = kind(
        local_steps=2000,
        eta=steps.eta,
        accuracy=1e-3 * steps.eta * constants.lipschitz**2,
        weak_convexity=SIGMOID_NU,
    )
    trajectory = Trajectory(
        problem,
        None,
        algorithm,
        trials=trials,
        batch_size=batch,
        dtype="float64",
        devices=1,
        client_block=devices,
        **sampling(devices),
    )
    with jax.enable_x64(True):
        whole = [np.concatenate(part) for part in zip(*problem.clients, strict=True)]
        samples = tuple(jnp.asarray(part, jnp.float64) for part in whole)
        values = []
        for stop in range(STOPS):
            trajectory.advance(round((stop + 0.5) * rounds / STOPS))
            models = jnp.asarray(trajectory.models())
            values.append(envelope_gradient_sq(steps.envelope, samples, models))
        squares, errors = np.asarray(values).transpose(1, 0, 2)
    means = squares.mean(axis=0)
    return {
        "eta": steps.eta,
        "measured": float(means.mean()),
        "error": float(means.std() / math.sqrt(trials)),
        "envelope_error": float(errors.max()),
        "bound": steps.bound(),
    }


@dataclass(frozen=True)
class Family:
    """Runs that differ in one number, and the slope that the theorem gives to it."""

    title: str
    varies: str  # "T", "I" or "b"
    theory: float
    settings: Sequence[tuple[int, int | None, int | None]]  # (T, I, b); None: all
    data: Data = SMOOTH
    at_solution: bool = False

    def run(self, trials: int) -> Iterator[TableRow]:
        """A row of the table for each of the settings."""
        for rounds, devices, batch in self.settings:
            if self.data is NONSMOOTH:
                assert devices is not None
                result = nonsmooth_run(rounds, devices, batch, trials)
            else:
                problem = smooth_problem(self.data, self.at_solution)
                delta = 0.0 if self.at_solution else start_value(problem)
                result = smooth_run(problem, delta, rounds, devices, batch, trials)
            row: TableRow = {
                "panel": self.title,
                "varies": self.varies,
                "theory": self.theory,
                "T": rounds,
                "I": devices or DEVICES,
                "b": batch or SAMPLES,
            }
            yield row | result


def families(quick: bool) -> list[Family]:
    """One family for each panel."""
    rounds = (512, 2048) if quick else (2048, 8192, 32768, 131072)
    fixed = 4096 if quick else 32768
    some = (1, 8) if quick else (1, 2, 4, 8, 16)
    more = (1, 16) if quick else (1, 2, 4, 8, 16, 32)
    slow = (64, 256) if quick else (256, 1024, 4096, 16384)
    at, long = "start at the solution", 8192 if quick else 65536
    half = -0.5
    return [
        Family("Theorem 1 (FedProx, I = 4)", "T", half, [(t, 4, None) for t in rounds]),
        Family("Theorem 1 (FedProx)", "I", half, [(fixed, i, None) for i in more]),
        Family("Remark 2 (FedProx, all devices)", "T", -2 / 3, [(t, None, None) for t in rounds]),
        Family("Theorem 3 (FedMSPP, I = 2, b = 2)", "T", half, [(t, 2, 2) for t in rounds]),
        Family("Theorem 3 (FedMSPP, b = 2)", "I", half, [(fixed, i, 2) for i in some]),
        Family("Theorem 3 (FedMSPP, I = 2)", "b", half, [(fixed, 2, b) for b in some]),
        Family("Theorem 2 (FedProx, I = 4)", "T", half, [(t, 4, None) for t in slow], NONSMOOTH),
        Family(
            "Theorem 4 (FedMSPP, I = 4, b = 4)", "T", half, [(t, 4, 4) for t in slow], NONSMOOTH
        ),
        Family(f"Theorem 1, {at}", "I", half, [(long, i, None) for i in more], SMOOTH, True),
        Family(
            f"Theorem 3, {at}, equal devices", "b", half, [(long, 1, b) for b in more], ALIKE, True
        ),
        Family(
            f"Theorem 3, {at}, devices differ",
            "b",
            half,
            [(long, 1, b) for b in more],
            SMOOTH,
            True,
        ),
    ]


def measure(quick: bool) -> pd.DataFrame:
    """The measured values of all families."""
    trials = 2 if quick else 8
    return pd.DataFrame([row for family in families(quick) for row in family.run(trials)])


def judge(table: pd.DataFrame) -> list[Verdict]:
    """The paper's claims against the table."""
    verdicts = []
    for title, varies, theory, values, measured in panels(table):
        errors = table[table["panel"] == title].set_index(varies)["error"]
        found = Estimate(measured, slope_error(values, errors))
        # From the start at 0 the mean is (f(x_0) - f(x_T))/(eta T): the slope follows from eta.
        noise = "start at the solution" in title
        verdicts.append(
            Verdict(
                f"{title}: rate in {varies}",
                f"at most {varies}^{theory:.2f}",
                f"slope {found}, from {values.iloc[0]:.2e} to {values.iloc[-1]:.2e}",
                found.below(theory + SLACK),
                f"{title.split(',')[0]}: rate in {varies}",
                Kind.PAPER if noise else Kind.CERTAIN,
            )
        )
    ratio = table["measured"] / table["bound"]
    verdicts.append(
        Verdict(
            "all values are below the theorems' right-hand sides, up to a constant",
            "up to a constant (here: 10)",
            f"measured / right-hand side between {ratio.min():.1e} and {ratio.max():.1e}",
            bool(ratio.max() <= 10),
            kind=Kind.CERTAIN,
        )
    )
    return verdicts


EXPERIMENT = Experiment(
    "fedprox-theorems",
    "rates of FedProx and FedMSPP",
    "Yuan, Li (2022), Theorems 1 to 4 and Remark 2; the paper has no experiments",
    (
        f"{DEVICES} devices with {SAMPLES} samples of {FEATURES} features each, rows of norm "
        "1; device i has its own linear model. Start at 0.",
        "Theorems 1 and 3: Geman and McClure's loss r^2/(2 (1 + r^2)) of the residual r, with "
        "L = 1 and G = 0.325; nonconvex.",
        "Theorems 2 and 4: |sigmoid(x.w) - sigmoid(y)|, nonsmooth and not convex, with "
        "G = 1/4 and nu = 0.0962; envelope parameter r = 1/(4 nu).",
        "eta is the theorem's. Devices are drawn with replacement, as in the theorems, samples "
        "of a minibatch too.",
        "Local problems of smooth losses are solved by as many gradient steps as prove the "
        "theorem's accuracy; of nonsmooth ones to a certified gap of 0.001 eta G^2, where the "
        "theorems want exact solutions.",
        f"Measured is the mean over the iterates t < T: over {LOOKS} of them (trapezoidal "
        f"rule) for smooth losses, {STOPS} for the envelope. 8 trials.",
        "Rates in I and b at T = 32768, or 65536 from the solution, where T >= (b I)^3. Rates "
        "in T from 2048 to 131072 rounds (nonsmooth: 256 to 16384).",
        "Starts at the solution, found by gradient descent, leave only the noise: Delta = 0. "
        "In one of them all devices hold the same samples.",
        f"A slope holds if it is at most {SLACK} above the theorem's.",
    ),
    partial(draw, y_label="mean squared gradient norm"),
    judge,
    measure=measure,
    random_start=False,
    seed=0,
)
