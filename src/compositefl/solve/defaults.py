"""The algorithm where none is given."""

from compositefl.algorithms import FedNMap, ProxNewton
from compositefl.algorithms.base import Algorithm
from compositefl.problem import Problem
from compositefl.regularizers.base import Regularizer
from compositefl.solve.inputs import as_regularizer
from compositefl.solve.options import Options

FEW = 200  # parameters up to which an upload of a Hessian is small


def default_algorithm(problem: Problem, regularizer: object, options: Options) -> Algorithm:
    """ProxNewton for small convex problems with full gradients of everyone, else FedNMap."""
    if suits_newton(problem, as_regularizer(regularizer), options):
        return ProxNewton()
    return FedNMap()


def suits_newton(problem: Problem, regularizer: Regularizer, options: Options) -> bool:
    """Whether a handful of rounds with Hessians solves the problem: the linear models, mostly."""
    convex = getattr(problem.loss, "convex", False) and regularizer.convex
    return (
        bool(convex)
        and problem.compiles
        and problem.parameter_count <= FEW
        and not options.noise(ProxNewton(), len(problem.sizes))
        and options.batch_size is None
    )
