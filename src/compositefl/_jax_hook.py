"""`import compositefl` does not load JAX, and yet its settings come before JAX's first computation.

Whoever loads JAX afterwards, this package or the user's own `import jax`, loads `configuration`
with it: some of its settings are without effect once JAX has computed something.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

SETTINGS = "compositefl.configuration"


class _Watch(MetaPathFinder):
    """Finds the module jax as Python does; after it has run, loads our settings of it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "jax":
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return spec
        run: Any = spec.loader.exec_module

        def run_and_set(module: ModuleType) -> None:
            if self in sys.meta_path:  # only now: one may look for a module without loading it
                sys.meta_path.remove(self)
            run(module)
            import_module(SETTINGS)

        spec.loader.exec_module = run_and_set  # type: ignore[method-assign]
        return spec


def configure_with_jax() -> None:
    """Make JAX's settings now if it is loaded, else as soon as it is."""
    if "jax" in sys.modules:
        import_module(SETTINGS)
    else:
        sys.meta_path.insert(0, _Watch())
