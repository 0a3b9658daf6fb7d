"""The options of `run`, `compare` and `tune`: a dataclass whose fields become options."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from typer.models import OptionInfo

from compositefl.solve.options import OptionField, options_fields

if TYPE_CHECKING:
    from compositefl.cli.fit_options import FitSettings

    AnySettings: TypeAlias = "Settings | FitSettings"

Command: TypeAlias = Callable[..., int]  # returns the exit code
LARGEST_SEED = 2**32 - 1
OTHER_NAMES = {"extra": "--set"}  # of fields whose option has another name
# They say where a run goes, not what it is.
PROCESSES = ("coordinator", "processes", "process")
NOT_REPEATED = ("checkpoint", "resume", "quiet", "states", "devices", "client_block", *PROCESSES)

# Hyper-parameters with an option of their own; any other is reached by --set.
COMMON = ("gamma", "local_steps", "local_lr", "server_lr", "lr", "composite")


def whole(text: str) -> int:
    """A whole number, or an error that names what was given."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not a whole number") from None


def number(text: str) -> float:
    """A number, or an error that names what was given."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"'{text}' is not a number") from None


def step(text: str) -> float | str:
    """A step size: a number, or the word auto or theory."""
    return text if text in ("auto", "theory") else number(text)


def number_or_auto(text: str) -> float | str:
    """A number, or the word auto."""
    return text if text == "auto" else number(text)


def whole_or_auto(text: str) -> int | str:
    """A whole number, or the word auto."""
    return text if text == "auto" else whole(text)


def seed_number(text: str) -> int:
    """A whole number that the random numbers can start from."""
    seed = whole(text)
    if not 0 <= seed <= LARGEST_SEED:
        raise typer.BadParameter(f"{seed} must be in 0..{LARGEST_SEED}")
    return seed


def _option(panel: str, text: str, *names: str, **more: Any) -> OptionInfo:
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False, **more)


def _whole(panel: str, text: str, parser: Callable[[str], int] = whole) -> OptionInfo:
    return _option(panel, text, parser=parser, metavar="INT")


def _number(panel: str, text: str) -> OptionInfo:
    return _option(panel, text, parser=number, metavar="FLOAT")


def _text(panel: str, text: str, metavar: str, *names: str) -> OptionInfo:
    return _option(panel, text, *names, metavar=metavar)


def option_name(field: str) -> str:
    """The option of a field: local_lr -> --local-lr."""
    return OTHER_NAMES.get(field, "--" + field.replace("_", "-"))


PROBLEM, METHOD, RUN = "Problem", "Numbers of the algorithm", "Run"


def _run_option(field: OptionField) -> tuple[str, object, object]:
    """A field of `Options` as (name, annotated type, default) of a field of `Settings`."""
    default = DEFAULTS.get(field.name, field.default)
    text = TEXTS.get(field.name, field.help)
    if default is not None and default is not False:
        text = f"{text[:-1]}; default {default}."
    kinds = [kind for kind in field.types if kind is not None]
    kind: Any = kinds[0] | None if default is None else kinds[0]
    if kinds == [bool]:
        option = _option(RUN, text, option_name(field.name))
    elif kinds == [int]:
        option = _whole(RUN, text, seed_number if field.name == "seed" else whole)
    elif kinds == [float]:
        option = _number(RUN, text)
    else:  # words, or a number whose type says what it is: the text goes on as it stands
        kind, default = (str | None, None) if default is None else (str, str(default))
        option = _text(RUN, text, METAVARS.get(field.name, "NAME"))
    return field.name, Annotated[kind, option], default


# Where the command line differs from `minimize`.
DEFAULTS: dict[str, int | None] = {"rounds": 100, "eval_gamma": None}
TEXTS = {
    "eval_gamma": "Prox parameter of the residual; default the algorithm's gamma, else 1.",
    "checkpoint": "File for all state (compare: one per method).",
}
METAVARS = {"participation": "NUMBER", "checkpoint": "FILE"}
ELSEWHERE = ("progress",)  # --quiet turns it off

RunSettings: Any = dataclasses.make_dataclass(
    "RunSettings",
    [_run_option(f) for f in options_fields().values() if f.name not in ELSEWHERE],
    frozen=True,
    kw_only=True,
)


@dataclasses.dataclass(frozen=True)
class Settings(RunSettings):
    """What is solved, with which numbers, and how long. None: not given.

    The options of a run are those of `solve.options.Options`; the others stand here.
    """

    dataset: Annotated[
        str | None, _text(PROBLEM, "Dataset, or MODULE:NAME of your own; default digits.", "NAME")
    ] = None
    data_folder: Annotated[
        str | None, _text(PROBLEM, "Folder that holds the dataset's files.", "DIR")
    ] = None
    data_option: Annotated[
        list[str] | None,
        _text(PROBLEM, "Of the dataset synthetic, e.g. classes=2. Repeatable.", "NAME=VALUE"),
    ] = None
    data: Annotated[
        str | None,
        _text(PROBLEM, "Your own table instead of a dataset: CSV, Parquet or NPZ.", "FILE"),
    ] = None
    target: Annotated[str | None, _text(PROBLEM, "Column of the table to predict.", "COLUMN")] = (
        None
    )
    site: Annotated[
        str | None,
        _text(PROBLEM, "Column that says whose a row is; default: see --partition.", "COLUMN"),
    ] = None
    drop: Annotated[
        list[str] | None, _text(PROBLEM, "Column that is no feature. Repeatable.", "COLUMN")
    ] = None
    categories: Annotated[
        list[str] | None,
        _text(
            PROBLEM,
            "Column of categories: it becomes columns of 0 and 1, one for every value but the "
            "first, or but VALUE. Repeatable.",
            "COLUMN[=VALUE]",
        ),
    ] = None
    test: Annotated[
        str | None, _text(PROBLEM, "Table of the same columns to measure accuracy on.", "FILE")
    ] = None
    model: Annotated[
        str, _text(PROBLEM, "Model, or MODULE:NAME of your own; default mlp.", "NAME")
    ] = "mlp"
    hidden: Annotated[
        str | None, _text(PROBLEM, "Hidden widths of the mlp, e.g. 32 or 64,32.", "INT,...")
    ] = None
    activation: Annotated[
        str | None, _text(PROBLEM, "Activation of the mlp; default sigmoid.", "NAME")
    ] = None
    intercept: Annotated[
        bool,
        _option(
            PROBLEM, "Give linear or logistic one, as multinomial has: '*/bias'.", "--intercept"
        ),
    ] = False
    model_option: Annotated[
        list[str] | None,
        _text(PROBLEM, "Another option of the model, e.g. loss=squared. Repeatable.", "NAME=VALUE"),
    ] = None
    partition: Annotated[
        str | None,
        _text(PROBLEM, "How samples go to clients; default label, for tables iid.", "NAME"),
    ] = None
    clients: Annotated[int | None, _whole(PROBLEM, "Number of clients; default 20.")] = None
    alpha: Annotated[
        float | None, _number(PROBLEM, "Of the partitions dirichlet, quantity, synthetic.")
    ] = None
    beta: Annotated[float | None, _number(PROBLEM, "Of the partition synthetic.")] = None
    regularizer: Annotated[
        str,
        _text(
            PROBLEM,
            "NAME:NUMBERS, e.g. elastic-net:0.001,0.01, or MODULE:NAME:NUMBERS of your own; "
            "default zero.",
            "SPEC",
        ),
    ] = "zero"
    unpenalized: Annotated[
        list[str] | None,
        _text(PROBLEM, "Parameters without regulariser, e.g. '*/bias'. Repeatable.", "PATTERN"),
    ] = None

    gamma: Annotated[
        Any,
        _option(
            METHOD,
            "Prox parameter of the normal-map methods; default auto.",
            parser=number_or_auto,
            metavar="FLOAT|auto",
        ),
    ] = None
    local_steps: Annotated[
        Any,
        _option(
            METHOD,
            "Local steps in a round, Q; default auto: it sets itself.",
            parser=whole_or_auto,
            metavar="INT|auto",
        ),
    ] = None
    local_lr: Annotated[
        Any,
        _option(
            METHOD,
            "Local step size; default auto. 'theory' takes all step sizes from the theorem.",
            parser=step,
            metavar="FLOAT|auto|theory",
        ),
    ] = None
    server_lr: Annotated[
        Any,
        _option(
            METHOD, "Server step size; default 1.", parser=number_or_auto, metavar="FLOAT|auto"
        ),
    ] = None
    lr: Annotated[float | None, _number(METHOD, "Step size of the centralised methods.")] = None
    composite: Annotated[
        str | None,
        _text(METHOD, "How a smooth method treats phi: none, subgradient, server-prox.", "NAME"),
    ] = None
    extra: Annotated[
        list[str] | None,
        _text(METHOD, "Any other number of the algorithm. Repeatable.", "NAME=VALUE", "--set"),
    ] = None

    trials: Annotated[int, _whole(RUN, "Independent runs side by side; default 1.")] = 1
    coordinator: Annotated[
        str | None, _text(RUN, "Of several processes: where the first one listens.", "HOST:PORT")
    ] = None
    processes: Annotated[int | None, _whole(RUN, "How many processes run together.")] = None
    process: Annotated[int | None, _whole(RUN, "The number of this process, from 0.")] = None
    quiet: Annotated[bool, _option(RUN, "Print errors and warnings only.", "--quiet")] = False

    def arguments(self) -> list[str]:
        """These settings as words of a command line."""
        return as_words(self)


def as_words(settings: "AnySettings") -> list[str]:
    """What was given, as words of a command line; a default that is no `None` is given too."""
    words: list[str] = []
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if value is None or value is False or field.name in NOT_REPEATED:
            continue
        if value is True:
            words.append(option_name(field.name))
            continue
        for item in value if isinstance(value, list) else [value]:
            words += [option_name(field.name), str(item)]
    return words


def with_settings(command: Command, declared: "type[AnySettings]" = Settings) -> Command:
    """Give `command(settings, ...)` an option for every field of `declared` besides its own."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "settings"]
    fields = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
        for field in dataclasses.fields(declared)
    ]
    mine = {p.name for p in own}

    def run(**values: Any) -> int:
        settings = declared(**{k: v for k, v in values.items() if k not in mine})
        return command(settings, **{k: v for k, v in values.items() if k in mine})

    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    parameters = [*keyword, *fields]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.declared = declared  # type: ignore[attr-defined]  # for the wording of errors
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
