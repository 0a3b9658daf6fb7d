"""The problem of a command line: data, clients, model and regulariser."""

import inspect
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from compositefl import models
from compositefl.cli.methods import convert, split_pair
from compositefl.cli.settings import Settings, option_name
from compositefl.cli.wording import about
from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.core.trees import named_leaves
from compositefl.data import DATASETS, load
from compositefl.data.partition import PARTITIONS, Partition
from compositefl.problem import Problem
from compositefl.regularizers import ByName, Regularizer, Zero, parse

ANY = (bool, int, float, str)
SHAPE_OPTIONS = ("alpha", "beta")  # of a partition, besides the number of clients and the seed


def build_problem(settings: Settings) -> Problem:
    """Load the data, spread it over the clients and put the model on it."""
    if settings.dataset not in DATASETS:
        raise unknown_name("dataset", settings.dataset, DATASETS)
    name = _partition_name(settings)
    options = _partition_options(name, settings)
    if settings.model not in models.MODELS:
        raise unknown_name("model", settings.model, models.MODELS)
    if name == "synthetic":
        with about("--dataset", "synthetic"):
            clients = PARTITIONS[name][0](**options)
        test, classes = None, int(options.get("classes", 10))
    else:
        data = load(settings.dataset, settings.data_folder)
        clients = _spread(name, data.train, options, settings)
        test, classes = data.test, data.classes
    model = _build_model(settings, clients, classes)
    return model.problem(clients, test=test, seed=settings.seed)


def _partition_name(settings: Settings) -> str:
    own = settings.dataset == "synthetic"  # this data comes client by client
    name = settings.partition or ("synthetic" if own else "label")
    if name not in PARTITIONS:
        raise unknown_name("partition", name, PARTITIONS)
    if own != (name == "synthetic"):
        raise CompositeFLError(
            f"--partition {name} does not go with --dataset {settings.dataset}: "
            "the dataset synthetic has the partition synthetic, and no other dataset has it"
        )
    return name


def _partition_options(name: str, settings: Settings) -> dict[str, Any]:
    """Keyword arguments of the partition; refuses what it does not take."""
    takes = inspect.signature(PARTITIONS[name][0]).parameters
    options: dict[str, Any] = {"clients": settings.clients}
    if "seed" in takes:
        options["seed"] = settings.seed
    for option in SHAPE_OPTIONS:
        value = getattr(settings, option)
        if value is not None and option not in takes:
            others = [
                n for n, (f, _) in PARTITIONS.items() if option in inspect.signature(f).parameters
            ]
            raise CompositeFLError(
                f"--{option} {value}: the partition {name} has no {option}; "
                f"those that have one: {', '.join(others)}"
            )
        if value is not None:
            options[option] = value
        elif option in takes and takes[option].default is inspect.Parameter.empty:
            raise CompositeFLError(f"--partition {name} needs --{option}")
    return options | _data_options(name, takes, options, settings)


def _data_options(name: str, takes: Any, taken: Any, settings: Settings) -> dict[str, Any]:
    """The pairs of --data-option, which only data made on the spot has."""
    found: dict[str, Any] = {}
    allowed = [o for o in takes if o not in taken and o not in SHAPE_OPTIONS]
    for pair in settings.data_option or []:
        if name != "synthetic":
            raise CompositeFLError(
                f"--data-option {pair}: the dataset {settings.dataset} has no options"
            )
        option, value = split_pair("--data-option", pair)
        if option not in allowed:
            raise CompositeFLError(f"--data-option {pair}: there are {', '.join(allowed)}")
        found[option] = convert(f"--data-option {pair}", value, ANY)
    return found


def _spread(name: str, train: Any, options: dict[str, Any], settings: Settings) -> Partition:
    try:
        return PARTITIONS[name][0](train, **options)
    except CompositeFLError as error:
        given = [f"{option_name(o)} {v}" for o, v in options.items() if o != "seed"]
        raise CompositeFLError(f"--partition {name} {' '.join(given)}: {error}") from error


def _build_model(settings: Settings, clients: Sequence[Any], classes: int) -> models.Model:
    hidden = None if settings.hidden is None else _widths(settings.hidden)
    given = [f"--model {settings.model}"]
    given += [f"--hidden {settings.hidden}"] if hidden is not None else []
    given += [f"--activation {settings.activation}"] if settings.activation is not None else []
    given += ["--intercept"] if settings.intercept else []
    try:
        return models.build(
            settings.model,
            input_shape=clients[0].x.shape[1:],
            classes=classes,
            hidden=hidden,
            activation=settings.activation,
            intercept=settings.intercept or None,
        )
    except CompositeFLError as error:
        raise CompositeFLError(f"{' '.join(given)}: {error}") from error


def _widths(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise CompositeFLError(
            f"--hidden {text} must be whole numbers >= 1 with commas between, such as 64,32"
        )
    return tuple(map(int, words))


def build_regularizer(settings: Settings) -> Regularizer:
    """phi, without a weight on the --unpenalized parameters."""
    with about("--regularizer", settings.regularizer):
        phi = parse(settings.regularizer)
    if not settings.unpenalized:
        return phi
    if isinstance(phi, Zero):
        raise CompositeFLError("--unpenalized needs a --regularizer to leave out")
    return ByName({**{pattern: Zero() for pattern in settings.unpenalized}, "*": phi})


def check_patterns(settings: Settings, params: Any) -> None:
    """Refuse an --unpenalized pattern that names no parameter."""
    names = [name for name, _ in named_leaves(params)]
    for pattern in settings.unpenalized or []:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise CompositeFLError(
                f"--unpenalized {pattern} matches no parameter; there are {', '.join(names)}"
            )


def participation(settings: Settings) -> float | int:
    """A share as float, a number of clients as int."""
    text = settings.participation.strip()
    try:
        return int(text) if text.lstrip("+-").isdecimal() else float(text)
    except ValueError:
        raise CompositeFLError(
            f"--participation {text} must be a share in (0, 1] or a number of clients"
        ) from None


def checkpoint_of(settings: Settings, name: str, several: bool) -> Path | None:
    """Where a method keeps its state: state.npz, or state-fednmap.npz when there are several."""
    if settings.checkpoint is None:
        return None
    path = Path(settings.checkpoint)
    return path.with_name(f"{path.stem}-{name}{path.suffix}") if several else path
