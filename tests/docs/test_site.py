"""The site builds without a warning, and needs nothing from a network."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    words = ["-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(out)]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_it_builds_and_every_page_is_there(site):
    pages = [p for p in (ROOT / "docs").rglob("*.md") if not p.name.endswith(".remarks.md")]
    for page in pages:
        name = page.relative_to(ROOT / "docs").with_suffix(".html")
        name = name.with_name("index.html") if name.name == "README.html" else name
        assert (site / name).exists(), name


def test_pages_load_nothing_from_elsewhere(site):
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r'<(?:script|img|iframe)[^>]*\ssrc="(https?:[^"]*)"', text)
        loaded += re.findall(
            r'<link[^>]*rel="(?:stylesheet|icon|preconnect)"[^>]*href="(http[^"]*)', text
        )
        assert loaded == [], page.name


def test_the_reference_has_the_docstrings(site):
    text = (site / "api.html").read_text(encoding="utf-8")
    for words in ("minimize", "natural residual", "GroupLasso", "by_label", "compress"):
        assert words in text
    assert "prox_gamma" in (site / "mathematics.html").read_text(encoding="utf-8")
