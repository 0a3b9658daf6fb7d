"""The command line called in this process, which saves the start of Python and of JAX."""

from typing import NamedTuple

import pytest

from compositefl.cli import main
from tests.cli.cli_words import SMALL, STEPS


class Answer(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys):
    def call(*words):
        capsys.readouterr()
        code = main([str(word) for word in words])
        return Answer(code, *capsys.readouterr())

    return call


@pytest.fixture
def run(cli):
    """`compositefl run` on the small problem; later options win over earlier ones."""
    return lambda *words: cli("run", *SMALL, *STEPS, *words)
