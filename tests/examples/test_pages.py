"""The code and the commands of docs/glm.md run as they are printed, one after the other."""

import re
import shlex
from pathlib import Path

from compositefl.cli import main

HERE = Path(__file__).parents[2]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (HERE / page).read_text(), re.M | re.S)


def test_the_page_of_linear_models(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    for code in blocks("docs/glm.md", "python"):
        exec(compile(code, "docs/glm.md", "exec"), names)
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
