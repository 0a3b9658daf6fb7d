"""`minimize`: the whole run, from checking the input to the result."""

import dataclasses
import warnings
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

import jax

from compositefl.algorithms.base import Algorithm, wants_theory
from compositefl.core.errors import ConvergenceWarning, require_integer, wrong_value
from compositefl.core.types import PlainValues
from compositefl.core.vector import unwrap
from compositefl.problem import DataIdentity, Problem
from compositefl.problem.scales import feature_scales
from compositefl.regularizers.base import Regularizer
from compositefl.simulation.states import DiskStates
from compositefl.solve.defaults import default_algorithm
from compositefl.solve.inputs import checked_problem, short, with_regularizer
from compositefl.solve.options import Options
from compositefl.solve.result import Result
from compositefl.solve.run import Run

if TYPE_CHECKING:
    from compositefl.theory import Constants

UNEQUAL = 2.0  # sizes of clients that differ by more than this factor are worth a word
_TOLD: WeakSet[DataIdentity] = WeakSet()  # data whose unequal clients were told of
APART = 1e3  # scales of features that differ by more than this factor are worth a word
_SCALES: WeakKeyDictionary[DataIdentity, str] = WeakKeyDictionary()  # what is said of them
_TOLD_OF_SCALES: WeakSet[DataIdentity] = WeakSet()

CHOSEN = ("local_lr", "server_lr", "gamma", "eta")  # by a theorem, not by the user


def minimize(
    problem: Problem,
    regularizer: Regularizer | str | None,
    algorithm: Algorithm | None = None,
    *,
    rounds: int,
    batch_size: int | None = None,
    seed: int = 0,
    trials: int = 1,
    eval_every: int | None = None,
    eval_gamma: float | None = None,
    participation: float | int = 1.0,
    replacement: bool = False,
    dropout: float = 0.0,
    stragglers: float = 0.0,
    weights: str | None = None,
    dtype: str = "float32",
    tolerance: float | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    states: str = "memory",
    states_dtype: str | None = None,
    progress: bool = True,
    devices: int | None = None,
    client_block: int | None = None,
    constants: "Constants | None" = None,
) -> Result:
    """Minimise psi(x) = f(x) + phi(x) with a federated algorithm, simulated in memory.

    regularizer: phi, or its name and numbers ("l1:0.01", "elastic-net:0.001,0.01"); None for that
        of the algorithm, by default none.
    algorithm: with its numbers; those that are "auto", as by default, set themselves in the run.
        None for `FedNMap()`, and for small convex problems with full gradients `ProxNewton()`.
    batch_size: samples of a local gradient, None for full local gradients.
    seed, trials: all randomness; trials are independent runs side by side.
    eval_every: rounds between two rows of the history, by default about fifty rows.
    eval_gamma: the one prox parameter at which natural residual and normal map are measured; by
        default the algorithm's gamma, or min(1, half of 1/rho).
    participation: share of the clients in a round (a float), or their number (an int).
    replacement: draw the clients of a round with replacement; one drawn twice counts twice.
    dropout: probability that a client's upload is lost after it has computed.
    stragglers: probability that a client finishes only some (1 to Q - 1) of its local steps.
    weights: "uniform" as in the papers, which is the default, or "size" to weigh clients by their
        samples, which is the problem of all samples in one place.
    tolerance: stop when the norm of the natural residual is at most this in every trial, and psi
        is not above its start. A `ConvergenceWarning` tells when the rounds end before.
    checkpoint, resume: a file for all state; resume=True goes on from it where it exists.
    states: where the clients' private states are kept: "memory", or "disk" for those that it does
        not hold. Then a round reads and writes those of its participants, in a file beside the
        checkpoint (its name and ".states") or, without one, in the folder for temporary files.
    states_dtype: the type in which they are kept, "bfloat16" for half the room.
    devices: how many devices share the clients, by default all (on a CPU: the cores).
    client_block: clients worked on at the same time on a device, by default what fits memory.
    constants: of the problem, for theory; they are estimated where a local_lr is "theory". With
        numeric steps a note says if these lie outside the range of the method's theorem.
    """
    given = dict(locals())
    for name in ("problem", "regularizer", "algorithm", "trials", "constants"):
        del given[name]
    require_integer(trials=trials)
    trials = int(trials)
    options = Options(**given)
    problem = checked_problem(problem)
    if algorithm is None:
        algorithm = default_algorithm(problem, regularizer, options)
    algorithm = with_regularizer(algorithm, regularizer)
    algorithm = theory_steps(problem, algorithm, options, constants)
    options = options.settled([algorithm])
    options.check(problem, algorithm)
    for note in cautions(problem, algorithm, options):
        warnings.warn(note, RuntimeWarning, stacklevel=2)

    with jax.enable_x64(dtype == "float64"):
        run = Run(problem, [algorithm] * trials, range(trials), options)
        stopped = run.loop()
        state = unwrap(run.simulation.state())
        params = unwrap(run.simulation.models())
    if trials == 1:
        params, state = jax.tree.map(lambda a: a[0], (params, state))
    clients = state.clients
    store = getattr(run.simulation, "store", None)
    if isinstance(store, DiskStates):
        views = store.views()
        clients = views[0] if trials == 1 else views
    config: PlainValues = {
        "algorithm": repr(algorithm),
        "regularizer": repr(algorithm.regularizer),
        "problem": repr(problem),
        "trials": trials,
        "rounds": rounds,
        "eval_every": options.every,
        "tolerance": tolerance,
        "noise": options.noise(algorithm, len(problem.sizes)),
    }
    if "hessian" not in algorithm.needs and (scales := about_scales(problem)):
        config["scales"] = scales
    result = Result(
        params=params,
        history=[{k: v for k, v in row.items() if k != "run"} for row in run.history],
        server=state.server,
        clients=clients,
        stopped=stopped,
        rounds=run.simulation.round,
        diverged=[int(r) + 1 for r in run.simulation.diverged],
        config=config | options.describe(),
        loss=problem.loss,
    )
    if result.ending.needs_warning:
        warnings.warn(result.ending.sentence, ConvergenceWarning, stacklevel=2)
    return result


def theory_steps(
    problem: Problem, algorithm: Algorithm, options: Options, constants: "Constants | None"
) -> Algorithm:
    """The algorithm with its theorem's steps where local_lr is "theory"; else a note if outside."""
    if constants is None and not wants_theory(algorithm):
        return algorithm
    from compositefl.theory import Constants, note_outside, with_theory_steps  # few runs need them

    if not isinstance(constants, (Constants, type(None))):
        raise wrong_value(
            "constants",
            short(constants),
            "cfl.theory.Constants, such as cfl.theory.estimate(problem, regularizer).constants()",
        )

    count = options.client_count(len(problem.sizes))
    batch_size = None if algorithm.exact_gradients else options.batch_size
    faults = options.faults()
    if wants_theory(algorithm):
        names = {f.name for f in dataclasses.fields(algorithm)} - set(CHOSEN)
        return with_theory_steps(
            type(algorithm),
            {name: getattr(algorithm, name) for name in names},
            problem,
            algorithm.regularizer,
            options.rounds,
            batch_size,
            constants=constants,
            participants=count,
            faults=faults,
            seed=options.seed,
            dtype=options.dtype,
        )
    if constants is not None:
        note = note_outside(
            algorithm,
            constants,
            options.rounds,
            participants=count,
            batch_size=batch_size,
            faults=faults,
        )
        if note:
            warnings.warn(note, RuntimeWarning, stacklevel=3)
    return algorithm


def cautions(problem: Problem, algorithm: Algorithm, options: Options) -> list[str]:
    """What this run, though allowed, will probably do: sentences for warnings before it starts."""
    notes = [*algorithm.cautions(options.dtype), *_about_weights(problem, options)]
    if "hessian" not in algorithm.needs and problem.data not in _TOLD_OF_SCALES:
        _TOLD_OF_SCALES.add(problem.data)
        notes += [scales] if (scales := about_scales(problem)) else []
    if options.dtype == "float64" and problem.short_start:
        notes.append(
            "params are float32 in a run with dtype='float64': the start has their 7 digits; make "
            "them float64 with NumPy, since JAX's arrays are float32 unless told otherwise"
        )
    clients = len(problem.sizes)
    if options.states == "disk" and options.client_count(clients) == clients:
        notes.append(
            "states='disk' with all clients in every round: a round holds the states of all its "
            "participants in memory; participation= draws some of the clients"
        )
    return notes


def _about_weights(problem: Problem, options: Options) -> list[str]:
    """What unequal clients mean for f where nobody chose; said once for the same data."""
    small, large = int(problem.sizes.min()), int(problem.sizes.max())
    if options.weights is not None or large <= UNEQUAL * small or problem.data in _TOLD:
        return []
    _TOLD.add(problem.data)
    return [
        f"clients hold {small} to {large} samples and weights was not given: every client counts "
        "the same, as in the papers, so samples of small clients count more; weights='size' gives "
        "the solution of all samples in one place, weights='uniform' says that this is meant"
    ]


def about_scales(problem: Problem) -> str:
    """What features of very different scale do to gradient steps; "" where they are alike."""
    if problem.data not in _SCALES:
        found = feature_scales(problem)
        _SCALES[problem.data] = ""
        if found is not None and found.ratio > APART:
            _SCALES[problem.data] = (
                f"Columns {found.small} and {found.large} of x differ in scale by a factor of "
                f"{found.ratio:.0e}: one step size cannot serve both, and the model hardly moves "
                "in the small ones; divide the columns by their scales, or take "
                "compositefl.linear_model, which does so"
            )
    return _SCALES[problem.data]
