"""Rows of the history while a run goes on, to whoever listens: files and tracking tools.

with cfl.track("jsonl:run.jsonl", "tensorboard:logs"):
    cfl.minimize(...)
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol

from compositefl.core.errors import CompositeFLError, unknown_name

Row = Mapping[str, float]  # a row of the history; "run" is its number in a sweep
Listener = Callable[[str, Sequence[Row]], None]  # the name of the method, and new rows
_LISTENERS: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())


def tell(name: str, rows: Sequence[Row]) -> None:
    """New rows of the run of a method, for all who listen."""
    for listener in _LISTENERS.get():
        listener(name, rows)


@contextmanager
def listen(*listeners: Listener) -> Iterator[None]:
    """Call these with every new row while the block runs."""
    before = _LISTENERS.set((*_LISTENERS.get(), *listeners))
    try:
        yield
    finally:
        _LISTENERS.reset(before)


class Tracker(Protocol):
    """Somewhere to send rows to."""

    def log(self, name: str, rows: Sequence[Row]) -> None:
        """Take rows of the run of a method."""

    def close(self) -> None:
        """The run is over."""


@contextmanager
def track(*places: "str | Tracker") -> Iterator[None]:
    """Send the history of what runs in the block to files or tracking tools, as it grows.

    places: "jsonl:FILE", "tensorboard:FOLDER", "mlflow:FOLDER or address", "wandb:PROJECT", or
    objects with `log` and `close`. All but the first need their own package: the extras
    "tensorboard", "mlflow", "wandb".
    """
    with ExitStack() as stack:
        trackers = []
        for place in places:
            tracker = make(place) if isinstance(place, str) else place
            stack.callback(tracker.close)
            trackers.append(tracker)
        with listen(*(tracker.log for tracker in trackers)):
            yield


def make(place: str) -> Tracker:
    """The tracker that "kind:where" names."""
    kind, _, where = place.partition(":")
    if kind not in KINDS:
        raise unknown_name("tracker", kind, KINDS)
    if not where:
        raise CompositeFLError(f"tracker '{place}' must say where, such as {kind}:runs")
    try:
        return KINDS[kind](where)
    except ImportError:
        raise CompositeFLError(f"{kind} needs pip install 'compositefl[{kind}]'") from None


class JsonLines:
    """One line of JSON a row, written at once: what a program can follow with `tail -f`."""

    def __init__(self, file: str | Path) -> None:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        self.out = open(file, "a", encoding="utf-8")  # noqa: SIM115  (`close` closes it)

    def log(self, name: str, rows: Sequence[Row]) -> None:
        """Append the rows. JSON has no NaN and no infinity: null."""
        for row in rows:
            plain = {k: v if math.isfinite(v) else None for k, v in row.items()}
            self.out.write(json.dumps({"method": name, **plain}) + "\n")
        self.out.flush()

    def close(self) -> None:
        """Close the file."""
        self.out.close()


class TensorBoard:
    """Event files, a folder for each method and run."""

    def __init__(self, folder: str) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self.folder = Path(folder)
        self.writers: dict[str, EventFileWriter] = {}
        self.parts = Event, Summary, EventFileWriter

    def log(self, name: str, rows: Sequence[Row]) -> None:
        """One event a row."""
        import time

        event, summary, writer = self.parts
        for row in rows:
            place = f"{name}-{int(row.get('run', 0))}"
            if place not in self.writers:
                self.writers[place] = writer(str(self.folder / place))
            values = [summary.Value(tag=k, simple_value=v) for k, v in measures(row).items()]
            made = event(wall_time=time.time(), step=int(row["round"]))
            made.summary.CopyFrom(summary(value=values))
            self.writers[place].add_event(made)

    def close(self) -> None:
        """Write what is still in memory."""
        for writer in self.writers.values():
            writer.close()


class MLflow:
    """A run of MLflow for each method and run, in an experiment "compositefl"."""

    def __init__(self, where: str) -> None:
        from mlflow import MlflowClient

        is_address = "://" in where or where.startswith("sqlite:")
        address = where if is_address else Path(where).resolve().as_uri()
        self.client = MlflowClient(tracking_uri=address)
        found = self.client.get_experiment_by_name("compositefl")
        made = found.experiment_id if found else self.client.create_experiment("compositefl")
        self.experiment, self.runs = made, dict[str, str]()

    def log(self, name: str, rows: Sequence[Row]) -> None:
        """All numbers of a row at its round."""
        for row in rows:
            place = f"{name}-{int(row.get('run', 0))}"
            if place not in self.runs:
                made = self.client.create_run(self.experiment, run_name=place)
                self.runs[place] = made.info.run_id
            for key, value in measures(row).items():
                self.client.log_metric(self.runs[place], key, value, step=int(row["round"]))

    def close(self) -> None:
        """Mark the runs as finished."""
        for run in self.runs.values():
            self.client.set_terminated(run)


class WandB:
    """A run of Weights & Biases for each method and run; WANDB_MODE=offline keeps it here."""

    def __init__(self, project: str) -> None:
        import wandb

        self.wandb, self.project, self.runs = wandb, project, dict[str, Any]()

    def log(self, name: str, rows: Sequence[Row]) -> None:
        """All numbers of a row at its round."""
        for row in rows:
            place = f"{name}-{int(row.get('run', 0))}"
            if place not in self.runs:
                self.runs[place] = self.wandb.init(
                    project=self.project, name=place, reinit="create_new"
                )
            self.runs[place].log(measures(row), step=int(row["round"]))

    def close(self) -> None:
        """Finish the runs."""
        for run in self.runs.values():
            run.finish()


def measures(row: Row) -> dict[str, float]:
    """The finite numbers of a row that are no index."""
    index = ("round", "run", "trial")
    return {k: float(v) for k, v in row.items() if k not in index and math.isfinite(v)}


KINDS: dict[str, Callable[[str], Tracker]] = {
    "jsonl": JsonLines,
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}
