"""Lets a library be imported that imports torchvision for its data sets, where that cannot load.

A wheel of torchvision built for CUDA does not load beside a PyTorch built for the CPU. What is
compared here uses no data set of a library, so that empty modules do.
"""

import importlib.abc
import importlib.machinery
import sys
import types


class _Empty(types.ModuleType):
    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Empty(spec.name)

    def exec_module(self, module):
        pass


try:
    import torchvision  # noqa: F401
except (ImportError, RuntimeError):
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    sys.meta_path.insert(0, _Finder())
