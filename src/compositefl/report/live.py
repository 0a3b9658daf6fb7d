"""The page of a run that goes on, served on this machine alone."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd

from compositefl.report import page
from compositefl.report.overview import Shown, run_sections
from compositefl.report.tracking import Row, listen

HOST = "127.0.0.1"  # nobody else may look


class State:
    """The histories so far, by method."""

    def __init__(self, title: str) -> None:
        self.title, self.lock = title, threading.Lock()
        self.rows: dict[str, list[Row]] = {}

    def take(self, name: str, rows: Sequence[Row]) -> None:
        """New rows of a method's run."""
        with self.lock:
            self.rows.setdefault(name, []).extend(rows)

    def runs(self) -> list[Shown]:
        """What there is to show now."""
        with self.lock:
            copies = {name: pd.DataFrame(rows) for name, rows in self.rows.items()}
        shown = []
        for name, history in copies.items():
            said = f"round {history['round'].max():.0f}, psi {history['psi'].iloc[-1]:.5g}"
            shown.append(Shown(name, history, said))
        return shown

    def whole(self) -> str:
        """The page."""
        return page.page(self.title, run_sections(self.runs()), live="now")

    def now(self) -> str:
        """The part of the page that changes."""
        return page.main_part(self.title, run_sections(self.runs()))


@contextmanager
def serve(title: str, say: Callable[[str], None], port: int = 0) -> Iterator[str]:
    """Serve the page of what runs in the block; gives its address, which `say` tells."""
    page._plotly()  # says at once if Plotly is missing
    state = State(title)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """The page, or its changing part."""
            makers = {"/": state.whole, "/now": state.now}
            if self.path not in makers:
                self.send_error(404)
                return
            content = makers[self.path]().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: the terminal belongs to the run."""

    server = ThreadingHTTPServer((HOST, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    address = f"http://{HOST}:{server.server_address[1]}/"
    say(f"watch the run at {address}")
    try:
        with listen(state.take):
            yield address
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
