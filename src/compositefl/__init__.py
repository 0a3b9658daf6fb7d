"""Composite federated learning: minimise f(x) + phi(x) over clients that keep their data."""

# _setup first: it makes settings that must precede JAX's start.
from compositefl import _setup, algorithms, data, metrics, models, partition, regularizers
from compositefl.algorithms import (
    PGD,
    ZA1,
    Algorithm,
    FedAvg,
    FedCanon,
    FedCanonII,
    FedDA,
    FedMiD,
    FedNMap,
    NormSGD,
    ProxSGD,
    Scaffold,
)
from compositefl.errors import CompositeFLError
from compositefl.minimize import minimize
from compositefl.problem import Problem
from compositefl.regularizers import (
    L1,
    MCP,
    SCAD,
    Box,
    ByName,
    ElasticNet,
    GroupLasso,
    L1Ball,
    L2Ball,
    LInf,
    LogSum,
    NonNegative,
    NuclearNorm,
    Regularizer,
    Simplex,
    SparseGroupLasso,
    SquaredL2,
    TotalVariation1D,
    TransformedL1,
    TwoFour,
    Zero,
)
from compositefl.result import Result
from compositefl.sweep import path, sweep, weight_max

__version__ = "0.1.0"
