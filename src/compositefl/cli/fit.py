"""`compositefl fit`: a generalised linear model of tables at several sites."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from compositefl.cli import fit_files, fit_tables
from compositefl.cli.fit_options import FitSettings
from compositefl.cli.folder import check_folder, fill_folder
from compositefl.cli.settings import number
from compositefl.cli.wording import plain_warnings, say
from compositefl.core.errors import CompositeFLError, unknown_name
from compositefl.data.categories import coded_names
from compositefl.glm.families import family as made
from compositefl.glm.path import Progress
from compositefl.glm.scores import check_score
from compositefl.linear_model.base import GeneralizedLinearModel
from compositefl.linear_model.by_family import BY_FAMILY
from compositefl.linear_model.cross_validation import CrossValidated
from compositefl.linear_model.penalties import NONCONVEX, RATIOS
from compositefl.report import page

DONE, NOT_CONVERGED = 0, 1  # exit codes
FOLDS = 10
EVERY = 5.0  # seconds between two lines of progress in a log
ALSO_CALLED = {"lasso": "l1", "ridge": "l2", "elastic-net": "elasticnet", "no": "none"}


def run_fit(name: str, settings: FitSettings, out: Path | None, overwrite: bool) -> int:
    """Fit, show and write; returns the exit code."""
    family = fit_tables.family_of(settings)
    model = build(settings, family)
    _check(model, settings, family)
    if out is not None:
        check_folder(out, overwrite)
    data = fit_tables.read(settings, family)
    _leave_out(model, settings, data)
    if not settings.quiet:
        say(fit_tables.summary(data, name, family))
    with plain_warnings(name), _one_line(), _progress(model, not settings.quiet):
        model.fit(data.x, data.y, data.sites, data.weight, data.offset)
    if not settings.quiet:
        fit_files.show(model)
    if out is not None:
        written = fill_folder(
            out, lambda folder: fit_files.write(folder, name, settings, family, model, data)
        )
        if not settings.quiet:
            print(f"written to {out}: {', '.join(written)}")
            if not page.available():
                print("for a page with curves to zoom into: pip install 'compositefl[report]'")
    elif not settings.quiet:
        print("nothing was written; --out DIR keeps coefficients, model and picture")
    return DONE if model.converged_ else NOT_CONVERGED


def build(settings: FitSettings, family: str) -> GeneralizedLinearModel:
    """The estimator that the options ask for; combinations that mean nothing are refused."""
    penalty, alpha = (
        settings.penalty or ("elasticnet" if settings.l1_ratio else "l1"),
        settings.alpha,
    )
    own_numbers = ":" in penalty
    if settings.l1_ratio is not None and penalty != "elasticnet":
        raise CompositeFLError(
            f"--l1-ratio {settings.l1_ratio} does not go with --penalty {penalty}; it is of "
            "elasticnet"
        )
    if alpha is not None and (penalty == "none" or own_numbers):
        has = "no weight" if penalty == "none" else "its own numbers"
        raise CompositeFLError(f"--alpha {alpha:g} does not go here: --penalty {penalty} has {has}")
    crossed = settings.cv is not None or (
        alpha is None and penalty != "none" and not own_numbers and family != "huber"
    )
    if crossed:
        return _cross_validated(settings, family, penalty)
    for option in ("scoring", "select"):
        if getattr(settings, option) is not None:
            raise CompositeFLError(
                f"--{option} {getattr(settings, option)} goes with cross-validation, --cv FOLDS"
            )
    if family == "huber" and alpha is None and penalty != "none" and not own_numbers:
        raise CompositeFLError(
            "--family huber needs --alpha FLOAT or --penalty none: it has no cross-validation"
        )
    shared = _shared(settings, penalty)
    shared["alpha"] = 0.0 if alpha is None else alpha
    if isinstance(shared.get("l1_ratio"), list):
        raise CompositeFLError(
            f"--l1-ratio {settings.l1_ratio}: only cross-validation, --cv FOLDS, chooses among "
            "several"
        )
    return BY_FAMILY[family][0](**shared)


def _check(model: GeneralizedLinearModel, settings: FitSettings, family: str) -> None:
    """What can be known to be wrong before a table is read."""
    if settings.impute not in (None, "mean"):
        raise CompositeFLError(f"--impute {settings.impute} must be mean")
    with _one_line():
        model._check_parameters()
        if isinstance(model, CrossValidated):
            model._numbers()
            check_score(made(family), model.scoring, 3 if family == "multinomial" else 2)


def _cross_validated(settings: FitSettings, family: str, penalty: str) -> CrossValidated:
    cls = BY_FAMILY[family][1]
    if settings.alpha is not None:
        raise CompositeFLError(
            f"--alpha {settings.alpha:g} does not go with --cv {settings.cv}, which chooses alpha"
        )
    if penalty == "none":
        raise CompositeFLError(f"--cv {settings.cv} chooses alpha; --penalty none has none")
    if cls is None:
        raise CompositeFLError(f"--cv {settings.cv}: --family {family} has no cross-validation")
    shared = _shared(settings, penalty)
    shared.setdefault("tol", 1e-8)
    return cls(
        **shared,
        alphas=settings.alphas,
        cv=FOLDS if settings.cv is None else settings.cv,
        scoring=settings.scoring or "deviance",
        select=settings.select or "best",
        random_state=settings.seed,
    )


def _shared(settings: FitSettings, penalty: str) -> dict[str, Any]:
    """Parameters that all estimators have."""
    made: dict[str, Any] = {
        "fit_intercept": settings.intercept,
        "standardize": settings.standardize,
        "positive": settings.positive,
        "impute": settings.impute,
        "max_iter": settings.max_iter,
    }
    if settings.tol is not None:
        made["tol"] = settings.tol
    if penalty == "elasticnet":
        made["l1_ratio"] = _ratios(settings.l1_ratio or "0.5")
    elif penalty in RATIOS or penalty == "none":
        made["l1_ratio"] = RATIOS.get(penalty, 0.0)
    elif penalty in NONCONVEX or ":" in penalty:
        made["penalty"] = penalty
    elif penalty in ALSO_CALLED:
        raise CompositeFLError(f"--penalty {penalty} is called {ALSO_CALLED[penalty]} here")
    else:
        known = ", ".join((*RATIOS, "elasticnet", "none", *NONCONVEX))
        raise CompositeFLError(
            f"--penalty {penalty} must be one of {known}, or a regulariser with its numbers, such "
            "as mcp:0.1,3 (compositefl list regularizers)"
        )
    return made


def _ratios(text: str) -> float | list[float]:
    import typer

    try:
        found = [number(part) for part in text.split(",")]
    except typer.BadParameter as error:
        raise CompositeFLError(f"--l1-ratio {text}: {error}") from None
    for ratio in found:
        if not 0 <= ratio <= 1:
            raise CompositeFLError(f"--l1-ratio {ratio:g} must be in [0, 1]")
    return found[0] if len(found) == 1 else found


def _leave_out(
    model: GeneralizedLinearModel, settings: FitSettings, data: fit_tables.Tables
) -> None:
    """Penalty factors of 0 for --unpenalized."""
    names, features = (
        coded_names(fit_tables.split(settings.unpenalized), data.categories),
        data.features,
    )
    for name in names:
        if name not in features:
            raise CompositeFLError(
                f"--unpenalized {name}: {unknown_name('feature', name, features)}"
            )
    if names:
        model.penalty_factor = np.array([float(name not in names) for name in features])


@contextmanager
def _one_line() -> Iterator[None]:
    """Errors of scikit-learn as one line."""
    try:
        yield
    except CompositeFLError:
        raise  # `cli.wording` knows these
    except ValueError as error:
        raise CompositeFLError(" ".join(str(error).split())) from error


@contextmanager
def _progress(model: Any, show: bool) -> Iterator[None]:
    """A bar over the alphas on a terminal, now and then a line in a log."""
    if not show:
        yield
        return
    terminal = sys.stderr.isatty()
    told = time.monotonic()
    columns = (
        TextColumn("round {task.fields[round]}"),
        BarColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Bar(*columns, console=Console(stderr=True), transient=True, disable=not terminal) as bar:
        task = bar.add_task("", total=None, round=0, note="")

        def report(now: Progress) -> None:
            nonlocal told
            note = progress_note(now)
            bar.update(
                task, completed=now.solved, total=now.alphas or None, round=now.rounds, note=note
            )
            if not terminal and time.monotonic() - told > EVERY:
                told = time.monotonic()
                say(f"round {now.rounds}: {note}")

        model.on_round = report
        try:
            yield
        finally:
            del model.on_round


def progress_note(now: Progress) -> str:
    """How far a fit is, in a few words."""
    if not now.alphas:
        return "the model without features"
    if now.alphas == 1:
        return "" if np.isnan(now.alpha) else f"alpha {now.alpha:.4g}"
    return f"alpha {now.alpha:.4g}, {now.solved} of {now.alphas} done"
