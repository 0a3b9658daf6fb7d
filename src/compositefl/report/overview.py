"""The page of one or several runs, and what of it can be read from the folders they wrote."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from compositefl.core.errors import CompositeFLError
from compositefl.core.types import Batch, PlainValues
from compositefl.report import fits, page, sections
from compositefl.report.panels import curves
from compositefl.report.result_files import read_arrays, read_config, read_history
from compositefl.report.sections import ClientData, Section

PATTERNS = 3  # most runs whose zeros are drawn
PARTS = 24  # most arrays of a model that are drawn
LARGE = 20_000_000  # entries of an array beyond which its zeros are not drawn


@dataclass(frozen=True)
class Shown:
    """A run as the page shows it."""

    label: str
    history: pd.DataFrame
    ending: str = ""  # a sentence
    config: PlainValues = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)  # the model, by name
    trials: int = 1  # with several, arrays have the trial as leading axis


def run_sections(
    runs: Sequence[Shown],
    *,
    clients: ClientData | None = None,
    rounds: Mapping[int, Sequence[str]] | None = None,
    sites: Sequence[str] = (),
    features: Sequence[str] | None = None,
    settings: PlainValues | None = None,
    command: str = "",
) -> list[Section]:
    """The sections of a page about runs; what is not known is left out.

    clients: of `data_of_clients`. rounds, sites: who took part when. features: names of the
    columns, for coefficients. settings, command: what was run; by default the runs' own.
    """
    histories = {run.label: run.history for run in runs}
    gammas = {run.config.get("eval_gamma") for run in runs}
    gamma = gammas.pop() if len(gammas) == 1 else None
    out = [sections.ending({run.label: run.ending for run in runs})]
    if any(len(history) for history in histories.values()):
        out += [sections.finals(histories), curves(histories, gamma)]
    models = {run.label: _first_trial(run) for run in runs if run.arrays}
    found = {label: _coefficients(arrays, features) for label, arrays in models.items()}
    if found and all(found.values()):
        out.append(sections.coefficients({k: v for k, v in found.items() if v}))
    else:
        out += _patterns(runs, models)
    if clients is not None:
        out.append(sections.clients(clients))
    if rounds:
        out.append(sections.participation(rounds, sites))
    shown = settings if settings is not None else {run.label: run.config for run in runs}
    return [*out, sections.configuration(shown, command)]


def _first_trial(run: Shown) -> dict[str, np.ndarray]:
    """The model by name; matrices before vectors."""
    arrays = dict(
        sorted(
            run.arrays.items(), key=lambda item: (np.ndim(item[1]) < 2 + (run.trials > 1), item[0])
        )
    )
    return {name: np.asarray(a)[0] if run.trials > 1 else a for name, a in arrays.items()}


def _patterns(
    runs: Sequence[Shown], models: Mapping[str, Mapping[str, np.ndarray]]
) -> list[Section]:
    """Images of the zeros, for the first few runs."""
    out = []
    for run in [run for run in runs if run.label in models][:PATTERNS]:
        arrays = {n: a for n, a in models[run.label].items() if 0 < np.size(a) <= LARGE}
        some = dict(list(arrays.items())[:PARTS])
        note = "The first trial is shown. " if run.trials > 1 else ""
        if len(some) < len(models[run.label]):
            note += f"{len(some)} of {len(models[run.label])} arrays are shown."
        section = sections.sparsity(some, note)
        heading = f"{section.heading}: {run.label}" if len(models) > 1 else section.heading
        out.append(section._replace(heading=heading))
    return out


def _coefficients(
    arrays: Mapping[str, np.ndarray], features: Sequence[str] | None
) -> dict[str, float] | None:
    """Names and numbers of a model that is one vector, with or without an intercept."""
    free = {n: a for n, a in arrays.items() if n.rpartition("/")[2] in ("bias", "intercept")}
    rest = [np.asarray(a) for n, a in arrays.items() if n not in free]
    if len(rest) != 1 or rest[0].size != max(rest[0].shape, default=0):
        return None
    if len(free) > 1 or any(np.size(a) != 1 for a in free.values()):
        return None
    values = rest[0].ravel()
    names = features if features is not None and len(features) == len(values) else None
    shown = [str(n) for n in names] if names else [f"x{i}" for i in range(len(values))]
    numbers = dict(zip(shown, map(float, values), strict=True))
    for intercept in free.values():
        numbers["intercept"] = float(np.ravel(intercept)[0])
    return numbers


def data_of_clients(
    clients: Sequence[Batch],
    *,
    names: Sequence[str] | None = None,
    classes: Sequence[object] | None = None,
    features: Sequence[str] | None = None,
) -> ClientData:
    """What clients hold, in counts and quantiles: plain values for `sections.clients`.

    clients: batches (x, y). Counts of whole-number labels, else quantiles of the targets; means
    of the features where there are at most 200, those 40 that differ most.
    """
    sizes = [len(client[-1]) for client in clients]
    few = [clients[i] for i in range(min(len(sizes), sections.CELLS))]
    shown = [str(n) for n in (names or range(len(sizes)))][: len(few)]
    about: ClientData = {"sizes": sizes, "names": shown}
    targets = [np.asarray(client[-1]) for client in few]
    if all(y.ndim == 1 and y.dtype.kind in "iub" for y in targets):
        labels = np.unique(np.concatenate(targets))
        if len(labels) <= sections.CELLS:
            known = [
                str(classes[i]) if classes and 0 <= i < len(classes) else str(i) for i in labels
            ]
            counts = [[int(np.sum(y == label)) for label in labels] for y in targets]
            about["labels"] = {"names": known, "counts": counts}
    elif all(y.ndim == 1 and y.dtype.kind == "f" for y in targets):
        marks = (0.05, 0.25, 0.5, 0.75, 0.95)
        about["targets"] = [sections.plain(np.quantile(y, marks)) for y in targets]
    inputs = [np.asarray(client[0]) for client in few]
    if all(x.ndim == 2 and x.shape[1] <= 200 for x in inputs):
        together = np.concatenate(inputs)
        spread = together.std(axis=0)
        means = np.stack([x.mean(axis=0) for x in inputs]) - together.mean(axis=0)
        means = means / np.where(spread > 0, spread, 1.0)
        kept = np.sort(np.argsort(-np.abs(means).max(axis=0), kind="stable")[: sections.CELLS])
        titles = features if features else [f"x{i}" for i in range(means.shape[1])]
        about["features"] = {
            "names": [str(titles[i]) for i in kept],
            "means": sections.plain(means[:, kept]),
            "more": int(means.shape[1] - len(kept)),
        }
    return about


# ---- folders that `Result.save`, `run`, `compare`, `fit` and `deploy result` wrote


@dataclass(frozen=True)
class _Folder:
    path: Path
    config: PlainValues
    runs: list[Shown]

    @classmethod
    def read(cls, path: Path) -> "_Folder":
        config = _config(path)
        if not (path / "history.csv").is_file():
            raise CompositeFLError(f"{path} has no history.csv: it is not the folder of a result")
        history = read_history(path / "history.csv")
        about = config.get("runs") or {"": config}
        return cls(path, config, [_shown(path, history, n, c) for n, c in about.items()])


def _config(path: Path) -> PlainValues:
    file = path / "config.json"
    if not file.is_file():
        lacking = [name for name in ("history.csv", file.name) if not (path / name).is_file()]
        raise CompositeFLError(
            f"{path} has no {' and no '.join(lacking)}: it is not the folder of a result"
        )
    return read_config(file)


def _shown(path: Path, history: pd.DataFrame, name: str, config: PlainValues) -> Shown:
    if "algorithm" in history:
        history = history[history["algorithm"] == name].drop(columns="algorithm")
    files = [path / f"model-{name.replace(':', '.')}.safetensors", path / "model.safetensors"]
    model = next((file for file in files if file.is_file()), None)
    return Shown(
        label=str(config.get("algorithm", name or path.name)).partition("(")[0],
        history=history,
        ending=str(config.get("summary") or f"{config.get('rounds_run', '?')} rounds"),
        config={k: v for k, v in config.items() if k != "clients"},
        arrays=read_arrays(model) if model else {},
        trials=int(config.get("trials", 1)),
    )


def folder_sections(paths: Sequence[str | Path]) -> tuple[str, list[Section]]:
    """(title, sections) of the page about the results in one or several folders.

    Runs stand on one page, beside each other; a fit of a linear model has a page of its own.
    """
    for path in map(Path, paths):
        if "fit" in (config := _config(path)):
            if len(paths) > 1:
                raise CompositeFLError(f"{path} holds a fit: it has a page of its own")
            return fits.folder_sections(path, config)
    folders = [_Folder.read(Path(path)) for path in paths]
    runs = [run for folder in folders for run in folder.runs]
    labels = [run.label for run in runs]
    if len(set(labels)) < len(labels):
        runs = [
            Shown(**{**run.__dict__, "label": f"{run.label} ({folder.path.name})"})
            for folder in folders
            for run in folder.runs
        ]
        labels = [run.label for run in runs]
    if len(set(labels)) < len(labels):
        raise CompositeFLError(f"folders of one name hold runs of one method: {labels[0]}")
    first = folders[0].config
    one = len(folders) == 1
    rounds = _rounds(folders[0].path) if one else {}
    known = sorted({site for present in rounds.values() for site in present})
    made = run_sections(
        runs,
        clients=first.get("clients") if one else None,
        rounds=rounds,
        sites=first.get("sites") or known,
        features=(first.get("data") or {}).get("features"),
        settings=first.get("options") if one else None,
        command=first.get("command", "") if one else "",
    )
    title = first.get("title") if one else None
    return title or ", ".join(folder.path.name for folder in folders), made


def _rounds(folder: Path) -> dict[int, list[str]]:
    """Of each round of a deployment the sites whose uploads counted; of a repeated one the last."""
    progress = folder / "progress.jsonl"
    if not progress.is_file():
        return {}
    events = [json.loads(line) for line in progress.read_text().splitlines() if line.strip()]
    found = {int(e["round"]): list(e["sites"]) for e in events if e.get("event") == "round"}
    return dict(sorted(found.items()))


def write_report(folders: Sequence[str | Path], out: str | Path) -> None:
    """Write the page about the results in these folders into the file `out`."""
    title, made = folder_sections(folders)
    page.write(out, title, made)
