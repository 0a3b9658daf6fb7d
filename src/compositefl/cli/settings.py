"""The options of `run` and `compare`, written once: a dataclass whose fields become options."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

LARGEST_SEED = 2**32 - 1
OTHER_NAMES = {"extra": "--set"}  # of fields whose option has another name
NOT_REPEATED = ("checkpoint", "resume", "quiet")  # they say where a run goes, not what it is

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
    """A step size: a number, or the word theory."""
    return text if text == "theory" else number(text)


def seed_number(text: str) -> int:
    """A whole number that the random numbers can start from."""
    seed = whole(text)
    if not 0 <= seed <= LARGEST_SEED:
        raise typer.BadParameter(f"{seed} must be in 0..{LARGEST_SEED}")
    return seed


def _option(panel: str, text: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False, **more)


def _whole(panel: str, text: str, parser: Callable[[str], int] = whole) -> Any:
    return _option(panel, text, parser=parser, metavar="INT")


def _number(panel: str, text: str) -> Any:
    return _option(panel, text, parser=number, metavar="FLOAT")


def _text(panel: str, text: str, metavar: str, *names: str) -> Any:
    return _option(panel, text, *names, metavar=metavar)


PROBLEM, METHOD, RUN = "Problem", "Numbers of the algorithm", "Run"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What is solved, with which numbers, and how long. None: not given."""

    dataset: Annotated[str, _text(PROBLEM, "Dataset; default digits.", "NAME")] = "digits"
    data_folder: Annotated[
        str | None, _text(PROBLEM, "Folder that holds the dataset's files.", "DIR")
    ] = None
    data_option: Annotated[
        list[str] | None,
        _text(PROBLEM, "Of the dataset synthetic, e.g. classes=2. Repeatable.", "NAME=VALUE"),
    ] = None
    model: Annotated[str, _text(PROBLEM, "Model; default mlp.", "NAME")] = "mlp"
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
    partition: Annotated[
        str | None, _text(PROBLEM, "How samples are spread over clients; default label.", "NAME")
    ] = None
    clients: Annotated[int, _whole(PROBLEM, "Number of clients; default 20.")] = 20
    alpha: Annotated[
        float | None, _number(PROBLEM, "Of the partitions dirichlet, quantity, synthetic.")
    ] = None
    beta: Annotated[float | None, _number(PROBLEM, "Of the partition synthetic.")] = None
    regularizer: Annotated[
        str, _text(PROBLEM, "NAME:NUMBERS, e.g. elastic-net:0.001,0.01; default zero.", "SPEC")
    ] = "zero"
    unpenalized: Annotated[
        list[str] | None,
        _text(PROBLEM, "Parameters without regulariser, e.g. '*/bias'. Repeatable.", "PATTERN"),
    ] = None

    gamma: Annotated[float | None, _number(METHOD, "Prox parameter of the normal-map methods.")] = (
        None
    )
    local_steps: Annotated[int | None, _whole(METHOD, "Local steps in a round, Q.")] = None
    local_lr: Annotated[
        Any,
        _option(
            METHOD,
            "Local step size; 'theory' takes all step sizes from the theorem.",
            parser=step,
            metavar="FLOAT|theory",
        ),
    ] = None
    server_lr: Annotated[float | None, _number(METHOD, "Server step size.")] = None
    lr: Annotated[float | None, _number(METHOD, "Step size of the centralised methods.")] = None
    composite: Annotated[
        str | None,
        _text(METHOD, "How a smooth method treats phi: none, subgradient, server-prox.", "NAME"),
    ] = None
    extra: Annotated[
        list[str] | None,
        _text(METHOD, "Any other number of the algorithm. Repeatable.", "NAME=VALUE", "--set"),
    ] = None

    rounds: Annotated[int, _whole(RUN, "Rounds; default 100.")] = 100
    batch_size: Annotated[
        int | None, _whole(RUN, "Samples of a local gradient; default all of the client's.")
    ] = None
    participation: Annotated[
        str, _text(RUN, "Clients in a round: a share (0.5) or a number (5); default 1.0.", "NUMBER")
    ] = "1.0"
    replacement: Annotated[
        bool, _option(RUN, "Draw the clients of a round with replacement.", "--replacement")
    ] = False
    dropout: Annotated[float, _number(RUN, "Probability that an upload is lost; default 0.")] = 0.0
    stragglers: Annotated[
        float, _number(RUN, "Probability that a client stops before its last step; default 0.")
    ] = 0.0
    weights: Annotated[
        str, _text(RUN, "Weight of a client: uniform or size; default uniform.", "NAME")
    ] = "uniform"
    dtype: Annotated[str, _text(RUN, "float32 or float64; default float32.", "NAME")] = "float32"
    seed: Annotated[
        int,
        _whole(RUN, "Of the data, the start and all sampling; default 0.", seed_number),
    ] = 0
    trials: Annotated[int, _whole(RUN, "Independent runs side by side; default 1.")] = 1
    eval_every: Annotated[
        int | None, _whole(RUN, "Rounds between two rows of the history; default about 50 rows.")
    ] = None
    eval_gamma: Annotated[
        float | None,
        _number(RUN, "Prox parameter of the residual; default the algorithm's gamma, else 1."),
    ] = None
    tolerance: Annotated[
        float | None, _number(RUN, "Stop when the norm of the natural residual is below.")
    ] = None
    checkpoint: Annotated[
        str | None, _text(RUN, "File for all state (compare: one a method).", "FILE")
    ] = None
    resume: Annotated[bool, _option(RUN, "Go on from the checkpoint.", "--resume")] = False
    quiet: Annotated[bool, _option(RUN, "Print errors and warnings only.", "--quiet")] = False

    def arguments(self) -> list[str]:
        """These settings as words of a command line."""
        words: list[str] = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is None or value is False or field.name in NOT_REPEATED:
                continue
            if value is True:
                words.append(option_name(field.name))
                continue
            for item in value if isinstance(value, list) else [value]:
                words += [option_name(field.name), str(item)]
        return words


def option_name(field: str) -> str:
    """The option of a field: local_lr -> --local-lr."""
    return OTHER_NAMES.get(field, "--" + field.replace("_", "-"))


def with_settings(command: Callable[..., int]) -> Callable[..., int]:
    """Give `command(settings, ...)` an option for every field of `Settings` besides its own."""
    own = [p for p in inspect.signature(command).parameters.values() if p.name != "settings"]
    fields = [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=field.type
        )
        for field in dataclasses.fields(Settings)
    ]
    mine = {p.name for p in own}

    def run(**values: Any) -> int:
        settings = Settings(**{k: v for k, v in values.items() if k not in mine})
        return command(settings, **{k: v for k, v in values.items() if k in mine})

    keyword = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own]
    parameters = [*keyword, *fields]
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
