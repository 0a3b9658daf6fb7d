"""ProxNewton."""

from benchmark_utils.federated import Federated

import compositefl as cfl


class Solver(Federated):
    """`cfl.ProxNewton`."""

    name = "ProxNewton"

    def algorithm(self, step):
        return cfl.ProxNewton()
