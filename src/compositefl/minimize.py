"""`minimize`: the whole run, from checking the input to the result."""

import hashlib
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from compositefl import checkpoint as checkpoints
from compositefl.accounting import RoundCost, round_cost
from compositefl.algorithms.base import Algorithm
from compositefl.checkpoint import Checkpoint
from compositefl.component import replace
from compositefl.errors import CompositeFLError, require_integer, require_positive
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer
from compositefl.regularizers.elementary import Zero
from compositefl.result import Result
from compositefl.simulation.engine import Simulation
from compositefl.simulation.rounds import Conditions
from compositefl.vector import unwrap

METRICS = (  # columns of the history, in this order
    "psi",
    "loss",
    "natural_residual_sq",
    "normal_map_sq",
    "zeros",
    "hoyer",
    "accuracy",
)
PATIENCE = 0.5  # seconds of rounds between two looks at Ctrl-C and the progress bar
CHECKPOINT_EVERY = 30.0  # seconds between two checkpoints, the last one apart


def minimize(
    problem: Problem,
    regularizer: Regularizer | None,
    algorithm: Algorithm,
    *,
    rounds: int,
    batch_size: int | None = None,
    seed: int = 0,
    trials: int = 1,
    eval_every: int | None = None,
    eval_gamma: float = 1.0,
    participation: float | int = 1.0,
    replacement: bool = False,
    dropout: float = 0.0,
    stragglers: float = 0.0,
    weights: str = "uniform",
    dtype: str = "float32",
    tolerance: float | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = True,
    devices: int | None = None,
    client_block: int | None = None,
) -> Result:
    """Minimise psi(x) = f(x) + phi(x) with a federated algorithm, simulated in memory.

    batch_size: samples of a local gradient, None for full local gradients.
    seed, trials: all randomness; trials are independent runs side by side.
    eval_every: rounds between two rows of the history, by default about fifty rows.
    eval_gamma: the one prox parameter at which natural residual and normal map are measured.
    participation: share of the clients in a round (a float), or their number (an int).
    replacement: draw the clients of a round with replacement; one drawn twice counts twice.
    dropout: probability that a client's upload is lost after it has computed.
    stragglers: probability that a client finishes only some (1 to Q - 1) of its local steps.
    weights: "uniform" as in the papers, or "size" to weigh clients by their samples.
    tolerance: stop when the norm of the natural residual is at most this in every trial.
    checkpoint, resume: a file for all state; resume=True goes on from it where it exists.
    devices: how many devices share the clients, by default all (on a CPU: the cores).
    client_block: clients worked on at the same time on a device, by default what fits memory.
    """
    algorithm = replace(algorithm, regularizer=regularizer or Zero())
    count = _check(problem, algorithm, participation, weights, dtype, locals())
    path = Path(checkpoint) if checkpoint is not None else None
    if path is not None and path.exists() and not resume:
        raise CompositeFLError(
            f"checkpoint={path} exists; pass resume=True to go on from it, or remove it"
        )
    if algorithm.exact_gradients:
        batch_size = None
    every = eval_every or max(1, rounds // 50)
    config = {
        "algorithm": repr(algorithm),
        "regularizer": repr(algorithm.regularizer),
        "problem": repr(problem),
        "loss": getattr(problem.loss, "__qualname__", repr(problem.loss)),
        "batch_size": batch_size,
        "seed": seed,
        "trials": trials,
        "eval_gamma": eval_gamma,
        "participation": participation,
        "replacement": replacement,
        "dropout": dropout,
        "stragglers": stragglers,
        "weights": weights,
        "dtype": dtype,
    }
    with jax.enable_x64(dtype == "float64"), _interrupt() as interrupted:
        simulation = Simulation(
            problem,
            [algorithm] * trials,
            range(trials),
            seed=seed,
            batch_size=batch_size,
            count=count,
            weights=_client_weights(problem, weights),
            dtype=dtype,
            replacement=replacement,
            conditions=Conditions(dropout or None, stragglers or None),
            devices=devices,
            block=client_block,
        )
        run = _Run(simulation, round_cost(algorithm, problem.start(dtype)), eval_gamma)
        if path is not None:
            run.keep(path, {**config, "data": _data_hash(problem)}, resume)
        stopped = run.loop(rounds, every, tolerance, progress, interrupted)
        state = unwrap(simulation.state())
        params = unwrap(simulation.models())
    _tell_divergence(simulation.diverged)
    first = (
        (lambda tree: jax.tree.map(lambda a: a[0], tree)) if trials == 1 else (lambda tree: tree)
    )
    return Result(
        params=first(params),
        history=pd.DataFrame(run.history),
        server=first(state.server),
        clients=first(state.clients),
        stopped=stopped,
        rounds=simulation.round,
        config={**config, "rounds": rounds, "eval_every": every, "tolerance": tolerance},
    )


class _Run:
    """The loop between two evaluations: rounds, metrics, progress, checkpoints."""

    def __init__(self, simulation: Simulation, cost: RoundCost, eval_gamma: float):
        self.simulation = simulation
        self.cost = cost
        self.eval_gamma = eval_gamma
        self.history: list[dict[str, Any]] = []
        self.seconds = 0.0
        self.save: Callable[[], None] = lambda: None

    def keep(self, path: Path, fingerprint: dict[str, Any], resume: bool) -> None:
        """Keep checkpoints in `path`, and go on from the one that is there."""
        if resume and path.exists():
            saved = checkpoints.load(path, fingerprint, self.progress())
            state, work = saved.state
            self.simulation.restore(state, work, saved.round)
            self.seconds, self.history = saved.seconds, saved.history

        def save() -> None:
            now = Checkpoint(self.progress(), self.simulation.round, self.seconds, self.history)
            checkpoints.save(path, fingerprint, now)

        self.save = save

    def progress(self) -> Any:
        """What `Simulation.restore` needs."""
        return self.simulation.state(), self.simulation.work

    def loop(
        self,
        rounds: int,
        every: int,
        tolerance: float | None,
        progress: bool,
        interrupted: Callable[[], bool],
    ) -> str:
        """Run to the end, or to a reason to stop earlier; returns the reason."""
        simulation = self.simulation
        simulation.advance(simulation.round)  # compiles
        chunk, saved_at = 1, time.monotonic()
        reason = ""
        if not self.history:
            self.evaluate()
        with _progress_bar(progress) as bar:
            task = bar.add_task("", total=rounds, completed=simulation.round, note=self.note())
            while not reason:
                if tolerance is not None and self.residual() <= tolerance:
                    reason = "tolerance"
                elif simulation.round >= rounds:
                    reason = "rounds"
                else:
                    target = min(rounds, (simulation.round // every + 1) * every)
                    chunk = self.advance_to(
                        target,
                        chunk,
                        lambda: bar.update(task, completed=simulation.round),
                        interrupted,
                    )
                    if np.all(simulation.diverged >= 0):
                        reason = "diverged"
                    elif interrupted():
                        reason = "interrupted"
                    if simulation.round == target or reason == "diverged":
                        self.evaluate()
                    bar.update(task, completed=simulation.round, note=self.note())
                if reason or time.monotonic() - saved_at > CHECKPOINT_EVERY:
                    self.save()
                    saved_at = time.monotonic()
        return reason

    def advance_to(
        self, target: int, chunk: int, show: Callable[[], None], interrupted: Callable[[], bool]
    ) -> int:
        """Run to round `target` in chunks of about PATIENCE seconds; returns the chunk's size."""
        simulation = self.simulation
        while simulation.round < target and not interrupted():
            here = min(chunk, target - simulation.round)
            began = time.perf_counter()
            simulation.advance(simulation.round + here)
            simulation.block_until_ready()
            elapsed = time.perf_counter() - began
            self.seconds += elapsed
            chunk = max(1, int(min(2.0 * here, PATIENCE / max(elapsed / here, 1e-9))))
            show()
            if np.all(simulation.diverged >= 0):
                break
        return chunk

    def evaluate(self) -> None:
        """Add one row a trial to the history."""
        simulation, cost = self.simulation, self.cost
        work = simulation.work
        measured = simulation.evaluate(self.eval_gamma)
        for trial, (visits, steps) in enumerate(zip(*map(np.ndarray.tolist, work), strict=True)):
            row: dict[str, float] = {"round": simulation.round, "trial": trial}
            row |= {name: float(measured[name][trial]) for name in METRICS if name in measured}
            row |= {
                "gradients": visits * cost.gradients_visit + steps * cost.gradients_step,
                "prox_clients": visits * cost.prox_visit + steps * cost.prox_step,
                "prox_server": simulation.round * cost.prox_server,
                "bytes_up": visits * cost.bytes_up,
                "bytes_down": visits * cost.bytes_down,
                "seconds": self.seconds,
            }
            self.history.append(row)

    def residual(self) -> float:
        """Norm of the natural residual at the last evaluation, the largest over the trials."""
        last = self.history[-1]["round"]
        rows = [row for row in self.history if row["round"] == last]
        return max(row["natural_residual_sq"] for row in rows) ** 0.5

    def note(self) -> str:
        return f"residual {self.residual():.2e}"


def _check(
    problem: Problem,
    algorithm: Algorithm,
    participation: float | int,
    weights: str,
    dtype: str,
    given: dict[str, Any],
) -> int:
    """Refuse wrong options; returns the number of clients in a round."""
    require_integer(rounds=given["rounds"], trials=given["trials"])
    require_integer(minimum=0, seed=given["seed"])
    for name in ("batch_size", "eval_every", "devices", "client_block"):
        if given[name] is not None:
            require_integer(**{name: given[name]})
    require_positive(eval_gamma=given["eval_gamma"])
    if given["tolerance"] is not None:
        require_positive(tolerance=given["tolerance"])
    if weights not in ("uniform", "size"):
        raise CompositeFLError(f"weights='{weights}' must be 'uniform' or 'size'")
    if dtype not in ("float32", "float64"):
        raise CompositeFLError(f"dtype='{dtype}' must be 'float32' or 'float64'")
    for name in ("dropout", "stragglers"):
        if not 0 <= given[name] < 1:
            raise CompositeFLError(f"{name}={given[name]} must be a probability in [0, 1)")
    if given["stragglers"] and algorithm.needs_all_steps:
        raise CompositeFLError(
            f"stragglers={given['stragglers']}: {type(algorithm).__name__} needs all local steps "
            f"of every client, because {algorithm.needs_all_steps}"
        )
    if given["devices"] is not None and given["devices"] > len(jax.devices()):
        raise CompositeFLError(
            f"devices={given['devices']} but this process has {len(jax.devices())}"
        )
    algorithm.check()
    algorithm.regularizer.check_tree(problem.params)
    algorithm.regularizer.check_prox("eval_gamma", given["eval_gamma"])
    count = _client_count(problem, participation)
    whole = count == len(problem.sizes) and not given["replacement"] and not given["dropout"]
    if algorithm.needs_everyone and not whole:
        raise CompositeFLError(
            f"participation={participation}, replacement={given['replacement']}, "
            f"dropout={given['dropout']}: {type(algorithm).__name__} needs all clients in every "
            f"round, because {algorithm.needs_everyone}"
        )
    return count


def _client_count(problem: Problem, participation: float | int) -> int:
    clients = len(problem.sizes)
    if isinstance(participation, bool) or not isinstance(participation, (int, float)):
        raise CompositeFLError(f"participation={participation!r} must be a number")
    if isinstance(participation, float):
        if not 0 < participation <= 1:
            raise CompositeFLError(f"participation={participation} must be a share in (0, 1]")
        count = max(1, round(participation * clients))
    else:
        if participation == 1 and clients > 1:
            raise CompositeFLError(
                "participation=1 is ambiguous: write 1.0 for all clients, "
                f"{1 / clients:.3g} for one of {clients}"
            )
        if not 1 <= participation <= clients:
            raise CompositeFLError(f"participation={participation} must be in 1..{clients} clients")
        count = participation
    return count


def _client_weights(problem: Problem, weights: str) -> np.ndarray:
    return np.ones(len(problem.sizes)) if weights == "uniform" else problem.sizes.astype(float)


def _data_hash(problem: Problem) -> str:
    """Identifies the data and the start, so that a checkpoint cannot meet other data."""
    digest = hashlib.blake2b(digest_size=16)
    for tree in (problem.params, *problem.clients):
        for leaf in jax.tree.leaves(tree):
            array = np.ascontiguousarray(leaf)
            digest.update(repr((array.shape, array.dtype.str)).encode())
            digest.update(array.view(np.uint8).data if array.size else b"")
    return digest.hexdigest()


def _tell_divergence(diverged: np.ndarray) -> None:
    for trial, round_ in enumerate(diverged):
        if round_ >= 0:
            warnings.warn(
                f"trial {trial} diverged to NaN or infinity in round {round_ + 1}; its params are "
                f"those after round {round_}. Smaller step sizes usually help.",
                RuntimeWarning,
                stacklevel=3,
            )


@contextmanager
def _interrupt() -> Iterator[Callable[[], bool]]:
    """Ctrl-C asks the loop to stop after its present chunk; a second one stops at once."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return

    def handler(number: int, frame: Any) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()
        print("stopping after the present rounds; Ctrl-C again to stop at once", file=sys.stderr)

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def _progress_bar(show: bool) -> Progress:
    return Progress(
        TextColumn("round {task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not show or not sys.stderr.isatty(),
    )
