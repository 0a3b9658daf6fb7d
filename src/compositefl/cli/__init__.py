"""The command line: `compositefl run`, `compare`, `list` and `demo`.

Nothing here imports the library before a command needs it, so that `--help` answers at once.
"""

from compositefl.cli.app import main

__all__ = ["main"]
