"""The command line called in this process, which saves the start of Python and of JAX."""

import shlex
from typing import NamedTuple

import pytest

from compositefl.cli import main

# A problem that runs in a moment. Tests that keep to it share its compiled programs.
SMALL = shlex.split(
    "--hidden 4 --clients 4 --batch-size 8 --regularizer l1:0.01 --rounds 4 --eval-every 2"
)
STEPS = ["--local-steps", "2", "--local-lr", "0.1"]


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
