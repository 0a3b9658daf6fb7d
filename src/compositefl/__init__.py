"""Composite federated learning: minimise f(x) + phi(x) over clients that keep their data."""

# _setup first: it makes settings that must precede JAX's start.
from compositefl import _setup, algorithms, data, metrics, models, partition, regularizers, theory
from compositefl.algorithms import *
from compositefl.errors import CompositeFLError
from compositefl.minimize import minimize
from compositefl.problem import Problem
from compositefl.regularizers import *
from compositefl.result import Result
from compositefl.sweep import path, sweep, weight_max
from compositefl.tune import tune

__version__ = "0.1.0"
