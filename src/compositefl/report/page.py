"""One HTML file that opens without a network: sections, their style, and Plotly."""

import base64
import gzip
import html
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from compositefl.core.errors import CompositeFLError
from compositefl.report.sections import Section

NEEDS = "the report needs Plotly: pip install 'compositefl[report]'"


def available() -> bool:
    """Whether Plotly is installed."""
    return find_spec("plotly") is not None


def write(path: str | Path, title: str, sections: Sequence[Section]) -> None:
    """Write the page into the file `path`."""
    content = page(title, sections)
    Path(path).write_text(content, encoding="utf-8")


def page(title: str, sections: Sequence[Section], live: str = "") -> str:
    """The page. live: an address that has the present `main_part`, asked once a second."""
    style, script = (_file(name) for name in ("page.css", "page.js"))
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{html.escape(title)}</title>
<link rel="icon" href="data:,">
<style>
{style}</style>
</head>
<body data-live="{html.escape(live)}">
<noscript><p class="said">The curves need JavaScript; the tables do not.</p></noscript>
{main_part(title, sections)}
<script id="plotly" type="application/gzip;base64">{_plotly()}</script>
<script>
{script}</script>
</body>
</html>
"""


def main_part(title: str, sections: Sequence[Section]) -> str:
    """The title and the sections."""
    parts = [
        f'<section id="part{number}"><h2>{html.escape(s.heading)}</h2>\n{s.body}\n</section>'
        for number, s in enumerate(sections)
    ]
    return "\n".join(["<main>", f"<h1>{html.escape(title)}</h1>", *parts, "</main>"])


@lru_cache(1)
def _plotly() -> str:
    """Plotly's JavaScript, compressed: 2 MB in a page instead of 5."""
    if not available():
        raise CompositeFLError(NEEDS)
    from plotly.offline import get_plotlyjs

    return base64.b64encode(gzip.compress(get_plotlyjs().encode(), 6, mtime=0)).decode()


@lru_cache
def _file(name: str) -> str:
    return files("compositefl.report").joinpath(name).read_text(encoding="utf-8")
