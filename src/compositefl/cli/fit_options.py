"""The options of `compositefl fit` and `predict`; what they do is in `fit.py` and `predict.py`."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from compositefl.cli.help import HelpByPanel
from compositefl.cli.settings import (
    Command,
    _number,
    _option,
    _text,
    _whole,
    as_words,
    seed_number,
    with_settings,
)

TABLES, MODEL, PENALTY, FIT = "Tables", "Model", "Penalty", "Fit"


@dataclasses.dataclass(frozen=True)
class FitSettings:
    """Which tables, which model. None: not given."""

    site: Annotated[
        list[str] | None,
        _text(TABLES, "A site and its table: CSV, Parquet or NPZ. Repeatable.", "NAME=FILE"),
    ] = None
    data: Annotated[str | None, _text(TABLES, "One table of all sites instead.", "FILE")] = None
    site_column: Annotated[
        str | None, _text(TABLES, "Its column that says whose a row is.", "COLUMN")
    ] = None
    features: Annotated[
        list[str] | None,
        _text(
            TABLES, "Columns to predict from; default all that are left. Repeatable.", "NAME,..."
        ),
    ] = None
    drop: Annotated[
        list[str] | None, _text(TABLES, "Columns that are no features. Repeatable.", "NAME,...")
    ] = None
    categories: Annotated[
        list[str] | None,
        _text(
            TABLES,
            "Columns of categories: each becomes columns of 0 and 1, one for every value but the "
            "first, or but VALUE. Repeatable.",
            "NAME[=VALUE],...",
        ),
    ] = None
    weight: Annotated[str | None, _text(TABLES, "Column of sample weights.", "COLUMN")] = None
    impute: Annotated[
        str | None, _text(TABLES, "'mean': where values are missing, the mean of all sites.", "HOW")
    ] = None

    family: Annotated[
        str | None,
        _text(
            MODEL,
            "gaussian, binomial, multinomial, poisson, gamma, huber or cox.",
            "NAME",
        ),
    ] = None
    target: Annotated[str | None, _text(MODEL, "Column to predict.", "COLUMN")] = None
    time: Annotated[str | None, _text(MODEL, "Of cox: column of times.", "COLUMN")] = None
    event: Annotated[
        str | None, _text(MODEL, "Of cox: column that is 1 for an event, 0 for censored.", "COLUMN")
    ] = None
    offset: Annotated[
        str | None, _text(MODEL, "Column added to the linear predictor.", "COLUMN")
    ] = None
    exposure: Annotated[
        str | None,
        _text(MODEL, "Of poisson and gamma: column whose logarithm is the offset.", "COLUMN"),
    ] = None
    intercept: Annotated[
        bool, _option(MODEL, "With an intercept; default.", "--intercept/--no-intercept")
    ] = True
    positive: Annotated[bool, _option(MODEL, "No negative coefficients.", "--positive")] = False

    penalty: Annotated[
        str | None,
        _text(
            PENALTY,
            "l1, l2, elasticnet, none, mcp, scad, or a regulariser with its numbers, e.g. "
            "mcp:0.1,3; default l1.",
            "NAME",
        ),
    ] = None
    alpha: Annotated[
        float | None,
        _number(PENALTY, "Its weight; without it cross-validation chooses."),
    ] = None
    l1_ratio: Annotated[
        str | None,
        _text(
            PENALTY, "Of elasticnet: 1 is l1, 0 is l2; several for --cv; default 0.5.", "FLOAT,..."
        ),
    ] = None
    standardize: Annotated[
        bool,
        _option(
            PENALTY,
            "It counts coefficients of features with standard deviation 1; default.",
            "--standardize/--no-standardize",
        ),
    ] = True
    unpenalized: Annotated[
        list[str] | None, _text(PENALTY, "Features that it leaves out. Repeatable.", "NAME,...")
    ] = None

    cv: Annotated[int | None, _whole(FIT, "Folds of cross-validation; default 10.")] = None
    alphas: Annotated[int, _whole(FIT, "Alphas to choose from; default 100.")] = 100
    scoring: Annotated[
        str | None,
        _text(
            FIT,
            "What chooses: deviance; auc, accuracy; mse, mae, r2; c_index; default deviance.",
            "NAME",
        ),
    ] = None
    select: Annotated[
        str | None,
        _text(FIT, "best, or 1se: the largest alpha within a standard error; default best.", "HOW"),
    ] = None
    seed: Annotated[int, _whole(FIT, "Of the folds; default 0.", seed_number)] = 0
    tol: Annotated[
        float | None, _number(FIT, "Stationarity at which a fit ends, relative; default 1e-9.")
    ] = None
    max_iter: Annotated[int, _whole(FIT, "Most rounds for one alpha; default 100.")] = 100
    quiet: Annotated[bool, _option(FIT, "Print errors and warnings only.", "--quiet")] = False

    def arguments(self) -> list[str]:
        """These settings as words of a command line."""
        turned_off = {"intercept": "--no-intercept", "standardize": "--no-standardize"}
        words = [word for name, word in turned_off.items() if not getattr(self, name)]
        return [
            word for word in as_words(self) if word not in ("--intercept", "--standardize")
        ] + words


Out = Annotated[
    Path | None,
    typer.Option(help="Folder for coefficients, model, picture and page.", metavar="DIR"),
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Write into a folder that holds files.")
]


def fit(
    settings: FitSettings,
    name: Annotated[str, typer.Argument(help="What to call the fit.", metavar="NAME")],
    out: Out = None,
    overwrite: Overwrite = False,
) -> int:
    """Fit a generalised linear model to tables of several sites.

    It equals the fit to the pooled table: sites send sums over their rows.
    """
    from compositefl.cli.fit import run_fit

    return run_fit(name, settings, out, overwrite)


def predict(
    model: Annotated[Path, typer.Argument(help="The model.json that fit wrote.", metavar="MODEL")],
    data: Annotated[Path, typer.Argument(help="A table: CSV, Parquet or NPZ.", metavar="FILE")],
    out: Annotated[
        Path | None,
        typer.Option(help="The predictions, a CSV file; default stdout.", metavar="FILE"),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="Columns to repeat beside them. Repeatable.", metavar="NAME,..."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace a file that is there.")
    ] = False,
) -> int:
    """Predict a table's rows with a model that fit wrote."""
    from compositefl.cli.predict import run_predict

    return run_predict(model, data, out, keep or [], overwrite)


def register(app: typer.Typer, guarded: Callable[[Command], Command]) -> None:
    """Add the commands to the command line `app`."""
    app.command("fit", cls=HelpByPanel)(guarded(with_settings(fit, FitSettings)))
    app.command("predict")(guarded(predict))
