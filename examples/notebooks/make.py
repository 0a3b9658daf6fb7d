"""The examples as notebooks, made from the scripts: a cell begins at `# %%`.

Usage: python examples/notebooks/make.py
"""

import ast
import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
# A figure that is saved is shown as well.
SHOW = 'from IPython.display import Image\n\nImage("{}")'


def notebook(script: Path) -> dict[str, Any]:
    """The notebook of a script."""
    text = script.read_text()
    opening = ast.get_docstring(ast.parse(text)) or ""
    words = opening.partition("Usage:")[0].strip()
    parts = text[text.index("# %%") :].split("# %%")[1:]
    heading, _, rest = words.partition("\n")
    cells = [_cell("markdown", f"# {heading.rstrip('.')}\n\n{rest.strip()}".strip(), 0)]
    for part in parts:
        first, _, body = part.partition("\n")
        if "[markdown]" in first:
            lines = [line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()]
            cells.append(_cell("markdown", "\n".join(lines), len(cells)))
        else:
            cells.append(_cell("code", body.strip(), len(cells)))
    cells.append(_cell("code", SHOW.format(f"{script.stem}.png"), len(cells)))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    about = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return {"cells": cells, "metadata": about, "nbformat": 4, "nbformat_minor": 5}


def _cell(kind: str, text: str, number: int) -> dict[str, Any]:
    lines = text.splitlines(keepends=True)
    cell = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": lines}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def text_of(script: Path) -> str:
    """The notebook as the file has it."""
    return json.dumps(notebook(script), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for path in sorted(HERE.parent.glob("*.py")):
        (HERE / f"{path.stem}.ipynb").write_text(text_of(path), encoding="utf-8")
        print(f"{path.stem}.ipynb")
