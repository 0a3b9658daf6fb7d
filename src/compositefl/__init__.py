"""Composite federated learning: minimise f(x) + phi(x) over clients that keep their data."""

# configuration first: it makes settings that must precede JAX's start.
from compositefl import configuration, algorithms, data, models, regularizers, theory  # isort: skip
from compositefl.algorithms import *
from compositefl.configuration import configure
from compositefl.core.errors import CompositeFLError, ConvergenceWarning
from compositefl.data import partition
from compositefl.engine import metrics
from compositefl.problem import Problem, Stacked
from compositefl.regularizers import *
from compositefl.solve._minimize import minimize
from compositefl.solve._sweep import path, sweep, weight_max
from compositefl.solve._tune import tune
from compositefl.solve.result import Result

__version__ = "0.1.0"
