"""What the README prints runs as it stands there, and its page of settings is complete."""

import inspect
import re
import shlex
import tomllib
from functools import partial
from pathlib import Path

import pytest

import compositefl as cfl
from compositefl.configuration import TESTED_JAXLIB
from tests.cli.cli_words import SMALL

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
QUICK = {"run": ["--trials", "1"], "compare": [], "tune": ["--budget", "1"]}


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", README, re.DOTALL)


def test_python(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cfl, "minimize", partial(_few_rounds, cfl.minimize))
    names = {}
    for block in blocks("python"):
        exec(compile(block, "README.md", "exec"), names)
    assert names["result"].rounds == 2 and (tmp_path / "out" / "history.csv").exists()
    assert names["problem"].test is not None


def _few_rounds(minimize, *given, **options):
    return minimize(*given, **options | {"rounds": 2})


def test_command_line(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = "".join(blocks("sh")).replace("\\\n", " ").splitlines()
    commands = [shlex.split(line, comments=True) for line in lines]
    commands = [words[1:] for words in commands if words[:1] == ["compositefl"]]
    assert {words[0] for words in commands} >= {*QUICK, "list", "reproduce", "deploy"}
    for words in commands:
        if words[0] in (
            "deploy",
            "fit",
            "list",
        ):  # tests/deployment/network, test_fit, test_cli_list
            continue
        small = [*SMALL, "--quiet", *QUICK[words[0]]] if words[0] in QUICK else []
        answer = cli(*words, *small)
        assert answer.code == 0, (words, answer.err)
    assert (tmp_path / "plots" / "plot.png").exists()


def test_every_setting_is_on_its_page():
    page = (ROOT / "docs" / "configuration.md").read_text()
    told = set(re.findall("[A-Z][A-Z_]+", page))
    files = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py"), ROOT / "Makefile"]
    texts = [file.read_text() for file in files]
    ours = {name for text in texts for name in re.findall("COMPOSITEFL_[A-Z_]+", text)}
    # Others: names in capitals in the files of the package that look at the environment.
    reading = [file.read_text() for file in (ROOT / "src").rglob("*.py")]
    reading = [text for text in reading if "environ" in text]
    others = {name for text in reading for name in re.findall('"([A-Z][A-Z_]+)"', text)}
    assert {"CC", "NPROC", "SLURM_STEP_NUM_TASKS"} <= others
    assert ours | others <= told
    arguments = set(inspect.signature(cfl.configure).parameters)
    assert arguments <= set(re.findall("`([a-z_]+)`", page))


def test_what_is_said_twice_agrees():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"version: {project['version']}\n" in (ROOT / "CITATION.cff").read_text()
    (jax,) = [words for words in project["dependencies"] if words.startswith("jax>")]
    first, last = re.fullmatch(r"jax>=0\.(\d+),<0\.(\d+)", jax).groups()
    assert list(TESTED_JAXLIB) == [f"0.{minor}" for minor in range(int(first), int(last))]
