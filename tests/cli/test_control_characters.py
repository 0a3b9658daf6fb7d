"""What stands in tables and comes from other machines is written out, not obeyed, by a terminal."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from compositefl.cli.watching import Watching, picture
from compositefl.cli.wording import plain, plain_lines, say
from compositefl.deployment.progress import Progress

RED = "\x1b[31mred"


def control(text):
    return [c for c in text if c != "\n" and not c.isprintable()]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (RED, r"\x1b[31mred"),
        ("a\x9b2Jb", r"a\x9b2Jb"),
        ("a\rb\tc\nd", r"a\rb\tc\nd"),
        ("a\u2028b", r"a\u2028b"),
        ("Größe 年齢\u3000ß", "Größe 年齢\u3000ß"),
        (3, "3"),
    ],
)
def test_control_characters_are_written_out(given, shown):
    assert plain(given) == shown


def test_lines_stay_lines(capsys):
    assert plain_lines(f"a\n{RED}\n") == "a\n\\x1b[31mred\n"
    say(f"error: {RED}\nmore")
    assert capsys.readouterr().err == "error: \\x1b[31mred more\n"


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 2))
    classes = np.where(x[:, 0] + rng.normal(size=40) > 0, f"yes {RED}", "no")
    frame = pd.DataFrame({RED: x[:, 0], "b\x07": x[:, 1], f"y{RED}": classes})
    frame.to_csv("t.csv", index=False)
    return ["--data", "t.csv", "--target", f"y{RED}"]


@pytest.mark.filterwarnings("ignore")
def test_fit_and_predict(cli, table, monkeypatch):
    made = cli("fit", "r", *table, "--family", "binomial", "--penalty", "none", "--out", "out")
    assert made.code == 0 and not control(made.out + made.err)
    assert r"\x1b[31mred" in made.out and r"yes \x1b[31mred" in made.out and r"b\x07" in made.out
    told = cli("predict", "out/model.json", "t.csv", "--out", "p.csv")
    assert told.code == 0 and r"\x1b[31mred" in told.out and not control(told.out + told.err)
    # In a file or a pipe the names are what they are, on a terminal they are written out.
    assert RED in cli("predict", "out/model.json", "t.csv").out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    shown = cli("predict", "out/model.json", "t.csv").out
    assert not control(shown) and shown.count("\n") == 41


def test_errors(cli, table):
    refused = cli("fit", "r", *table, "--family", "gaussian", "--alpha", "0.01")
    assert refused.code == 2 and r"\x1b[31mred" in refused.err and not control(refused.err)


def test_reasons_of_sites():
    view = Watching("run", live=False)
    view.console = Console(file=io.StringIO(), force_terminal=False, width=80)
    progress = Progress.of(("north",))
    about = {"event": "failure", "round": 1, "call": "hello"}
    events = [about | {"site": "north", "reason": f"its data {RED}"}]
    view.show(progress, events)
    events.append({"event": "joined", "round": 1, "site": f"[blink]e{RED}"})  # a server lies
    progress.read("".join(json.dumps({"time": 1.0, **event}) + "\n" for event in events))
    view.console.print(picture("run", progress))
    told = view.console.file.getvalue()
    assert r"[blink]e\x1b[31mred" in told
    assert told.count(r"its data \x1b[31mred") == 2 and not control(told)


def test_a_result_that_a_server_made_up(tmp_path, capsys):
    """The attack: names and words of a result moved the administrator's cursor."""
    from compositefl.cli.deploy import _show

    about = {"rounds_run": 3, "stopped": f"rounds {RED}", "rounds_of_sites": {f"a{RED}": 3}}
    (tmp_path / "config.json").write_text(json.dumps(about))
    (tmp_path / f"b{RED}").touch()
    assert _show(tmp_path) == 0
    told = capsys.readouterr()
    assert told.out.count(r"\x1b[31mred") == 3 and not control(told.out + told.err)


def test_jobs_that_a_server_names(capsys):
    pytest.importorskip("nvflare", reason="needs pip install 'compositefl[deploy]'")
    from pathlib import Path

    from compositefl.cli.wording import tell
    from compositefl.deployment.flare_admin import Admin

    Admin(Path("kit"), tell)._told("job", "abort", RED)
    assert not control(capsys.readouterr().out)
