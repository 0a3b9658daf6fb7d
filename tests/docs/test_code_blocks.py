"""Every code block of README and docs runs, or is checked: no page speaks of what is not there.

Rounds and paths are cut short: the blocks must run, what comes out of them is tested elsewhere.
"""

import re
import sys
import textwrap
import tomllib
from pathlib import Path

import numpy as np
import pytest

import compositefl as cfl

ROOT = Path(__file__).parents[2]
ROUNDS, WEIGHTS = 2, 3
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# Their blocks are modules, tests of modules, or make files for commands; these tests run them.
ELSEWHERE = {
    "README.md": "tests/cli/test_readme.py",
    "glm.md": "tests/examples/test_pages.py",
    "adding-an-algorithm.md": "tests/cli/test_own_modules.py",
    "adding-a-regularizer.md": "tests/regularizers/test_documented_example.py",
}

# Several machines, or a process in which JAX has not started: compiled, not run.
ONLY_COMPILED = ("clusters.md",)


def small_problem():
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(8, 3)), rng.normal(size=8)) for _ in range(4)]
    return cfl.models.linear_regression(3, intercept=True).problem(clients)


def of_running():
    """What the page takes for granted."""
    algorithm = cfl.FedNMap(gamma=1.0, local_steps=2, local_lr=0.1)
    problem, phi = small_problem(), cfl.L1(1e-3)
    result = cfl.minimize(problem, phi, algorithm, rounds=ROUNDS, progress=False)
    names = {"problem": problem, "phi": phi, "algorithm": algorithm, "result": result}
    rng = np.random.default_rng(0)
    rows = {"x": rng.normal(size=(360, 3)), "y": rng.normal(size=360)}
    params = {"kernel": np.zeros(3, np.float32), "bias": np.zeros((), np.float32)}
    names |= rows | {"offsets": np.arange(0, 361, 3), "params": params, "loss": squared_error}
    return names


def squared_error(params, batch):
    x, y = batch
    return ((x @ params["kernel"] + params["bias"] - y) ** 2).mean()


GRANTED = {"running.md": of_running, "data.md": dict}


def blocks(page, *languages):
    found = BLOCK.findall(page.read_text(encoding="utf-8"))
    return [textwrap.dedent(code) for language, code in found if language in languages]


def with_(pages, *languages):
    chosen = [page for page in pages if blocks(page, *languages)]
    return pytest.mark.parametrize("page", chosen, ids=lambda p: str(p.relative_to(ROOT)))


@pytest.fixture
def short_runs(monkeypatch):
    """minimize and its like with a few rounds."""
    for name in ("minimize", "sweep", "path", "tune"):
        whole = getattr(cfl, name)

        def short(*args, whole=whole, **options):
            options |= {"rounds": min(ROUNDS, options["rounds"])} if "rounds" in options else {}
            args = [min(WEIGHTS, a) if isinstance(a, int) else a for a in args]  # of a path
            return whole(*args, **{**options, "progress": False})

        monkeypatch.setattr(cfl, name, short)


@with_([page for page in PAGES if page.name not in ELSEWHERE], "python")
@pytest.mark.filterwarnings("ignore::compositefl.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_python_blocks_run(page, short_runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page", "cfl": cfl, **GRANTED.get(page.name, dict)()}
    for number, code in enumerate(blocks(page, "python")):
        compiled = compile(code, f"{page.name}, block {number + 1}", "exec")
        if page.name not in ONLY_COMPILED:
            exec(compiled, names)


def told(page, capsys):
    """What the page's Python blocks print, run as they are."""
    names = {"__name__": "page"}
    for code in blocks(ROOT / "docs" / page, "python")[:3]:
        exec(compile(code, page, "exec"), names)
    return capsys.readouterr().out.splitlines()


def test_five_minutes_with_tables_end_at_the_pooled_fit(capsys):
    text = (ROOT / "docs" / "five-minutes-tables.md").read_text()
    (said,) = re.findall(r"# below (\S+)", text)
    assert float(told("five-minutes-tables.md", capsys)[-1]) < float(said)


@pytest.mark.filterwarnings("ignore::compositefl.ConvergenceWarning")
def test_the_page_on_export_makes_a_network_smaller(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    left, whole = re.findall(r"[\d,]+", told("export.md", capsys)[0])[:2]
    assert int(left.replace(",", "")) < int(whole.replace(",", "")) / 2


def test_the_other_pages_are_run_elsewhere():
    for name, test in ELSEWHERE.items():
        assert name in (ROOT / test).read_text()


@with_(PAGES, "toml")
def test_toml_blocks_are_toml(page):
    for code in blocks(page, "toml"):
        assert tomllib.loads(code)


def commands(page):
    """(words of the command, its options) of every `compositefl` line in the shell blocks."""
    text = "\n".join(blocks(page, "sh", "bash", "console")).replace("\\\n", " ")
    for line in text.splitlines():
        line = line.split("#")[0].removeprefix("$ ").strip()
        if line.startswith("compositefl "):
            words = line.split()[1:]
            options = [word.split("=")[0] for word in words if word.startswith("--")]
            plain = [word for word in words if re.fullmatch(r"[a-z][a-z-]*", word)]
            yield plain, options


@with_(PAGES, "sh", "bash", "console")
def test_commands_and_options_of_shell_blocks_exist(page):
    from typer.main import get_command

    from compositefl.cli.app import app

    for plain, options in commands(page):
        command = get_command(app)
        for word in plain:
            if not hasattr(command, "commands"):
                break
            assert word in command.commands, f"compositefl {' '.join(plain)}"
            command = command.commands[word]
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
        known |= {"--help", "--version"}
        assert set(options) <= known, f"compositefl {' '.join(plain)}: {set(options) - known}"


def test_there_are_blocks_to_run():
    assert sum(len(blocks(page, "python")) for page in PAGES) > 15
    assert sys.version_info >= (3, 11)
