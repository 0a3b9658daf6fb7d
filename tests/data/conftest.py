"""Folders for the data tests: miniature files with their own hashes, and the real files."""

import functools
import gzip
import http.server
import os
import threading
from pathlib import Path

import numpy as np
import pytest

from compositefl.data import files, idx
from tests.data.data_helpers import sha256

PARTS = {"train": 12, "t10k": 5}


@pytest.fixture(autouse=True)
def isolated(tmp_path_factory, monkeypatch):
    """No environment variable, no cache and no server of the machine takes part."""
    monkeypatch.delenv("COMPOSITEFL_DATA", raising=False)
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(files, "_cache", lambda: cache)
    monkeypatch.setattr(files, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr(files, "HOMES", dict.fromkeys(files.HOMES, "http://127.0.0.1:9/"))
    return cache


@pytest.fixture
def mini(monkeypatch):
    """The four files of a tiny MNIST as {name: gzipped bytes}; its hashes replace the real ones."""
    rng = np.random.default_rng(0)
    published, hashes = {}, []
    for part, count in PARTS.items():
        images = b"\0" * 16 + rng.integers(0, 256, (count, 28, 28), np.uint8).tobytes()
        labels = b"\0" * 8 + (np.arange(count, dtype=np.uint8) % 10).tobytes()
        for kind, content in (("images-idx3", images), ("labels-idx1", labels)):
            packed = gzip.compress(content, 9, mtime=0)
            published[f"{part}-{kind}-ubyte.gz"] = packed
            hashes.append((sha256(packed), sha256(content)))
    monkeypatch.setattr(idx, "_COUNTS", PARTS)
    monkeypatch.setattr(idx, "HASHES", {"mnist": tuple(hashes), "fashion-mnist": tuple(hashes)})
    return published


@pytest.fixture
def serve(monkeypatch):
    """serve(folder): publish it on 127.0.0.1 as every dataset's home; returns the requests."""
    servers = []

    def start(folder):
        requests = []

        class Handler(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *args):
                requests.append(self.path)

        handler = functools.partial(Handler, directory=str(folder))
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        home = f"http://127.0.0.1:{server.server_address[1]}/"
        monkeypatch.setattr(files, "HOMES", dict.fromkeys(files.HOMES, home))
        return requests

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(scope="session")
def real_folder():
    """The published files, from $COMPOSITEFL_DATA or from a folder beside the repository."""
    beside = Path(__file__).parents[2] / ".." / "shared" / "data"
    for folder in (os.environ.get("COMPOSITEFL_DATA"), beside):
        if folder and (Path(folder) / "mnist").is_dir():
            return Path(folder)
    pytest.skip("the published data files are not here")
