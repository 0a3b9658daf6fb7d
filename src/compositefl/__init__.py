"""Composite federated learning: minimise f(x) + phi(x) over clients that keep their data.

Names are loaded when they are first used, so that the command line prints its help at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from compositefl._jax_hook import configure_with_jax

if TYPE_CHECKING:
    from compositefl import algorithms, data, export, models, regularizers, theory
    from compositefl.algorithms import *
    from compositefl.configuration import configure
    from compositefl.core.component import component, static
    from compositefl.core.errors import CompositeFLError, ConvergenceWarning
    from compositefl.core.vector import Vector
    from compositefl.data import partition
    from compositefl.engine import metrics
    from compositefl.export.compression import compress
    from compositefl.problem import OnDemand, Problem, Stacked
    from compositefl.regularizers import *
    from compositefl.report.tracking import track
    from compositefl.solve._minimize import minimize
    from compositefl.solve._sweep import path, sweep
    from compositefl.solve._tune import tune
    from compositefl.solve._weight_max import weight_max
    from compositefl.solve.result import Result

    __version__: str

__all__ = [
    "L1",
    "MCP",
    "PGD",
    "SCAD",
    "STEM",
    "VRLSGD",
    "ZA1",
    "Algorithm",
    "Box",
    "ByName",
    "CompositeFLError",
    "ConvergenceWarning",
    "EControlDA",
    "ElasticNet",
    "FastFedDA",
    "FedADMM",
    "FedAvg",
    "FedAvgM",
    "FedCanon",
    "FedCanonII",
    "FedDA",
    "FedDC",
    "FedDR",
    "FedDyn",
    "FedMSPP",
    "FedMSPPNonsmooth",
    "FedMiD",
    "FedNMap",
    "FedPD",
    "FedProx",
    "FedProxNonsmooth",
    "FedSplit",
    "FederatedAlgorithm",
    "GroupLasso",
    "L1Ball",
    "L2Ball",
    "LInf",
    "LogSum",
    "Mime",
    "MimeLite",
    "NonNegative",
    "NormSGD",
    "NuclearNorm",
    "OnDemand",
    "Problem",
    "ProxNewton",
    "ProxSGD",
    "ProxSkip",
    "Regularizer",
    "Result",
    "Scaffnew",
    "Scaffold",
    "ScaffoldI",
    "ScaffoldM",
    "Simplex",
    "SmoothAlgorithm",
    "SparseGroupLasso",
    "SquaredL2",
    "Stacked",
    "TotalVariation1D",
    "TransformedL1",
    "TwoFour",
    "Vector",
    "Zero",
    "component",
    "compress",
    "configure",
    "data",
    "export",
    "metrics",
    "minimize",
    "models",
    "partition",
    "path",
    "static",
    "sweep",
    "theory",
    "track",
    "tune",
    "weight_max",
]

MODULES = {
    "algorithms": "algorithms",
    "cluster": "cluster",
    "data": "data",
    "export": "export",
    "metrics": "engine.metrics",
    "models": "models",
    "partition": "data.partition",
    "regularizers": "regularizers",
    "theory": "theory",
}
PLACES = {  # of names that are neither modules nor in FAMILIES
    "CompositeFLError": "core.errors",
    "ConvergenceWarning": "core.errors",
    "OnDemand": "problem",
    "Problem": "problem",
    "Result": "solve.result",
    "Stacked": "problem",
    "Vector": "core.vector",
    "component": "core.component",
    "compress": "export.compression",
    "configure": "configuration",
    "minimize": "solve._minimize",
    "path": "solve._sweep",
    "static": "core.component",
    "sweep": "solve._sweep",
    "track": "report.tracking",
    "tune": "solve._tune",
    "weight_max": "solve._weight_max",
}
FAMILIES = ("algorithms", "regularizers")  # all that these export can be had here

configure_with_jax()


if not TYPE_CHECKING:  # a type checker would take every name for one that exists

    def __getattr__(name: str) -> Any:
        value = _find(name)
        globals()[name] = value
        return value


def _find(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("compositefl")
    if name in MODULES:
        return import_module(f"compositefl.{MODULES[name]}")
    if name in PLACES:
        return getattr(import_module(f"compositefl.{PLACES[name]}"), name)
    if not name.startswith("_"):
        for family in FAMILIES:
            module = import_module(f"compositefl.{family}")
            if name in module.__all__:
                return getattr(module, name)
    raise AttributeError(f"module 'compositefl' has no attribute '{name}'")


def __dir__() -> list[str]:
    return [*__all__, "__version__", "algorithms", "regularizers"]
