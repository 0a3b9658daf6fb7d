"""The code of README.md and docs/glm.md runs as it is printed."""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from compositefl.cli import main

HERE = Path(__file__).parents[2]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (HERE / page).read_text(), re.M | re.S)


def run(code, names, page):
    exec(compile(code, page, "exec"), names)


def test_tables_at_several_sites(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    run(blocks("README.md", "python")[0], names, "README.md")
    model = names["model"]
    assert model.score(names["X"], names["y"]) > 0.95
    assert len(model.sites_) == 5 and 0 < np.sum(model.coef_ != 0) < 30
    assert "odds ratio" in capsys.readouterr().out


def test_any_model_any_method(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    first, own = blocks("README.md", "python")[1:]
    names = {}
    run(first, names, "README.md")
    last = names["result"].history.iloc[-1]
    assert last.accuracy > 0.9 and last.zeros > 0.2
    assert (tmp_path / "out" / "history.csv").exists()
    x, y = np.ones((8, 64), np.float32), np.arange(8) % 2
    module = torch.nn.Linear(64, 2)
    given = {
        "loss": lambda w, batch: ((batch[0] @ w - batch[1]) ** 2).mean(),
        "params": np.zeros(64, np.float32),
        "clients": [(x, y), (x, y)],
        "module": module,
    }
    run(own, names | given, "README.md")


def test_the_page_of_linear_models(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in blocks("docs/glm.md", "python"):
        run(code, names, "docs/glm.md")
    assert "hazard ratio" in capsys.readouterr().out
    assert abs(names["sparse"].n_iter_ - 10) <= 1  # the page says 10; another BLAS may need 1 more
    assert names["age_stays"].coef_[0, 0] != 0
    for block in blocks("docs/glm.md", "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line)
            assert words[0] == "compositefl"
            assert main(words[1:]) == 0, capsys.readouterr().err
    files = {path.name for path in (tmp_path / "tumours").iterdir()}
    assert files >= {"coefficients.csv", "model.json", "path.csv", "plot.png"}
