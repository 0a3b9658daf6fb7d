"""PGD."""

from benchmark_utils.federated import Federated

import compositefl as cfl


class Solver(Federated):
    """`cfl.PGD`."""

    name = "PGD"

    def algorithm(self, step):
        return cfl.PGD(lr=step)
