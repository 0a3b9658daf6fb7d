"""The loop around a simulation: rounds, evaluations, progress, checkpoints, Ctrl-C."""

import hashlib
import math
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import jax
import numpy as np

from compositefl import cluster
from compositefl.algorithms.base import Algorithm, automatic
from compositefl.core.errors import CompositeFLError, ProcessLost
from compositefl.core.types import HistoryRow, PlainValues, PyTree
from compositefl.engine.accounting import round_cost
from compositefl.engine.stationarity import METRICS
from compositefl.problem import OnDemand, Problem, RowClients, Stacked, pieces
from compositefl.report.notebook import NotebookBar, in_notebook
from compositefl.report.tracking import tell
from compositefl.simulation.loop import LoopSimulation
from compositefl.simulation.memory import give_back
from compositefl.simulation.program import Conditions
from compositefl.simulation.simulation import Simulation
from compositefl.simulation.states import DiskStates, MemoryStates, kept_type
from compositefl.simulation.streamed import StreamedSimulation
from compositefl.solve import checkpoint as checkpoints
from compositefl.solve.checkpoint import Checkpoint
from compositefl.solve.ending import rose
from compositefl.solve.loss_probe import loss_probe, require_same_loss
from compositefl.solve.options import Options
from compositefl.solve.steering import BEFORE, Steering
from compositefl.solve.watchdog import watch

Measured: TypeAlias = dict[str, np.ndarray]  # the metrics by name, of every run
AnySimulation: TypeAlias = Simulation | LoopSimulation

PATIENCE = 0.5  # seconds of rounds between two looks at Ctrl-C and the progress bar
CHECKPOINT_EVERY = 30.0  # seconds between two checkpoints, the last one apart


class Run:
    """Several runs of one algorithm class side by side, from the first round to the last.

    `algorithms` and `trials` have one entry per run. Use inside `jax.enable_x64(True)` for float64.
    """

    def __init__(
        self,
        problem: Problem,
        algorithms: Sequence[Algorithm],
        trials: Sequence[int],
        options: Options,
    ):
        self.options = options
        self.trials = trials
        methods, clients = algorithms, len(problem.sizes)
        algorithms = [a.at(BEFORE) for a in methods]
        self.path = options.checkpoint_path
        exists = self.path is not None and self.path.exists()
        self.simulation = _engine(problem, options, fresh=not (options.resume and exists))(
            problem,
            algorithms,
            trials,
            seed=options.seed,
            batch_size=None if algorithms[0].exact_gradients else options.batch_size,
            count=options.client_count(clients),
            weights=options.client_weights(problem),
            dtype=options.dtype,
            replacement=options.replacement,
            conditions=Conditions(options.dropout or None, options.stragglers or None),
        )
        self._warn_of_a_full_disk()
        self.steering: Steering | None = None
        if any(automatic(method) for method in methods):
            noise = options.noise(methods[0], clients)
            share = options.client_count(clients) / clients
            about = bool(noise), share, "minibatches" in noise
            self.steering = Steering(self.simulation, methods, *about)
        self.name = type(methods[0]).__name__
        self._measured: tuple[int, Measured] = (-1, {})  # the round of an evaluation
        self.unseen = False  # a checkpoint of a last round, before the pilots have looked at it
        self.cost = round_cost(algorithms[0], problem.start(options.dtype))
        self.history: list[HistoryRow] = []
        self.seconds = 0.0
        self.fingerprint: PlainValues = {}
        if self.path is not None:
            self.fingerprint = options.describe() | {
                "runs": [repr(a) for a in methods],
                "regularizers": [repr(a.regularizer) for a in methods],
                "trials": list(trials),
                "data": _data_hash(problem),
            }
            self.loss = loss_probe(problem, options.dtype)
            there, missing = cluster.agreed(exists, not exists)
            if options.resume and there:
                if missing:
                    raise CompositeFLError(
                        f"checkpoint={self.path} is not seen by every process",
                        parameter="checkpoint",
                        value=self.path,
                    )
                self._restore(self.path)

    def _warn_of_a_full_disk(self) -> None:
        """Tell before the first round that the file of the states may not find room."""
        store, options = getattr(self.simulation, "store", None), self.options
        if not isinstance(store, DiskStates):
            return
        touched = min(store.clients, options.rounds * options.client_count(store.clients))
        needed = touched * store.row.bytes * len(self.trials)
        if needed > store.room():
            warnings.warn(
                f"the states of {touched} clients take up to {needed / 1e9:.3g} GB, and the disk "
                f"of {store.name} has {store.room() / 1e9:.3g} GB left; "
                "states_dtype='bfloat16' takes half",
                RuntimeWarning,
                stacklevel=4,
            )

    def loop(self) -> str:
        """Run to the end, or to a reason to stop earlier; returns the reason."""
        try:
            return self._loop()
        except jax.errors.JaxRuntimeError as error:
            if not cluster.together():
                raise
            raise ProcessLost(
                "another process of the run has gone: ",
                parameter="checkpoint",
                value=self.path,
                remedy="keep a checkpoint" if self.path is None else "resume elsewhere",
            ) from error
        finally:
            self.simulation.release()

    def _loop(self) -> str:
        simulation, rounds, every = self.simulation, self.options.rounds, self.options.every
        simulation.advance(simulation.round)  # compiles
        give_back()
        if not self.history:
            self._look()
            self._evaluate()
            self._require_a_start()
            give_back()
            if cluster.together():  # a process that is lost takes its clients' states with it
                self._save()
        saved_at = time.monotonic()
        with (
            _progress_bar(self.options.progress and cluster.is_first(), rounds) as bar,
            _interrupt() as interrupted,
        ):
            cell = NotebookBar(rounds) if self.options.progress and in_notebook() else None

            def show() -> None:
                note = f"residual {self.residual():.2e}{self._numbers()}"
                bar(simulation.round, note)
                if cell is not None:
                    cell.update(simulation.round, self._residuals(), note)

            if self.unseen:
                self._look(last=simulation.round >= rounds)
                if simulation.round >= rounds or simulation.round % every == 0:
                    self._evaluate()
            chunk, reason = 1, ""
            while not reason:
                reason = self._enough()
                if not reason:
                    row = min(rounds, (simulation.round // every + 1) * every)
                    target = row if self.steering is None else min(row, self.steering.next_look)
                    chunk, stop = self._advance(target, chunk, show, interrupted)
                    last = simulation.round == rounds
                    if last and self.steering is not None:
                        # Before pilots choose what is handed out: with more rounds they would not.
                        self._save(unseen=True)
                    self._look(last)
                    if simulation.round == row or self._all_diverged():
                        self._evaluate()
                    if (stop or self._alone(interrupted)) and not self._enough():
                        reason = "interrupted"
                    show()
                if reason or cluster.agreed(time.monotonic() - saved_at)[0] > CHECKPOINT_EVERY:
                    if simulation.round < rounds or self.steering is None:
                        self._save()
                    saved_at = time.monotonic()
            if self.history[-1]["round"] != simulation.round:
                # After the checkpoint: an unbroken run has no such row, and a resumed one is alike.
                self._evaluate()
                show()
        return reason

    def _require_a_start(self) -> None:
        """Refuse a start where f is no number: no step leads out of it."""
        if any(math.isnan(row["loss"]) for row in self.history):
            raise CompositeFLError(
                "the loss is NaN at the start: other params, or a loss that is defined there "
                "(a logarithm or a root of what may be negative, a division by zero)",
                parameter="problem",
            )

    def residual(self) -> float:
        """Norm of the natural residual at the last evaluation, the largest over the runs."""
        last = self.history[-len(self.trials) :]
        return math.sqrt(max(row["natural_residual_sq"] for row in last))

    def _numbers(self) -> str:
        """The numbers of the first run that set themselves, for the progress bar."""
        if self.steering is None:
            return ""
        return "".join(f" {name} {n:.3g}" for name, n in self.steering.numbers(0).items())

    def _residuals(self) -> list[float]:
        """The norm of the natural residual of the first run at each evaluation."""
        rows = self.history[:: len(self.trials)]
        return [math.sqrt(row["natural_residual_sq"]) for row in rows]

    def _enough(self) -> str:
        """The reason to stop now, or nothing."""
        tolerance = self.options.tolerance
        if self._all_diverged():
            return "diverged"
        if tolerance is not None and self.residual() <= tolerance and not self._any_rose():
            return "tolerance"
        return "rounds" if self.simulation.round >= self.options.rounds else ""

    def _any_rose(self) -> bool:
        """A point may be stationary far above the start: that is no solution."""
        runs = len(self.trials)
        return any(rose([row["psi"] for row in self.history[run::runs]]) for run in range(runs))

    def _all_diverged(self) -> bool:
        return bool(np.all(self.simulation.diverged >= 0))

    def _advance(
        self, target: int, chunk: int, show: Callable[[], None], interrupted: Callable[[], bool]
    ) -> tuple[int, bool]:
        """Run to round `target` in chunks of about PATIENCE seconds.

        Returns the chunk's size, and whether the run was interrupted, alike in all processes.
        """
        simulation, stop = self.simulation, self._alone(interrupted)
        while simulation.round < target and not stop and not self._all_diverged():
            here = min(chunk, target - simulation.round)
            began = time.perf_counter()
            with watch(f"rounds {simulation.round + 1} to {simulation.round + here}"):
                simulation.advance(simulation.round + here)
                simulation.block_until_ready()
            elapsed = time.perf_counter() - began
            self.seconds += elapsed
            size, stop = cluster.agreed(
                min(2.0 * here, PATIENCE / max(elapsed / here, 1e-9)), interrupted()
            )
            chunk = max(1, int(size))
            show()
        return chunk, stop

    def _alone(self, interrupted: Callable[[], bool]) -> bool:
        """Interrupted, and no other process has to hear of it first."""
        return interrupted() and not cluster.together()

    def _measure(self) -> Measured:
        """The metrics of the present models."""
        round_ = self.simulation.round
        if self._measured[0] != round_:
            with watch(f"evaluations after round {round_}"):
                self._measured = round_, self.simulation.evaluate(self.options.gamma)
        return self._measured[1]

    def _look(self, last: bool = False) -> None:
        """Let numbers set themselves, where it is time."""
        if self.steering is None:
            return
        round_, diverged = self.simulation.round, self.simulation.diverged >= 0
        if not (last or diverged.any() or round_ >= self.steering.next_look or not round_):
            return
        measured = self._measure()
        psi = np.where(diverged, np.inf, measured["psi"])
        residual = np.sqrt(measured["natural_residual_sq"])
        if self.steering.look(psi.tolist(), residual.tolist(), last):
            self._measured = (-1, {})

    def _evaluate(self) -> None:
        """Add one row per run to the history."""
        simulation, cost = self.simulation, self.cost
        measured = self._measure()
        work = zip(*map(np.ndarray.tolist, simulation.work), strict=True)
        for run, (trial, (visits, steps)) in enumerate(zip(self.trials, work, strict=True)):
            row: dict[str, float] = {"round": simulation.round, "run": run, "trial": trial}
            row |= {name: float(measured[name][run]) for name in METRICS if name in measured}
            row |= cost.so_far(simulation.round, visits, steps) | {"seconds": self.seconds}
            if self.steering is not None:
                row |= self.steering.numbers(run)
            self.history.append(row)
        tell(self.name, self.history[-len(self.trials) :])

    def _save(self, unseen: bool = False) -> None:
        if self.path is not None:
            kept, about = self._steered()
            state = self.simulation.state(), self.simulation.work, kept
            about |= {"loss": self.loss, "unseen": unseen}
            about |= {"seal": self.simulation.seal()}  # before: what is said must be on the disk
            now = Checkpoint(state, self.simulation.round, self.seconds, self.history, about)
            if cluster.is_first():
                checkpoints.save(self.path, self.fingerprint, now)
            self.simulation.commit()

    def _restore(self, path: Path) -> None:
        like = self.simulation.state(), self.simulation.work, self._steered()[0]
        saved = checkpoints.load(path, self.fingerprint, like)
        if "loss" in saved.about:  # not in those of earlier versions
            require_same_loss(path, saved.about["loss"], self.loss)
        if saved.round > self.options.rounds:
            warnings.warn(
                f"checkpoint={path} is at round {saved.round} already, past "
                f"rounds={self.options.rounds}: the result is that of round {saved.round}",
                RuntimeWarning,
                stacklevel=4,
            )
        state, work, kept = saved.state
        checkpoints.require_finite(path, state.server, state.diverged)
        if self.steering is not None:
            self.steering.restore(kept, saved.about)
        self.simulation.restore(state, work, saved.round)
        self.simulation.resume(saved.about.get("seal", {}))
        self.seconds, self.history = saved.seconds, saved.history
        self.unseen = saved.about.get("unseen", False)  # not in those of earlier versions

    def _steered(self) -> tuple[PyTree, PlainValues]:
        """(arrays, plain values) of the numbers that set themselves."""
        return ((), {}) if self.steering is None else self.steering.saved()


def _engine(problem: Problem, options: Options, fresh: bool) -> Callable[..., AnySimulation]:
    """What runs the rounds. fresh: there is no checkpoint to go on from."""
    if not problem.compiles:
        return LoopSimulation
    on_devices: dict[str, Any] = {"devices": options.devices, "block": options.client_block}
    if not options.streamed and not isinstance(problem.clients, OnDemand):
        return partial(Simulation, **on_devices)
    clients, kept = len(problem.sizes), kept_type(options.states_dtype, options.dtype)
    store: MemoryStates | DiskStates = MemoryStates(clients, kept)
    if options.states == "disk":
        store = DiskStates(clients, kept, options.states_path, fresh)
    return partial(StreamedSimulation, store=store, **on_devices)


def _data_hash(problem: Problem) -> str:
    """Identifies the data and the start, so that a checkpoint cannot meet other data."""
    digest = hashlib.blake2b(digest_size=16)
    clients = problem.clients
    trees = [problem.params, *(tree for _, tree in pieces(clients))]
    if isinstance(clients, (RowClients, OnDemand)):
        trees += [clients.sizes]
    if isinstance(clients, RowClients) and not isinstance(clients, Stacked):
        trees += [clients.rows(np.arange(len(problem.sizes)))]  # stacked ones lie in their order
    for leaf in jax.tree.leaves(trees):
        array = np.ascontiguousarray(leaf)
        digest.update(repr((array.shape, array.dtype.str)).encode())
        digest.update(array.data)
    return digest.hexdigest()


@contextmanager
def _interrupt() -> Iterator[Callable[[], bool]]:
    """Ctrl-C asks the loop to stop after its present chunk; a second one stops at once."""
    pressed = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return

    def handler(*_: object) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()
        print("stopping after the present rounds; Ctrl-C again to stop at once", file=sys.stderr)

    before = signal.signal(signal.SIGINT, handler)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _progress_bar(show: bool, rounds: int) -> Iterator[Callable[[int, str], None]]:
    """What is called with the rounds done and a note."""
    if not show or not sys.stderr.isatty():
        yield lambda done, note: None  # noqa: ARG005
        return
    from rich.console import Console  # here: they take a while to load
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    with Progress(
        TextColumn("round {task.completed}/{task.total}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task("", total=rounds, note="")
        yield lambda done, note: bar.update(task, completed=done, note=note)
