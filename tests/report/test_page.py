"""The page without a browser: whole, self-contained, and with charts that Plotly takes."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from compositefl.core.errors import CompositeFLError
from compositefl.report import page, sections
from compositefl.report.overview import data_of_clients, folder_sections
from compositefl.report.panels import curves
from tests.report.pages import everything, history, shown

VOID = {"meta", "link", "img", "br"}


class Reader(HTMLParser):
    """Tags that are closed as they were opened, charts, addresses and words of a page."""

    def __init__(self, text):
        super().__init__()
        self.open, self.charts, self.addresses, self.words, self.ids = [], [], [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.addresses += [found[name] for name in ("src", "href") if name in found]
        self.ids += [found["id"]] if "id" in found else []
        if tag not in VOID:
            self.open.append((tag, found))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag

    def handle_data(self, data):
        tags = [tag for tag, _ in self.open]
        if tags[-1:] == ["script"] and self.open[-1][1].get("type") == "application/json":
            self.charts.append((self.open[-2][1]["data-kind"], json.loads(data)))
        elif "script" not in tags and "style" not in tags:
            self.words.append(data)


@pytest.fixture(scope="module")
def whole():
    text = page.page("A <title>", everything())
    return text, Reader(text)


def test_the_page_is_whole_and_needs_no_network(whole):
    text, read = whole
    assert not read.open and len(set(read.ids)) == len(read.ids)
    assert all(address.startswith("data:") for address in read.addresses)
    without_plotly = re.sub(r'<script id="plotly".*?</script>', "", text, flags=re.S)
    assert "http" not in without_plotly
    assert 1e6 < len(text) < 3e6


def test_words_of_the_user_stay_words(whole):
    text, read = whole
    words = "".join(read.words)
    assert "A <title>" in words and "ZA1 <b>" in words and "still falling & so on" in words
    assert "<b>" not in re.sub(r"<script.*?</script>", "", text, flags=re.S)


def test_every_chart_is_one_that_plotly_knows(whole):
    """Plotly's own checks: a misspelt property raises."""
    import plotly.graph_objects as go

    figures = [content for kind, content in whole[1].charts if kind == "figure"]
    assert len(figures) == 8
    for content in figures:
        go.Figure(content)
    with pytest.raises(ValueError):
        go.Figure({"data": [{"type": "bar", "colour": "red"}]})


def test_curves_are_means_and_ranges_of_the_trials():
    section = curves({run.label: run.history for run in shown()}, gamma=2.0)
    ((kind, content),) = Reader(section.body).charts
    assert kind == "curves" and content["reference"] == "FedNMap"
    psi = content["runs"][0]["y"]["psi"]
    assert psi["mean"][0] == pytest.approx(2.1) and psi["low"][0] == 2 and psi["high"][0] == 2.2
    assert content["runs"][2]["y"]["psi"]["mean"][-1] is None  # infinity
    assert content["runs"][0]["x"]["bytes_up"][-1] == 20  # MB
    headings = [m["heading"] for m in content["measures"]]
    assert headings[:2] == ["Natural residual² (γ = 2)", "Objective ψ = f + φ"]


def test_long_histories_are_thinned():
    rows = pd.DataFrame({"round": range(5000), "trial": 0, "psi": 1.0, "natural_residual_sq": 1.0})
    ((_, content),) = Reader(curves({"A": rows}).body).charts
    along = content["runs"][0]["x"]["round"]
    assert len(along) == 1000 and along[0] == 0 and along[-1] == 4999


def test_an_image_has_the_signs_of_the_array():
    import base64
    import io

    from PIL import Image

    matrix = np.array([[1.0, 0.0, -2.0], [0.0, 0.0, 3.0]])
    (address,) = re.findall(
        r'src="data:image/png;base64,(.*?)"', sections.sparsity({"w": matrix}).body
    )
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(address))).convert("RGBA"))
    assert np.array_equal(pixels[:, :, 3] > 0, matrix != 0)
    assert tuple(pixels[0, 0, :3]) == (0x00, 0x72, 0xB2) == tuple(pixels[1, 2, :3])
    assert tuple(pixels[0, 2, :3]) == (0xD5, 0x5E, 0x00)


def test_coefficients_are_sorted_and_zeros_left_out():
    values = {f"x{i}": float(i % 40) for i in range(80)}
    section = sections.coefficients({"A": values})
    ((_, content),) = Reader(section.body).charts
    drawn = content["data"][0]["x"]
    assert drawn == sorted(drawn) and len(drawn) == 30 and drawn[-1] == 39
    assert "78 of 80 are not zero, the 30 largest are shown" in section.body


def test_what_clients_hold_is_counted():
    x = np.arange(12.0).reshape(6, 2)
    clients = [(x[:2], np.array([0, 2])), (x[2:], np.array([2, 2, 2, 0]))]
    about = data_of_clients(clients, classes=["no", "?", "yes"], features=["a", "b"])
    assert about["labels"] == {"names": ["no", "yes"], "counts": [[1, 1], [1, 3]]}
    assert about["sizes"] == [2, 4] and about["features"]["names"] == ["a", "b"]
    means = (np.array([x[:2].mean(0), x[2:].mean(0)]) - x.mean(0)) / x.std(0)
    assert np.allclose(about["features"]["means"], means, atol=1e-5)
    assert json.dumps(about)


def test_a_page_without_plotly_says_what_to_install(monkeypatch):
    monkeypatch.setattr(page, "available", lambda: False)
    page._plotly.cache_clear()
    with pytest.raises(CompositeFLError, match=r"pip install 'compositefl\[report\]'"):
        page.page("t", [])


def test_folders_of_a_deployment_show_who_took_part(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    history().to_csv(folder / "history.csv", index=False)
    config = {"algorithm": "FedNMap(gamma=1)", "sites": ["a", "b"], "summary": "converged"}
    (folder / "config.json").write_text(json.dumps(config))
    events = [{"event": "round", "round": t, "sites": ["a", "b"][: 1 + t % 2]} for t in (1, 2, 2)]
    (folder / "progress.jsonl").write_text("\n".join(map(json.dumps, events)))
    title, made = folder_sections([folder])
    assert title == "run" and "Who took part" in [s.heading for s in made]
    assert "Share of 2 rounds: a 100%, b 50%" in "".join(s.body for s in made)


def test_the_outcome_of_a_deployment_comes_with_a_page(tmp_path, capsys):
    from compositefl.cli.deploy import _show

    (tmp_path / "history.csv").write_text("\n")  # with noise nothing is evaluated
    config = {"algorithm": "FedNMap(gamma=1)", "sites": ["a"], "rounds_run": 3, "stopped": "rounds"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert _show(tmp_path) == 0 and "report.html" in capsys.readouterr().out
    assert (tmp_path / "report.html").stat().st_mode & 0o077 == 0


def test_other_folders_are_refused(tmp_path):
    with pytest.raises(CompositeFLError, match=r"has no history\.csv"):
        folder_sections([tmp_path])
    (tmp_path / "history.csv").write_text("round\n")
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CompositeFLError, match="damaged"):
        folder_sections([tmp_path])
