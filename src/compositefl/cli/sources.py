"""The data of a command line: a dataset by name, a function of the user's, or a table."""

import inspect
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from compositefl.cli.coding import chosen_categories
from compositefl.cli.methods import convert, own, split_pair
from compositefl.cli.settings import Settings, option_name
from compositefl.cli.wording import about
from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.core.types import Array, Batch, PlainValues
from compositefl.data import DATASETS, Dataset, Samples, load, tables
from compositefl.data.categories import Categories, coded
from compositefl.data.partition import PARTITIONS, Partition, from_indices
from compositefl.data.tables import Label
from compositefl.models import MODELS, REGRESSION

if TYPE_CHECKING:
    import pandas as pd

ANY = (bool, int, float, str)
CLIENTS = 20
SHAPE_OPTIONS = ("alpha", "beta")  # of a partition, besides the number of clients and the seed
SPREADING = ("partition", "clients", *SHAPE_OPTIONS)
OF_TABLES = ("target", "site", "drop", "categories", "test")
OF_DATASETS = ("dataset", "data_folder", "data_option")


class Source(NamedTuple):
    """The clients' data, and what can be said about it."""

    name: str
    clients: Sequence[Batch]
    test: Batch | None
    classes: int | None  # None: the targets are numbers
    about: PlainValues  # for config.json, such as the columns of a table


def load_source(settings: Settings) -> Source:
    """Load the data and spread it over the clients."""
    if settings.data is not None:
        _refuse(settings, OF_DATASETS, f"--data {settings.data} takes the place of a dataset")
        return _table(settings.data, settings)
    _refuse(settings, OF_TABLES, "it goes with --data FILE")
    name = settings.dataset or "digits"
    if ":" in name:
        return _own(name, settings)
    if name not in DATASETS:
        raise unknown_name("dataset", name, DATASETS)
    spread = _partition_name(name, settings)
    options = _partition_options(spread, settings, name)
    if spread == "synthetic":
        _refuse(settings, ("data_folder",), "dataset 'synthetic' needs no files")
        with about("--dataset", "synthetic"):
            clients = PARTITIONS[spread][0](**options)
        return Source(name, clients, None, int(options.get("classes", 10)), {})
    data = load(name, settings.data_folder)
    return Source(name, _spread(spread, data.train, options), data.test, data.classes, {})


def _own(reference: str, settings: Settings) -> Source:
    """The data that a function of the user's returns."""
    _refuse(settings, ("data_folder", "data_option"), f"--dataset {reference} is made without it")
    with about("--dataset", reference):
        made = own(reference)()
    test = None
    if isinstance(made, tuple) and not isinstance(made, Samples) and len(made) == 2:
        made, test = made
    if isinstance(made, Partition):
        _refuse(settings, SPREADING, f"--dataset {reference} comes with its clients")
        return Source(reference, made, test, _count_classes(made.labels), {})
    classes: int | None
    if isinstance(made, Dataset):
        train, test, classes = made.train, made.test, made.classes
    elif isinstance(made, Samples):
        train, classes = made, _count_classes(made.y)
    else:
        raise CompositeFLError(
            f"--dataset {reference} must return a Dataset, a Partition, Samples(x, y), or a "
            f"pair of one of the latter two and a test set; it returned {type(made).__name__}"
        )
    spread = settings.partition or ("label" if classes else "iid")
    options = _partition_options(spread, settings, reference)
    return Source(reference, _spread(spread, train, options), test, classes, {})


def _count_classes(y: Array | None) -> int | None:
    labels = None if y is None else np.asarray(y)
    if labels is None or labels.dtype.kind not in "iub":
        return None
    return max(2, int(labels.max()) + 1)


def _table(file: str, settings: Settings) -> Source:
    """The user's own file; its rows go to the sites of a column, or are spread."""
    with about("--data"):
        frame = tables.read_table(file)
        if settings.target is None:
            columns = ", ".join(map(str, frame.columns[:10]))
            raise CompositeFLError(f"{file} needs --target COLUMN, one of: {columns}")
        aside = [*(settings.drop or []), *([settings.site] if settings.site else [])]
        categories = _categories(settings, frame, file)
        table = coded(frame, categories, file)
        x, y, features = tables.features_and_target(table, settings.target, drop=aside, file=file)
        y, names = _targets(settings.model, y, None, file)
    test = None
    if settings.test is not None:
        test = _test_table(
            settings.test, settings.target, settings.model, features, categories, names
        )
    if settings.site is None:
        spread = settings.partition or "iid"
        if spread == "synthetic":
            raise CompositeFLError("--partition synthetic does not go with --data")
        clients = _spread(spread, Samples(x, y), _partition_options(spread, settings, file))
        sites = None
    else:
        _refuse(settings, SPREADING, f"--site {settings.site} says which rows a client has")
        with about("--data"):
            rows = tables.site_rows(frame, settings.site, file=file)
        clients, sites = from_indices(Samples(x, y), rows.values()), list(rows)
    about_: PlainValues = {
        "features": features,
        "target": settings.target,
        "classes": names,
        "sites": sites,
    }
    about_ |= {"categories": categories} if categories else {}
    return Source(file, clients, test, None if names is None else len(names), about_)


def _categories(settings: Settings, frame: "pd.DataFrame", file: str) -> dict[str, list[str]]:
    taken = {str(settings.target): "target", str(settings.site): "site"}
    taken |= dict.fromkeys(settings.drop or [], "drop")
    given = [part for text in settings.categories or [] for part in text.split(",") if part]
    return chosen_categories(given, {file: frame}, taken)


def _test_table(
    file: str,
    target: str,
    model: str,
    features: list[str],
    categories: Categories,
    names: list[Label] | None,
) -> Samples:
    with about("--test"):
        frame = coded(tables.read_table(file), categories, file)
        x, y, _ = tables.features_and_target(frame, target, features, file=file)
        return Samples(x, _targets(model, y, names, file)[0])


def _targets(
    model: str, y: np.ndarray, known: list[Label] | None, file: str
) -> tuple[np.ndarray, list[Label] | None]:
    """(targets, class names): numbers for a regression, else labels 0, 1, ...

    A model of the user's own gets numbers as they are, and labels for words.
    """
    text = y.dtype.kind not in "iufb"
    if model in REGRESSION and text:
        raise CompositeFLError(
            f"{file}: the target holds text, such as '{y[0]}'; --model {model} needs numbers"
        )
    if model in REGRESSION or (model not in MODELS and y.dtype.kind == "f"):
        return y.astype(float), None
    if model not in MODELS and not text:
        return y.astype(np.int32), list(range(int(y.max()) + 1))
    try:
        return tables.class_labels(y, known, file=file)
    except CompositeFLError as error:
        hint = "; for numbers there is --model linear" if y.dtype.kind == "f" else ""
        raise CompositeFLError(f"{error}{hint}") from error


def summary(source: Source) -> str:
    """One line on what was read from a table."""
    sizes = [len(client.y) for client in source.clients]
    classes, sites = source.about["classes"], source.about["sites"]
    parts = [f"{sum(sizes)} rows", f"{len(source.about['features'])} features"]
    if classes is not None:
        shown = ", ".join(map(str, classes[:6])) + (", ..." if len(classes) > 6 else "")
        parts.append(f"{len(classes)} classes ({shown})")
    who = "clients" if sites is None else "sites"
    parts.append(f"{len(sizes)} {who} of {min(sizes)} to {max(sizes)} rows")
    return f"{source.name}: {', '.join(parts)}"


def _refuse(settings: Settings, names: Sequence[str], why: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if value is not None:
            shown = value[0] if isinstance(value, list) else value
            raise CompositeFLError(f"{option_name(name)} {shown} does not go here: {why}")


def _partition_name(dataset: str, settings: Settings) -> str:
    own_clients = dataset == "synthetic"  # this data comes client by client
    name = settings.partition or ("synthetic" if own_clients else "label")
    if name in PARTITIONS and own_clients != (name == "synthetic"):
        raise CompositeFLError(
            f"--partition {name} does not go with --dataset {dataset}: "
            "the dataset synthetic has the partition synthetic, and no other dataset has it"
        )
    return name


def _partition_options(name: str, settings: Settings, dataset: str) -> dict[str, Any]:
    """Keyword arguments of the partition; refuses what it does not take."""
    if name not in PARTITIONS:
        raise unknown_name("partition", name, PARTITIONS)
    takes = inspect.signature(PARTITIONS[name][0]).parameters
    clients = CLIENTS if settings.clients is None else settings.clients
    options: dict[str, Any] = {"clients": clients}
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
    return options | _data_options(name, takes, options, settings, dataset)


def _data_options(
    name: str,
    takes: Collection[str],
    taken: Collection[str],
    settings: Settings,
    dataset: str,
) -> dict[str, Any]:
    """The pairs of --data-option, which only data made on the spot has."""
    found: dict[str, Any] = {}
    allowed = [o for o in takes if o not in taken and o not in SHAPE_OPTIONS]
    for pair in settings.data_option or []:
        if name != "synthetic":
            raise CompositeFLError(f"--data-option {pair}: the dataset {dataset} has no options")
        option, value = split_pair("--data-option", pair)
        if option not in allowed:
            raise CompositeFLError(f"--data-option {pair}: there are {', '.join(allowed)}")
        found[option] = convert(f"--data-option {pair}", value, ANY)
    return found


def _spread(name: str, train: Samples, options: dict[str, Any]) -> Partition:
    try:
        return PARTITIONS[name][0](train, **options)
    except CompositeFLError as error:
        given = [f"{option_name(o)} {v}" for o, v in options.items() if o != "seed"]
        raise CompositeFLError(f"--partition {name} {' '.join(given)}: {error}") from error
