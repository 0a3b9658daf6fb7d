"""One's own class without @component gets one line, not a traceback."""

import sys

import pytest

OWN = """
import compositefl as cfl

class MyL1(cfl.L1):
    pass

class MyMethod(cfl.FedAvg):
    pass
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "lacking.py").write_text(OWN)
    yield
    sys.modules.pop("lacking", None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--regularizer lacking:MyL1:0.1", "--regularizer lacking:MyL1:0.1: the class MyL1"),
        (
            "--regularizer lacking:MyL1:0.1 --unpenalized */bias",  # inside ByName
            "--regularizer lacking:MyL1:0.1: the class MyL1 lacks @cfl.component",
        ),
        (
            "--regularizer zero --algorithm lacking:MyMethod",
            "--algorithm lacking:MyMethod: the class MyMethod lacks @cfl.component",
        ),
    ],
)
def test_a_class_without_component(words, said, here, run):
    answer = run(*words.split())
    assert answer.code == 2
    assert answer.err.startswith(f"error: {said}") and answer.err.count("\n") == 1, answer.err
