"""docs/operating.md lists the messages that the code has, and the code has those of the page."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "compositefl"
PAGE = (ROOT / "docs" / "operating.md").read_text()
# Files whose errors an operator meets. Those of federation.py, entries.py, trust.py and site.py
# name an entry of a file and what is allowed; the page says so in one line.
OPERATED = (
    *("calls", "coordinator", "ledger", "messages", "steered", "store", "supervise"),
    *("transport", "worker"),
    *("columns", "flare", "flare_admin", "flare_kits", "flare_nodes", "../core/files"),
)
RAISED = ("CompositeFLError", "NotFinite", "Failure", "PrivateError", "Damaged")


def words(node):
    """The text of a string in the code, three dots for what is put in; None for other nodes."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (v.value if isinstance(v, ast.Constant) else "..." for v in node.values)
        return "".join(parts)
    return None


def plain(text):
    return re.sub(r"\s+", " ", text).strip()


def strings(path):
    nodes = ast.walk(ast.parse(path.read_text()))
    return {plain(text) for node in nodes if (text := words(node) or sentence(node)) is not None}


def sentence(node):
    """What `wrong_value(name, value, wanted)` says; None for other nodes."""
    if getattr(getattr(node, "func", None), "id", "") != "wrong_value":
        return None
    name, _, wanted, *_ = (words(arg) or "..." for arg in node.args)
    return f"{name}=... must be {wanted}"


def raised(path):
    """What a file raises; of two texts the one that the coordinator gets."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        name = getattr(getattr(node, "func", None), "id", "")
        if sentence(node):
            found.add(plain(sentence(node)))
        if name in RAISED:
            texts = [text for arg in node.args if (text := words(arg)) is not None]
            if texts and re.search(r"[a-z]{3} ", texts[-1]):
                found.add(plain(texts[-1]))
    return found


def listed():
    """The first cells of the tables of messages."""
    section = PAGE.partition("## Messages")[2].partition("## Lines of FLARE")[0]
    return re.findall(r"^\| `(.+?)` \|", section, flags=re.M)


def test_every_message_of_the_page_exists():
    known = set().union(*(strings(path) for path in SOURCE.rglob("*.py")))
    assert len(listed()) > 60
    assert [message for message in listed() if plain(message) not in known] == []


@pytest.mark.parametrize("name", OPERATED)
def test_every_message_of_a_file_is_on_the_page(name):
    messages = raised(SOURCE / "deployment" / f"{name}.py")
    assert messages - set(map(plain, listed())) == set()


def test_the_page_names_every_metric():
    from compositefl.deployment.health import metrics
    from compositefl.deployment.progress import Progress

    progress = Progress.of(("a",))
    row = {"psi": 1.0, "natural_residual_sq": 1.0}
    progress.take({"event": "evaluation", **row})
    for time in (1.0, 2.0):
        progress.take({"event": "round", "round": 1, "sites": ["a"], "time": time})
    names = re.findall(r"^compositefl(\w+)\{", metrics("r", progress), flags=re.M)
    assert len(set(names)) == 13
    assert [name for name in names if f"`{name}`" not in PAGE.replace("`compositefl_", "`_")] == []


def test_the_page_names_every_command():
    from compositefl.cli.deploy import COMMANDS

    pages = PAGE + (ROOT / "docs" / "deployment.md").read_text()
    assert [name for name in COMMANDS if not re.search(rf"deploy {name}\b", pages)] == []
