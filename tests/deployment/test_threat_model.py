"""The threat model of docs/security.md names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_threat_model_names_exists():
    page = (ROOT / "docs" / "security.md").read_text()
    page = page.partition("## Threat model")[2].partition("\n## ")[0]
    table = [line for line in page.splitlines() if line.startswith("|")]
    named = [re.findall(r"`(test_\w+)`", line) for line in table[2:]]
    assert len(named) > 15 and all(named), "every row needs a test"
    sources = "\n".join(path.read_text() for path in ROOT.glob("tests/deployment/**/test_*.py"))
    defined = set(re.findall(r"^def (test_\w+)\(", sources, re.M))
    assert {name for names in named for name in names} <= defined
