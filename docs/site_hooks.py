"""Hooks of the site: links that leave docs/ become plain words, since the site has no such page."""

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\((?:\.\./)+(?!reproduction)[^)]*\)")


def on_page_markdown(markdown: str, **kwargs: Any) -> str:
    """Replace [words](../src/...) by the words."""
    page = kwargs["page"].file.src_uri
    if page.startswith("reproduction/"):  # there one step up is still in docs/
        return re.sub(r"\[([^\]]+)\]\((?:\.\./){2,}[^)]*\)", r"\1", markdown)
    return OUTSIDE.sub(r"\1", markdown)
