"""Progress in a notebook: a bar, a sentence and a small live curve."""

import html
import math
import sys
from collections.abc import Sequence
from typing import Any

WIDTH, HEIGHT = 260, 48


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


class NotebookBar:
    """Shows and updates one output of the present cell."""

    def __init__(self, total: int) -> None:
        from IPython.display import HTML, display

        self.total, self.make = total, HTML
        self.handle: Any = display(HTML(""), display_id=True)

    def update(self, done: int, residuals: Sequence[float], note: str) -> None:
        """Rounds that are done, and the residual of each evaluation so far."""
        self.handle.update(self.make(drawing(done, self.total, residuals, note)))


def drawing(done: int, total: int, residuals: Sequence[float], note: str) -> str:
    """The bar and the curve of the residual, on a logarithmic axis, as SVG."""
    share = done / max(total, 1)
    points = curve(residuals)
    line = f'<polyline points="{points}" fill="none" stroke="#0072B2" stroke-width="1.5"/>'
    return (
        f'<div><progress value="{done}" max="{total}" style="width:{WIDTH}px"></progress> '
        f"round {done} of {total} ({share:.0%}), {html.escape(note)}<br>"
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="natural residual">'
        f"{line}</svg></div>"
    )


def curve(values: Sequence[float]) -> str:
    """Points of a polyline through the logarithms of the values."""
    logs = [(i, math.log10(v)) for i, v in enumerate(values) if v > 0 and math.isfinite(v)]
    if len(logs) < 2:
        return ""
    low, high = min(v for _, v in logs), max(v for _, v in logs)
    last, spread = logs[-1][0], (high - low) or 1.0
    return " ".join(
        f"{(WIDTH - 4) * i / last + 2:.1f},{(HEIGHT - 6) * (high - v) / spread + 3:.1f}"
        for i, v in logs
    )
