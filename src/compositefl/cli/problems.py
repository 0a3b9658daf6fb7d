"""The problem of a command line: data, model and regulariser."""

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from compositefl import models
from compositefl.cli.methods import convert, split_pair, with_current_folder
from compositefl.cli.settings import Settings
from compositefl.cli.sources import ANY, Source, load_source
from compositefl.cli.wording import about
from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.core.trees import named_leaves
from compositefl.core.types import Params
from compositefl.problem import Problem
from compositefl.regularizers import REGULARIZERS, Regularizer, Zero, parse
from compositefl.regularizers.by_name import unpenalized
from compositefl.solve.inputs import require_components


def build_problem(settings: Settings) -> tuple[Problem, Source]:
    """Load the data, spread it over the clients and put the model on it."""
    if ":" not in settings.model and settings.model not in models.MODELS:
        raise unknown_name("model", settings.model, models.MODELS)
    options = _model_options(settings)
    source = load_source(settings)
    model = _build_model(settings, options, source)
    return model.problem(source.clients, test=source.test, seed=settings.seed), source


def _model_options(settings: Settings) -> dict[str, Any]:
    """--hidden, --activation and the pairs of --model-option."""
    options: dict[str, Any] = {}
    if settings.hidden is not None:
        options["hidden"] = _widths(settings.hidden)
    if settings.activation is not None:
        options["activation"] = settings.activation
    if settings.intercept:
        options["intercept"] = True
    for pair in settings.model_option or []:
        name, value = split_pair("--model-option", pair)
        if name in options:
            raise CompositeFLError(f"--model-option {pair}: {name} is given twice")
        is_widths = name == "hidden"
        options[name] = _widths(value) if is_widths else convert("", value, ANY)
    return options


def _build_model(settings: Settings, options: dict[str, Any], source: Source) -> models.Model:
    shape = tuple(source.clients[0].x.shape[1:])
    given: list[str] = []
    given += [f"--hidden {settings.hidden}"] if settings.hidden is not None else []
    given += [f"--activation {settings.activation}"] if settings.activation is not None else []
    given += ["--intercept"] if settings.intercept else []
    given += [f"--model-option {pair}" for pair in settings.model_option or []]
    with about("--model", " ".join([settings.model, *given])):
        if ":" in settings.model:
            with_current_folder()
            return models.build(
                settings.model, input_shape=shape, classes=source.classes, **options
            )
        if source.classes is None and settings.model not in models.REGRESSION:
            raise CompositeFLError("it needs class labels, and the data has numbers to predict")
        return models.build(
            settings.model, input_shape=shape, classes=source.classes or 2, **options
        )


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
        phi = _parse(settings.regularizer)
        require_components(phi)
    if settings.unpenalized and isinstance(phi, Zero):
        raise CompositeFLError("--unpenalized needs a --regularizer to leave out")
    return unpenalized(phi, settings.unpenalized or ())


def _parse(text: str) -> Regularizer:
    if text.count(":") and text.partition(":")[0] not in REGULARIZERS:
        with_current_folder()
    return parse(text)


def check_patterns(settings: Settings, params: Params) -> None:
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
    if not several:
        return path
    return path.with_name(f"{path.stem}-{file_name(name)}{path.suffix}")


def file_name(name: str) -> str:
    """The name of a method in the names of files: mypkg:Method -> mypkg.Method."""
    return name.replace(":", ".")
