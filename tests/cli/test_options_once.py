"""An option is declared once, in `Options`; minimize and the command line have what it has."""

import dataclasses
import inspect

import pytest

from compositefl import minimize
from compositefl.algorithms import ALGORITHMS
from compositefl.cli import wording
from compositefl.cli.settings import DEFAULTS, ELSEWHERE, Settings
from compositefl.cli.wording import as_options
from compositefl.core.errors import REMEDIES, CompositeFLError, ProcessLost, unknown_name
from compositefl.solve.options import Options, options_fields

BEYOND = {"trials", "constants"}  # of minimize: not options of one run


def test_minimize_has_the_options():
    keywords = {
        p.name: p
        for p in inspect.signature(minimize).parameters.values()
        if p.kind is p.KEYWORD_ONLY
    }
    fields = options_fields()
    assert set(keywords) == set(fields) | BEYOND
    for name, field in fields.items():
        missing = field.default is dataclasses.MISSING
        assert keywords[name].default == (inspect.Parameter.empty if missing else field.default)
        assert f"{name}" in minimize.__doc__ or name in ("rounds", "dtype", "progress")


def test_the_command_line_has_the_options():
    settings = {f.name: f for f in dataclasses.fields(Settings)}
    for name, field in options_fields().items():
        if name in ELSEWHERE:
            continue
        default = DEFAULTS.get(name, field.default)
        given = settings[name].default
        assert given == default or given == str(default)
        assert field.help.endswith(".")


def test_fields_of_an_option():
    field = options_fields()["batch_size"]
    assert (field.types, field.default) == ((int, None), None)
    assert options_fields()["rounds"].default is dataclasses.MISSING
    assert list(options_fields()) == [f.name for f in dataclasses.fields(Options)]


class Fielded(CompositeFLError):
    """An error that carries what it is about."""

    def __init__(self, text, parameter, value):
        super().__init__(text)
        self.parameter, self.value = parameter, value


@pytest.mark.parametrize(
    ("text", "parameter", "value", "said"),
    [
        ("local_lr=-1.0 must be > 0", "local_lr", -1.0, "--local-lr -1.0 must be > 0"),
        ("dtype='f' must be one", "dtype", "f", "--dtype f must be one"),
        ("weight=-1.0 must be", "weight", -1.0, "weight=-1.0 must be"),  # no option of a run
        ("resume=True needs", "resume", True, "--resume needs"),
        ("a=1 and b: seed=3", "seed", 3, "a=1 and b: seed=3"),
    ],
)
def test_errors_are_worded_from_their_fields(text, parameter, value, said):
    assert as_options(Fielded(text, parameter, value)) == said


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            CompositeFLError("folder=/no is not a folder", parameter="folder", value="/no"),
            "--data-folder /no is not a folder",
        ),
        (
            CompositeFLError("put it here, ", parameter="folder", remedy="folder"),
            "put it here, or into a folder named by --data-folder or $COMPOSITEFL_DATA",
        ),
        (
            CompositeFLError("leaf 'a/b' is bad; ", parameter="leaf", value="a/b", remedy="leaf"),
            "leaf 'a/b' is bad; leave it out with --unpenalized 'a/b'",
        ),
        (
            CompositeFLError(
                "dropout=0.1, replacement=True: no",
                parameter="dropout",
                value=0.1,
                also={"replacement": True},
            ),
            "--dropout 0.1 --replacement: no",
        ),
        (
            ProcessLost("gone: ", parameter="checkpoint", value="a b", remedy="resume elsewhere"),
            "gone: --checkpoint a b --resume goes on, with any number of them",
        ),
        (CompositeFLError("y has NaN", parameter="y"), "the target has NaN"),
        (CompositeFLError("X has NaN", parameter="X"), "the tables have NaN"),
        (unknown_name("model", "mpl", ["mlp"]), "--model mpl: unknown model 'mpl'; did you mean"),
        # Without fields a message stays as it is, whatever it looks like.
        (CompositeFLError("rounds=0 must be, composite='x'"), "rounds=0 must be, composite='x'"),
    ],
)
def test_words_for_the_command_line(error, said):
    assert as_options(error).startswith(said)


def test_every_remedy_has_words_for_the_command_line():
    assert set(wording.REMEDIES) == set(REMEDIES)


def test_every_formula_has_words_for_the_command_line():
    formulas = {getattr(cls, "eta_hat_formula", "") for cls in ALGORITHMS.values()} - {"", "eta"}
    assert formulas <= set(wording.FORMULAS)
